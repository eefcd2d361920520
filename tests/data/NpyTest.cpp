#include "runtime/data/StoredArray.h"
#include "tests/data/TemporaryFile.h"

#include <gtest/gtest.h>

#include <cstring>
#include <zlib.h>

using namespace sluice;
using test::TemporaryFolder;

namespace {

/// As numpy.save writes it: the header is padded to a multiple of 64.
std::string npy(std::string header, const std::string &data) {
  while ((10 + header.size() + 1) % 64)
    header += ' ';
  header += '\n';
  std::string bytes = std::string("\x93NUMPY\x01\x00", 8);
  bytes += char(header.size() & 0xff);
  bytes += char(header.size() >> 8);
  return bytes + header + data;
}

std::string dictionary(const std::string &descr, const std::string &shape) {
  return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
}

std::string little(uint64_t value, int width) {
  std::string bytes;
  for (int i = 0; i < width; ++i)
    bytes += char(i < 8 ? value >> (8 * i) & 0xff : 0);
  return bytes;
}

/// A zip of one entry, written by the format's description.
std::string zip(const std::string &name, const std::string &content, bool deflated) {
  std::string packed = content;
  if (deflated) {
    packed.assign(content.size() + 100, 0);
    z_stream stream = {};
    deflateInit2(&stream, 6, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY);
    stream.next_in = reinterpret_cast<Bytef *>(const_cast<char *>(content.data()));
    stream.avail_in = uInt(content.size());
    stream.next_out = reinterpret_cast<Bytef *>(packed.data());
    stream.avail_out = uInt(packed.size());
    EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
    packed.resize(stream.total_out);
    deflateEnd(&stream);
  }
  std::string method = little(deflated ? 8 : 0, 2);
  std::string sizes = little(0, 4) + little(packed.size(), 4) + little(content.size(), 4);
  std::string local = little(0x04034b50, 4) + little(20, 2) + little(0, 2) + method +
                      little(0, 4) + sizes + little(name.size(), 2) + little(0, 2) +
                      name + packed;
  std::string central = little(0x02014b50, 4) + little(20, 4) + little(0, 2) + method +
                        little(0, 4) + sizes + little(name.size(), 2) + little(0, 12) +
                        little(0, 4) + name;
  std::string end = little(0x06054b50, 4) + little(0, 4) + little(1, 2) + little(1, 2) +
                    little(central.size(), 4) + little(local.size(), 4) + little(0, 2);
  return local + central + end;
}

std::string errorOf(const TemporaryFolder &folder, const std::string &bytes) {
  auto array = readNpy(folder.write("f", bytes));
  return array.ok() ? "" : without(array.status().message, folder);
}

TEST(Npy, ReadsFloatsOfOneDimension) {
  TemporaryFolder folder;
  float values[3] = {1, -2, 0.5};
  std::string data(reinterpret_cast<char *>(values), sizeof values);
  auto array = readNpy(folder.write("a.npy", npy(dictionary("<f4", "(3,)"), data)));
  ASSERT_TRUE(array.ok()) << array.status().message;
  EXPECT_EQ(array->dtype, DType::f32);
  EXPECT_EQ(array->shape, (std::vector<int64_t>{3}));
  EXPECT_EQ(std::memcmp(array->data, values, sizeof values), 0);
}

TEST(Npy, ReadsScalarsAndBigEndian) {
  TemporaryFolder folder;
  auto array = readNpy(
      folder.write("a.npy", npy(dictionary(">i2", "()"), std::string("\x01\x02", 2))));
  ASSERT_TRUE(array.ok()) << array.status().message;
  EXPECT_TRUE(array->bigEndian);
  EXPECT_TRUE(array->shape.empty());
}

TEST(Npy, RefusesWhatItCannotRead) {
  TemporaryFolder folder;
  EXPECT_EQ(errorOf(folder, "not an array at all"),
            "'f' is not an npy file: it does not begin with \\x93NUMPY");
  EXPECT_EQ(errorOf(folder, npy(dictionary("<f4", "(2, 3)"), std::string(20, 0))),
            "'f' is shorter than said: shape [2, 3] of f32 needs 24 bytes of data, found "
            "20");
  EXPECT_EQ(errorOf(folder, npy(dictionary("<c8", "(1,)"), std::string(8, 0))),
            "'f' has elements of type '<c8', expected plain numbers of 1 to 8 bytes");
  EXPECT_EQ(errorOf(folder, npy(dictionary("|O", "(1,)"), std::string(8, 0)))
                .find("'f' has elements of type '|O'"),
            0u);
  EXPECT_EQ(errorOf(folder, npy("{'descr': '<f4', 'fortran_order': True, 'shape': (1,)}",
                                std::string(4, 0))),
            "'f' is stored in Fortran order; save it with numpy.ascontiguousarray");
  EXPECT_EQ(errorOf(folder, npy(dictionary("<f4", "(-1,)"), std::string(4, 0))),
            "'f' has a shape in its npy header that is not a tuple of sizes");
  EXPECT_EQ(errorOf(folder, npy(dictionary("<f4", "(1,)"), "abcd").substr(0, 40)),
            "'f' ends in the middle of its npy header");
}

TEST(Npy, EveryTruncationIsRefused) {
  TemporaryFolder folder;
  std::string whole = npy(dictionary("<f4", "(3,)"), std::string(12, 0));
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(errorOf(folder, whole.substr(0, size)), "") << size;
  EXPECT_EQ(errorOf(folder, whole), "");
}

TEST(Npz, ReadsStoredAndDeflatedMembers) {
  TemporaryFolder folder;
  std::string content = npy(dictionary("|u1", "(2, 2)"), "abcd");
  for (bool deflated : {false, true}) {
    std::string path = folder.write("a.npz", zip("weights.npy", content, deflated));
    for (const char *member : {"weights", "weights.npy"}) {
      auto array = readNpz(path, member);
      ASSERT_TRUE(array.ok()) << array.status().message;
      EXPECT_EQ(array->shape, (std::vector<int64_t>{2, 2}));
      EXPECT_EQ(std::memcmp(array->data, "abcd", 4), 0);
    }
  }
}

TEST(Npz, NamesWhatThereIs) {
  TemporaryFolder folder;
  std::string path =
      folder.write("f", zip("weights.npy", npy(dictionary("|u1", "(4,)"), "abcd"), true));
  auto array = readNpz(path, "bias");
  ASSERT_FALSE(array.ok());
  EXPECT_EQ(without(array.status().message, folder),
            "'f' has no array 'bias'; it has 'weights.npy'");
}

TEST(Npz, EveryTruncationAndFlippedByteIsSurvived) {
  TemporaryFolder folder;
  std::string whole =
      zip("w.npy", npy(dictionary("<u2", "(2, 2)"), std::string(8, 'x')), true);
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(readNpz(folder.write("f", whole.substr(0, size)), "w").ok()) << size;
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string flipped = whole;
    flipped[at] ^= char(0xff);
    auto array = readNpz(folder.write("f", flipped), "w");
    if (array.ok()) {
      EXPECT_EQ(array->elements(), 4) << at;
    }
  }
}

} // namespace
