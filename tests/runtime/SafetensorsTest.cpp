#include "TestPlan.h"

#include "runtime/Safetensors.h"

#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>

namespace sluice::test {

static std::vector<uint8_t> fileOf(const std::string &header, size_t dataBytes) {
  std::vector<uint8_t> bytes(8 + header.size() + dataBytes);
  uint64_t size = header.size();
  std::memcpy(bytes.data(), &size, 8);
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  return bytes;
}

static Status parseStatus(const std::string &header, size_t dataBytes) {
  std::vector<uint8_t> bytes = fileOf(header, dataBytes);
  auto file = SafetensorsFile::parse(bytes, "x");
  return file.ok() ? Status::success() : file.status();
}

TEST(Safetensors, WhatIsWrittenIsRead) {
  TemporaryFolder folder;
  std::string path = folder.path + "/a.safetensors";
  float a[6] = {1, 2, 3, 4, 5, 6};
  int64_t b = -7;
  std::vector<TensorToWrite> tensors = {{"a", DType::f32, {2, 3}, a, 24},
                                        {"empty", DType::i8, {0, 4}, nullptr, 0},
                                        {"b \"quoted\"\n", DType::i64, {}, &b, 8}};
  ASSERT_TRUE(writeSafetensors(path, tensors, {{"key", "v\\alue"}}).ok());
  auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message;
  EXPECT_TRUE(file->hasChecksum());
  EXPECT_TRUE(file->verifyChecksum().ok());
  EXPECT_EQ(file->metadata().at("key"), "v\\alue");
  const TensorEntry *entry = file->find("a");
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(std::memcmp(file->data(*entry).data(), a, 24), 0);
  ASSERT_NE(file->find("b \"quoted\"\n"), nullptr);
  EXPECT_EQ(file->find("empty")->bytes, 0u);
}

TEST(Safetensors, WhatIsNoFileIsNotReplaced) {
  TemporaryFolder folder;
  std::string path = folder.path + "/pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  Status status = writeSafetensors(path, {}, {});
  EXPECT_EQ(status.code, StatusCode::refused);
  EXPECT_NE(status.message.find("is no regular file"), std::string::npos)
      << status.message;
  struct stat there;
  ASSERT_EQ(stat(path.c_str(), &there), 0);
  EXPECT_TRUE(S_ISFIFO(there.st_mode));
}

TEST(Safetensors, OneChangedBitIsNoticed) {
  TemporaryFolder folder;
  std::string path = folder.path + "/a.safetensors";
  std::vector<float> values(5, 1.5f);
  std::vector<TensorToWrite> tensors = {{"a", DType::f32, {5}, values.data(), 20}};
  ASSERT_TRUE(writeSafetensors(path, tensors, {{"step", "10"}}).ok());
  std::ifstream stream(path, std::ios::binary);
  std::vector<char> bytes{std::istreambuf_iterator<char>(stream), {}};
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::vector<uint8_t> changed(bytes.begin(), bytes.end());
    changed[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    auto file = SafetensorsFile::parse(changed, "changed");
    // A changed key of the checksum itself leaves a plain file without one.
    EXPECT_TRUE(!file.ok() || !file->hasChecksum() || !file->verifyChecksum().ok())
        << "bit " << bit;
  }
}

TEST(Safetensors, ReadsEscapesAndOrderlessFields) {
  std::vector<uint8_t> bytes = fileOf(
      R"({"\u00e9\ud83d\ude00\/" : {"shape":[ 2 ], "data_offsets":[0,2],"dtype":"BOOL"}}  )",
      2);
  auto file = SafetensorsFile::parse(bytes, "x");
  ASSERT_TRUE(file.ok()) << file.status().message;
  EXPECT_NE(file->find("\xc3\xa9\xf0\x9f\x98\x80/"), nullptr);
}

TEST(Safetensors, RefusesWhatIsNotExact) {
  auto tensor = [](const char *name, const char *type, const char *shape,
                   const char *at) {
    return std::string("\"") + name + "\":{\"dtype\":\"" + type +
           "\",\"shape\":" + shape + ",\"data_offsets\":" + at + "}";
  };
  std::string a = tensor("a", "F32", "[2]", "[0,8]");
  EXPECT_TRUE(parseStatus("{" + a + "}", 8).ok());
  EXPECT_TRUE(parseStatus("{}", 0).ok());
  struct Bad {
    std::string header;
    size_t bytes;
    const char *message;
  };
  const Bad bad[] = {
      {"{" + a + "}", 9, "the file has 9"},
      {"{" + a + "}", 7, "the file has 7"},
      {"{" + a + "," + a + "}", 8, "two tensors"},
      {"{" + a + "," + tensor("b", "I8", "[4]", "[4,8]") + "}", 8, "overlaps"},
      {"{" + a + "," + tensor("b", "I8", "[4]", "[12,16]") + "}", 16, "gap"},
      {"{" + tensor("a", "F8_E4M3", "[8]", "[0,8]") + "}", 8, "unknown element type"},
      {"{" + tensor("a", "F32", "[3]", "[0,8]") + "}", 8, "not its shape"},
      {"{" + tensor("a", "F32", "[4294967296,4294967296,2]", "[0,0]") + "}", 0,
       "not its shape"},
      {"{" + tensor("a", "F32", "[-2]", "[0,8]") + "}", 8, "shape"},
      {"{" + tensor("a", "F32", "[2]", "[8,0]") + "}", 8, "offsets"},
      {"{" + tensor("a", "F32", "[02]", "[0,8]") + "}", 8, "shape"},
      {"{" + tensor("a", "F32", "[99999999999999999999]", "[0,8]") + "}", 8, "shape"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "needs dtype"},
      {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 8, "repeated field"},
      {"{\"a\":{\"size\":3}}", 8, "unknown or repeated"},
      {"{" + a + "} x", 8, "unexpected text"},
      {"{" + a, 8, "expected '}'"},
      {"{\"\\ud800\":1}", 0, "expected a name"},
      {"{\"__metadata__\":{\"a\":1}}", 0, "text in the metadata"},
      {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "repeated key"},
      {"[]", 0, "expected '{'"},
  };
  for (const Bad &one : bad) {
    Status status = parseStatus(one.header, one.bytes);
    EXPECT_EQ(status.code, StatusCode::damaged) << one.header;
    EXPECT_NE(status.message.find(one.message), std::string::npos)
        << one.header << " -> " << status.message;
  }
}

TEST(Safetensors, RefusesAHeaderLongerThanTheFile) {
  std::vector<uint8_t> bytes(64, ' ');
  uint64_t size = UINT64_MAX - 3;
  std::memcpy(bytes.data(), &size, 8);
  EXPECT_EQ(SafetensorsFile::parse(bytes, "x").status().code, StatusCode::damaged);
  EXPECT_EQ(SafetensorsFile::parse({bytes.data(), 5}, "x").status().code,
            StatusCode::damaged);
}

} // namespace sluice::test
