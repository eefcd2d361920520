#include "codegen/ImageLinker.h"

#include "lld/Common/Driver.h"

#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/BinaryFormat/ELF.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

LLD_HAS_DRIVER(elf)

using namespace llvm;

namespace {
Error refuse(const Twine &message) {
  return createStringError(inconvertibleErrorCode(), message);
}

Error writeFile(StringRef path, StringRef bytes) {
  std::error_code code;
  raw_fd_ostream stream(path, code);
  if (!code) {
    stream << bytes;
    stream.close();
    code = stream.error();
    stream.clear_error(); // or the stream's end would end the process
  }
  return code ? refuse("cannot write '" + path + "': " + code.message())
              : Error::success();
}

/// The loader maps the image and uses it as it is.
Error checkNoRelocations(StringRef image) {
  Expected<object::ELF64LEFile> file = object::ELF64LEFile::create(image);
  if (!file)
    return file.takeError();
  Expected<object::ELF64LE::ShdrRange> sections = file->sections();
  if (!sections)
    return sections.takeError();
  for (const auto &section : *sections)
    if ((section.sh_type == ELF::SHT_RELA || section.sh_type == ELF::SHT_REL) &&
        section.sh_size != 0)
      return refuse("the kernel image has relocations, expected none");
  return Error::success();
}
} // namespace

Expected<std::string> sluice::linkImage(StringRef object) {
  SmallString<128> directory;
  if (sys::fs::createUniqueDirectory("sluice-link", directory))
    return refuse("cannot create a temporary directory for the linker");
  auto remove = make_scope_exit([&] { sys::fs::remove_directories(directory); });
  std::string input = (directory + "/kernels.o").str();
  std::string output = (directory + "/kernels.so").str();
  if (Error error = writeFile(input, object))
    return error;

  const char *arguments[] = {"ld.lld",
                             "-shared",
                             "-Bsymbolic",
                             "--hash-style=sysv",
                             "--build-id=none",
                             "--threads=1",
                             "-z",
                             "defs",
                             "-z",
                             "text",
                             "-z",
                             "norelro",
                             "--strip-all",
                             "-o",
                             output.c_str(),
                             input.c_str()};
  std::string messages;
  raw_string_ostream stream(messages);
  lld::Result result =
      lld::lldMain(arguments, stream, stream, {{lld::Gnu, &lld::elf::link}});
  if (result.retCode != 0)
    return refuse("linking the kernels failed: " + StringRef(stream.str()).trim());
  ErrorOr<std::unique_ptr<MemoryBuffer>> image = MemoryBuffer::getFile(output);
  if (!image)
    return refuse("the linker wrote no image");
  if (Error error = checkNoRelocations((*image)->getBuffer()))
    return error;
  return (*image)->getBuffer().str();
}
