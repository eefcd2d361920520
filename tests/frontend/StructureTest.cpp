// Shapes, and weights that are shared or should be.
#include "tests/frontend/ImportedModel.h"

namespace sluice::test {

namespace {

TEST(Shapes, SymbolsAreBoundAndArithmeticFolds) { // case I6
  ModelBuilder b;
  b.input("x", {"batch", 3, 4}).output("y");
  b.integers("zero", {0});
  b.integers("rest", {-1});
  b.weight("w", {12, 5});
  b.node("Shape", {"x"}, {"s"});
  b.node("Gather", {"s", "zero"}, {"n"});
  set(b.node("Concat", {"n", "rest"}, {"shape"}), "axis", int64_t(0));
  b.node("Reshape", {"x", "shape"}, {"flat"});
  b.node("MatMul", {"flat", "w"}, {"y"});
  ImportOptions options;
  options.dimensions["batch"] = 7;
  auto m = import(b.save(), options);
  ASSERT_TRUE(m.ok) << m.problems;
  EXPECT_EQ(m.report.outputs[0].shape, (std::vector<int64_t>{7, 5}));
  EXPECT_EQ(m.count<graph::GatherOp>() + m.count<graph::ConcatOp>() +
                m.count<graph::ConstantOp>(),
            0);
}

TEST(Shapes, UnboundDimensionNamesInputAndKey) {
  ModelBuilder b;
  b.input("tokens", {"batch", 3}).output("y");
  b.node("Relu", {"tokens"}, {"y"});
  auto m = import(b.save());
  EXPECT_FALSE(m.ok);
  for (const char *part : {"'tokens'", "'batch'", "shapes:", "--shape"})
    EXPECT_TRUE(contains(m.problems, part));
}

TEST(Shapes, ContradictionsAndUnknownNamesAreReportedTogether) {
  ModelBuilder b;
  b.input("x", {"n", 3}).input("z", {"n"}).output("y");
  b.node("Relu", {"x"}, {"y"});
  ImportOptions options;
  options.shapes = {{"x", {2, 4}}, {"z", {5}}, {"w", {1}}};
  auto m = import(b.save(), options);
  EXPECT_FALSE(m.ok);
  EXPECT_TRUE(contains(m.problems, "size 3 in dimension 1"));
  EXPECT_TRUE(contains(m.problems, "binds dimension 'n' to 5"));
  EXPECT_TRUE(contains(m.problems, "names 'w', which is no input"));
}

TEST(Structure, TieAndUntie) {
  ModelBuilder b;
  b.input("x", {2, 3}).output("y");
  b.weight("first", {3, 4});
  b.weight("second", {4, 3});
  b.node("MatMul", {"x", "first"}, {"h"});
  b.node("MatMul", {"h", "second"}, {"y"});
  ImportOptions options;
  options.tie = {{"first", "second", true}};
  auto tied = import(b.save(), options);
  ASSERT_TRUE(tied.ok) << tied.problems;
  EXPECT_EQ(tied.symbols(), std::set<std::string>{"param/first"});
  options.tie.push_back({"second", "first", true});
  EXPECT_TRUE(contains(import(b.save(), options).problems, "name one weight first"));
  options.tie.pop_back();
  options.tie[0].transpose = false;
  EXPECT_TRUE(contains(import(b.save(), options).problems, "whose shapes differ"));

  ModelBuilder shared;
  shared.input("x", {2, 3}).output("y");
  shared.weight("w", {3, 3});
  shared.node("MatMul", {"x", "w"}, {"h"});
  shared.node("MatMul", {"h", "w"}, {"y"});
  auto once = import(shared.save());
  EXPECT_EQ(once.symbols(), std::set<std::string>{"param/w"});
  ImportOptions apart;
  apart.untie = {"w"};
  auto both = import(shared.save(), apart);
  ASSERT_TRUE(both.ok) << both.problems;
  EXPECT_EQ(both.symbols(), (std::set<std::string>{"param/w", "param/w@2"}));
}

TEST(Structure, UntiedWeightsTakeTheNamesThatIdentitiesKept) {
  ModelBuilder merged;
  merged.input("x", {2, 3}).output("y");
  merged.weight("norm1", {3});
  merged.node("Identity", {"norm1"}, {"norm2"});
  merged.node("Mul", {"x", "norm2"}, {"h"});
  merged.node("Mul", {"h", "norm1"}, {"y"});
  ImportOptions options;
  options.untie = {"norm1"};
  auto m = import(merged.save(), options);
  ASSERT_TRUE(m.ok) << m.problems;
  EXPECT_EQ(m.symbols(), (std::set<std::string>{"param/norm1", "param/norm2"}));
}

TEST(Structure, EqualAndSharedWeightsAreNoted) {
  std::vector<float> values, flipped(16 * 8);
  for (int i = 0; i < 8 * 16; ++i) {
    values.push_back(float(i * 37 % 101));
    flipped[i % 16 * 8 + i / 16] = values.back();
  }
  ModelBuilder b;
  b.input("x", {2, 8}).output("y");
  b.weight("a", {8, 16}, values);
  b.weight("b", {16, 8}, flipped);
  b.weight("c", {8, 16}, values);
  b.node("MatMul", {"x", "a"}, {"h"});
  b.node("MatMul", {"h", "b"}, {"k"});
  b.node("MatMul", {"k", "c"}, {"l"});
  b.node("MatMul", {"k", "a"}, {"m"});
  b.node("Add", {"l", "m"}, {"y"});
  auto m = import(b.save());
  ASSERT_TRUE(m.ok) << m.problems;
  std::string notes;
  for (const std::string &note : m.report.notes)
    notes += note + "\n";
  EXPECT_TRUE(contains(notes, "'a' is read by 2 nodes"));
  EXPECT_TRUE(contains(notes, "'b' holds the same values as 'a' transposed"));
  EXPECT_TRUE(contains(notes, "'c' holds the same values as 'a' and"));
}

TEST(Structure, BatchOfOneIsReplacedWhereProvable) {
  ModelBuilder b;
  b.input("x", {1, 3, 4}).output("y");
  auto *dim =
      b.model.mutable_graph()->mutable_output(0)->mutable_type()->mutable_tensor_type();
  dim->mutable_shape()->add_dim()->set_dim_value(1);
  b.integers("shape", {1, 12});
  b.node("Reshape", {"x", "shape"}, {"y"});
  ImportOptions options;
  options.shapes["x"] = {8, 3, 4};
  auto m = import(b.save(), options);
  ASSERT_TRUE(m.ok) << m.problems;
  EXPECT_EQ(m.report.outputs[0].shape, (std::vector<int64_t>{8, 12}));

  ModelBuilder mixes = b;
  mixes.model.mutable_graph()->mutable_initializer(0)->set_int64_data(0, 12);
  mixes.model.mutable_graph()->mutable_initializer(0)->set_int64_data(1, -1);
  auto bad = import(mixes.save(), options);
  EXPECT_FALSE(bad.ok);
  EXPECT_TRUE(contains(bad.problems, "batch size of 1 inside"));
}

} // namespace
} // namespace sluice::test
