#pragma once
// Files for one test, removed with it.

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>
#include <vector>

namespace sluice::test {

class TemporaryFolder {
public:
  TemporaryFolder() {
    const auto *info = testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string("sluice-") + info->test_suite_name() + "-" +
                       info->name() + "-" + std::to_string(getpid());
    folder = std::filesystem::path(testing::TempDir()) / name;
    std::filesystem::create_directories(folder);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  std::string path(const std::string &name) const { return (folder / name).string(); }

  /// Writes a file and gives its path.
  std::string write(const std::string &name, const std::string &content) const {
    std::ofstream(path(name), std::ios::binary) << content;
    return path(name);
  }
  template <class T>
  std::string write(const std::string &name, const std::vector<T> &content) const {
    const char *bytes = reinterpret_cast<const char *>(content.data());
    return write(name, std::string(bytes, content.size() * sizeof(T)));
  }

private:
  std::filesystem::path folder;
};

/// `text` with the folder's path taken out, so that messages can be compared whole.
inline std::string without(std::string text, const TemporaryFolder &folder) {
  std::string prefix = folder.path("");
  for (size_t at; (at = text.find(prefix)) != std::string::npos;)
    text.erase(at, prefix.size());
  return text;
}

} // namespace sluice::test
