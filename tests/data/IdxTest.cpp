#include "runtime/data/Inflate.h"
#include "runtime/data/StoredArray.h"
#include "tests/data/TemporaryFile.h"

#include <gtest/gtest.h>

#include <zlib.h>

using namespace sluice;
using test::TemporaryFolder;

namespace {

/// Two samples of 2 x 3 bytes.
std::string smallIdx() {
  std::string bytes = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3};
  for (char i = 0; i < 12; ++i)
    bytes += i;
  return bytes;
}

std::string gzipped(const std::string &bytes) {
  std::string result(bytes.size() + 200, 0);
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  stream.next_in = reinterpret_cast<Bytef *>(const_cast<char *>(bytes.data()));
  stream.avail_in = uInt(bytes.size());
  stream.next_out = reinterpret_cast<Bytef *>(result.data());
  stream.avail_out = uInt(result.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  result.resize(stream.total_out);
  deflateEnd(&stream);
  return result;
}

void expectSmall(const Result<StoredArray> &array) {
  ASSERT_TRUE(array.ok()) << array.status().message;
  EXPECT_EQ(array->shape, (std::vector<int64_t>{2, 2, 3}));
  EXPECT_EQ(array->dtype, DType::u8);
  for (int i = 0; i < 12; ++i)
    EXPECT_EQ(array->data[i], i);
}

TEST(Idx, ReadsPlainAndGzipped) {
  TemporaryFolder folder;
  expectSmall(readIdx(folder.write("a.idx", smallIdx())));
  expectSmall(readIdx(folder.write("a.idx.gz", gzipped(smallIdx()))));
}

std::string errorOf(const TemporaryFolder &folder, const std::string &bytes) {
  auto array = readIdx(folder.write("f", bytes));
  if (array.ok())
    return "";
  EXPECT_EQ(array.status().code, StatusCode::damaged);
  return without(array.status().message, folder);
}

TEST(Idx, RefusesDamagedFiles) {
  TemporaryFolder folder;
  std::string good = smallIdx();
  EXPECT_EQ(errorOf(folder, good.substr(0, 20)),
            "'f' is shorter than said: shape [2, 2, 3] needs 12 bytes of data, found 4");
  EXPECT_EQ(errorOf(folder, good + "x"),
            "'f' is longer than said: shape [2, 2, 3] needs 12 bytes of data, found 13");
  std::string wrong = "'f' is not an IDX file: its first bytes are not 0, 0 and a known "
                      "element type";
  EXPECT_EQ(errorOf(folder, "PNG" + good), wrong);
  EXPECT_EQ(errorOf(folder, ""), wrong);
  EXPECT_EQ(errorOf(folder, std::string("\0\0\x07\x01", 4)), wrong);
  EXPECT_EQ(errorOf(folder, good.substr(0, 9)),
            "'f' is too short for its IDX header of 3 dimensions");
  std::string huge("\0\0\x0e\x03", 4);
  huge += std::string(12, '\xff');
  EXPECT_EQ(errorOf(folder, huge),
            "'f' is shorter than said: shape [4294967295, 4294967295, 4294967295] needs "
            "more than 2^62 bytes of data, found 0");
}

TEST(Idx, RefusesDamagedCompression) {
  TemporaryFolder folder;
  std::string packed = gzipped(smallIdx());
  EXPECT_EQ(errorOf(folder, packed.substr(0, packed.size() - 12))
                .find("'f' ends in the middle of its compressed data"),
            0u);
  packed[packed.size() - 6] ^= 1; // in the checksum
  EXPECT_EQ(errorOf(folder, packed),
            "'f' is not valid compressed data: incorrect data check");
}

TEST(Idx, MissingFileIsRefused) {
  auto array = readIdx("/nowhere/at/all");
  ASSERT_FALSE(array.ok());
  EXPECT_EQ(array.status().code, StatusCode::refused);
  EXPECT_NE(array.status().message.find("'/nowhere/at/all'"), std::string::npos);
}

TEST(Inflate, StopsAtTheLimit) {
  std::string packed = gzipped(std::string(100000, 'a'));
  std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t *>(packed.data()),
                                 packed.size());
  EXPECT_TRUE(inflateBytes(bytes, Deflated::Gzip, 100000, "f").ok());
  auto result = inflateBytes(bytes, Deflated::Gzip, 99999, "f");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().message, "'f' decompresses to more than 99999 bytes");
}

} // namespace
