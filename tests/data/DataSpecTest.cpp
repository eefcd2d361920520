#include "runtime/data/DataSpec.h"

#include <gtest/gtest.h>

using namespace sluice;

namespace {

std::string errorOf(const char *text) {
  auto spec = DataSpec::parse(text);
  if (spec.ok())
    return "";
  EXPECT_EQ(spec.status().code, StatusCode::refused);
  return spec.status().message;
}

TEST(DataSpec, ReadsAllParts) {
  auto spec = DataSpec::parse("images=idx:a/b.gz,scale=1/255,mean=0.1,0.2,0.3,std=2");
  ASSERT_TRUE(spec.ok()) << spec.status().message;
  EXPECT_EQ(spec->input, "images");
  EXPECT_EQ(spec->kind, "idx");
  EXPECT_EQ(spec->file, "a/b.gz");
  EXPECT_EQ(*spec->single("scale", ""), "1/255");
  EXPECT_EQ(spec->find("mean")->values, (std::vector<std::string>{"0.1", "0.2", "0.3"}));
  EXPECT_EQ(spec->find("range"), nullptr);
}

TEST(DataSpec, InputNamesMayHoldColons) {
  auto named = DataSpec::parse("serving_default=1:0=npy:f=idx:g.npy,scale=2");
  ASSERT_TRUE(named.ok()) << named.status().message;
  EXPECT_EQ(named->input, "serving_default=1:0");
  EXPECT_EQ(named->kind, "npy");
  EXPECT_EQ(named->file, "f=idx:g.npy");
  EXPECT_EQ(*named->single("scale", ""), "2");
}

TEST(DataSpec, FilesMayHoldHashes) {
  auto spec = DataSpec::parse("x=npz:f.npz#a#b");
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->file, "f.npz#a");
  EXPECT_EQ(spec->member, "b");
}

TEST(DataSpec, CsvWithATargetNeedsNoName) {
  auto spec = DataSpec::parse("csv:f.csv,columns=1-20,target=21");
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->input, "");
}

TEST(DataSpec, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(errorOf("x"), "'--data x': expected NAME=KIND:FILE");
  EXPECT_EQ(errorOf("x=png:f"),
            "'--data x=png:f': no kind of data is called 'png'; known "
            "are idx, npy, npz, safetensors, csv, text, tokens");
  EXPECT_EQ(errorOf("x=idx:"), "'--data x=idx:': the file is missing");
  EXPECT_EQ(errorOf("idx:f"), "'--data idx:f': the name of the model's input is missing; "
                              "write NAME=idx:FILE");
  EXPECT_EQ(errorOf("x=npz:f"),
            "'--data x=npz:f': the name of the array is missing; write FILE#name");
  EXPECT_EQ(errorOf("x=text:f,scale=2"),
            "'--data x=text:f,scale=2': 'text' has no option 'scale'; it knows range, "
            "vocab, vocab_from, shift, stride");
  EXPECT_EQ(errorOf("x=idx:f,scale=2,scale=3"),
            "'--data x=idx:f,scale=2,scale=3': the option 'scale' is given twice");
  EXPECT_EQ(errorOf("x=idx:f,g"),
            "'--data x=idx:f,g': expected option=value, found 'g'; a "
            "file name cannot contain a comma");
}

TEST(DataSpec, NumbersAndFractions) {
  EXPECT_EQ(parseFraction("1/4"), 0.25);
  EXPECT_EQ(parseFraction("-0.5"), -0.5);
  for (const char *text : {"", "x", "1x", "1/0", "nan", "inf", "1e999", "1/", "/2"})
    EXPECT_EQ(parseFraction(text), std::nullopt) << text;
  EXPECT_EQ(parseNumber("1/4"), std::nullopt);
}

TEST(DataSpec, Ranges) {
  EXPECT_EQ(*parseRange("2:5", 10), std::pair(int64_t(2), int64_t(5)));
  EXPECT_EQ(*parseRange(":5", 10), std::pair(int64_t(0), int64_t(5)));
  EXPECT_EQ(*parseRange("2:", 10), std::pair(int64_t(2), int64_t(10)));
  EXPECT_EQ(parseRange("5", 10).status().message,
            "the range '5' is not of the form first:end");
  EXPECT_EQ(parseRange("5:11", 10).status().message,
            "the range '5:11' is empty or goes beyond the 10 samples there are");
  EXPECT_FALSE(parseRange("5:5", 10).ok());
  EXPECT_FALSE(parseRange("-1:5", 10).ok());
}

} // namespace
