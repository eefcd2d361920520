#include "runtime/data/Csv.h"
#include "tests/data/TemporaryFile.h"

#include <gtest/gtest.h>

using namespace sluice;
using test::TemporaryFolder;

namespace {

using Values = std::vector<double>;

Result<CsvTable> read(const TemporaryFolder &folder, const std::string &text,
                      std::vector<CsvColumns> columns, CsvOptions options = {}) {
  return readCsv(folder.write("f", text), columns, options);
}

std::string errorOf(const TemporaryFolder &folder, const std::string &text,
                    std::vector<CsvColumns> columns, CsvOptions options = {}) {
  auto table = read(folder, text, std::move(columns), options);
  return table.ok() ? "" : without(table.status().message, folder);
}

TEST(Csv, ReadsColumnsByNumberWithoutHeader) {
  TemporaryFolder folder;
  auto table = read(folder, "1,2,3\n4,5,6\n", {{"1-2"}, {"3"}});
  ASSERT_TRUE(table.ok()) << table.status().message;
  EXPECT_EQ(table->rows, 2);
  EXPECT_EQ(table->values[0], (Values{1, 2, 4, 5}));
  EXPECT_EQ(table->values[1], (Values{3, 6}));
}

TEST(Csv, DetectsTheHeader) {
  TemporaryFolder folder;
  std::string text = "id,age,default\n7,-3,1\n8,2.5e1,0\n";
  auto table = read(folder, text, {{"2"}, {"default", "1"}});
  ASSERT_TRUE(table.ok()) << table.status().message;
  EXPECT_EQ(table->values[0], (Values{-3, 25}));
  EXPECT_EQ(table->values[1], (Values{1, 7, 0, 8}));
}

TEST(Csv, HeaderOfNumbersMustBeSaid) {
  TemporaryFolder folder;
  CsvOptions options;
  EXPECT_EQ(read(folder, "1,2\n3,4\n", {{"1"}}, options)->rows, 2);
  options.header = CsvHeader::Yes;
  EXPECT_EQ(read(folder, "1,2\n3,4\n", {{"1"}}, options)->rows, 1);
}

TEST(Csv, ReadsQuotesBlankLinesAndCarriageReturns) {
  TemporaryFolder folder;
  std::string text = "\xef\xbb\xbf\"a \"\"b\"\"\",c\r\n\r\n\"1\", 2\r\n3,\"4\"";
  auto table = read(folder, text, {{"a \"b\"", "c"}});
  ASSERT_TRUE(table.ok()) << table.status().message;
  EXPECT_EQ(table->values[0], (Values{1, 2, 3, 4}));
}

TEST(Csv, SkipsTextColumnsItIsNotAskedFor) {
  TemporaryFolder folder;
  auto table = read(folder, "x,\"a,\nb\",1\ny,,2\n", {{"3"}});
  ASSERT_TRUE(table.ok()) << table.status().message;
  EXPECT_EQ(table->values[0], (Values{1, 2}));
}

TEST(Csv, OtherDelimiters) {
  TemporaryFolder folder;
  CsvOptions options;
  options.delimiter = '\t';
  EXPECT_EQ(read(folder, "1\t2\n", {{"2"}}, options)->values[0], Values{2});
}

TEST(Csv, ErrorsNameLineAndColumn) {
  TemporaryFolder folder;
  EXPECT_EQ(errorOf(folder, "a,b\n1,2\n3,x\n", {{"2"}}),
            "'f' has 'x' in line 3, column 2, expected a number");
  EXPECT_EQ(errorOf(folder, "1,2\n3,\n", {{"2"}}),
            "'f' has an empty cell in line 2, column 2, expected a number");
  EXPECT_EQ(errorOf(folder, "1,2\n3,nan\n", {{"2"}}),
            "'f' has 'nan' in line 2, column 2, expected a number");
  EXPECT_EQ(errorOf(folder, "1,2\n3\n", {{"1"}}),
            "'f' has 1 fields in line 2, expected 2 as in its first row");
  EXPECT_EQ(errorOf(folder, "1,\"2\n3,4\n", {{"1"}}),
            "'f' has a quote in line 1 that is never closed");
  EXPECT_EQ(errorOf(folder, "a,b\n", {{"1"}}), "'f' has no rows of data");
  EXPECT_EQ(errorOf(folder, "", {{"1"}}), "'f' has no rows of data");
}

TEST(Csv, ErrorsOfColumns) {
  TemporaryFolder folder;
  EXPECT_EQ(errorOf(folder, "1,2\n", {{"3"}}),
            "column '3' is not among the 2 columns of 'f', which are counted from 1");
  EXPECT_EQ(errorOf(folder, "1,2\n", {{"0-1"}}),
            "column '0-1' is not among the 2 columns of 'f', which are counted from 1");
  EXPECT_EQ(errorOf(folder, "a,b\n1,2\n", {{"c"}}),
            "'f' has no column 'c'; its header has 'a', 'b'");
  CsvOptions options;
  options.header = CsvHeader::No;
  EXPECT_EQ(errorOf(folder, "1,2\n", {{"c"}}, options),
            "'f' has no column 'c'; it has no header, so columns go by number");
}

} // namespace
