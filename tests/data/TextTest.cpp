#include "runtime/data/Text.h"
#include "tests/data/TemporaryFile.h"

#include <gtest/gtest.h>

using namespace sluice;
using test::TemporaryFolder;

namespace {

std::vector<int32_t> idsOf(const StoredArray &array) {
  EXPECT_EQ(array.dtype, DType::i32);
  const auto *ids = reinterpret_cast<const int32_t *>(array.data);
  return {ids, ids + array.elements()};
}

std::string messageOf(const Result<StoredArray> &array, const TemporaryFolder &folder) {
  return array.ok() ? "" : without(array.status().message, folder);
}

TEST(Text, IdsFollowTheSortedDistinctBytes) {
  TemporaryFolder folder;
  auto array = readText(folder.write("f", "banana\n"), Vocabulary::Bytes, "");
  ASSERT_TRUE(array.ok()) << array.status().message;
  // '\n' 0, 'a' 1, 'b' 2, 'n' 3
  EXPECT_EQ(idsOf(*array), (std::vector<int32_t>{2, 1, 3, 1, 3, 1, 0}));
}

TEST(Text, CharactersAreCodePoints) {
  TemporaryFolder folder;
  std::string path = folder.write("f", "a\xc3\xa9\xe2\x82\xac"
                                       "a\xf0\x9f\x98\x80"); // a é € a 😀
  auto array = readText(path, Vocabulary::Chars, "");
  ASSERT_TRUE(array.ok()) << array.status().message;
  EXPECT_EQ(idsOf(*array), (std::vector<int32_t>{0, 1, 2, 0, 3}));
}

TEST(Text, RawBytesAreTheirOwnIds) {
  TemporaryFolder folder;
  auto array = readText(folder.write("f", "ab"), Vocabulary::Raw, "");
  ASSERT_TRUE(array.ok());
  EXPECT_EQ(array->dtype, DType::u8);
  EXPECT_EQ(array->data[1], 'b');
}

TEST(Text, TakesTheVocabularyOfAnotherFile) {
  TemporaryFolder folder;
  std::string train = folder.write("train", "abcd"), test = folder.write("test", "db");
  auto array = readText(test, Vocabulary::Bytes, train);
  ASSERT_TRUE(array.ok());
  EXPECT_EQ(idsOf(*array), (std::vector<int32_t>{3, 1}));
  EXPECT_EQ(messageOf(readText(train, Vocabulary::Bytes, test), folder),
            "'train' has a character at byte 0 that is not in the vocabulary of 'test'");
}

TEST(Text, RefusesInvalidUtf8) {
  TemporaryFolder folder;
  for (const char *bad :
       {"a\xff", "a\xc3", "a\xc0\x80", "a\xed\xa0\x80", "a\xf5\x80\x80\x80"})
    EXPECT_EQ(messageOf(readText(folder.write("f", bad), Vocabulary::Chars, ""), folder),
              "'f' is not UTF-8 at byte 1; use vocab=bytes");
}

TEST(Tokens, ReadsIdsAndRefusesOddSizes) {
  TemporaryFolder folder;
  auto array = readTokens(folder.write("f", std::vector<uint16_t>{5, 50256}), DType::u16);
  ASSERT_TRUE(array.ok());
  EXPECT_EQ(array->shape, (std::vector<int64_t>{2}));
  EXPECT_EQ(messageOf(readTokens(folder.write("f", "abc"), DType::u16), folder),
            "'f' has 3 bytes, expected a positive multiple of 2 (ids of type u16)");
  EXPECT_FALSE(readTokens(folder.write("f", ""), DType::i32).ok());
}

} // namespace
