#include "runtime/comm/DynamicLibrary.h"

#include <dlfcn.h>
#include <filesystem>

namespace sluice {

std::string besideThisCode(const std::string &file) {
  Dl_info info = {};
  std::error_code error;
  if (!dladdr(reinterpret_cast<void *>(&besideThisCode), &info) || !info.dli_fname)
    return file;
  // A program's own name may be that on its command line.
  std::filesystem::path self = std::filesystem::canonical(info.dli_fname, error);
  if (error)
    self = std::filesystem::canonical("/proc/self/exe", error);
  return (self.parent_path() / file).string();
}

Result<void *> openLibrary(const std::vector<std::string> &files, bool globalSymbols) {
  std::string why = "no file is named";
  bool found = false;
  for (const std::string &file : files) {
    std::error_code error;
    bool there = std::filesystem::exists(file, error);
    if (void *library =
            dlopen(file.c_str(), RTLD_NOW | (globalSymbols ? RTLD_GLOBAL : RTLD_LOCAL)))
      return library;
    const char *text = dlerror();
    if (!found)
      why = text ? text : "'" + file + "' cannot be loaded";
    found = found || there;
  }
  return Status::cannotRunHere(why);
}

void *symbolOf(void *library, const char *name) { return dlsym(library, name); }

} // namespace sluice
