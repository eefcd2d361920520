// Shapes, and weights that are shared or should be.
#include "tests/frontend/ImportedModel.h"

#include <functional>

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

TEST(Shapes, PositionsOfAConstantThatIsRepeatedAreKnown) {
  ModelBuilder b;
  b.input("x", {2, 2000}).output("y");
  auto &mask = b.node("Constant", {}, {"mask"});
  auto &value = *mask.add_attribute();
  value.set_name("value");
  value.set_type(onnx::AttributeProto::TENSOR);
  value.mutable_t()->set_data_type(onnx::TensorProto::BOOL);
  value.mutable_t()->add_dims(2);
  value.mutable_t()->add_dims(1);
  for (int bit : {0, 1})
    value.mutable_t()->add_int32_data(bit);
  b.node("Shape", {"x"}, {"shape"});
  b.node("Expand", {"mask", "shape"}, {"repeated"});
  b.node("NonZero", {"repeated"}, {"where"});
  set(b.node("Transpose", {"where"}, {"index"}), "perm", std::vector<int64_t>{1, 0});
  b.node("GatherND", {"x", "index"}, {"y"});
  auto m = import(b.save());
  ASSERT_TRUE(m.ok) << m.problems;
  EXPECT_EQ(m.report.outputs[0].shape, (std::vector<int64_t>{2000}));
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

/// A model of batch 1 asked for 4 samples, with `build` between x [1, 6] and y.
Imported rebatched(const std::function<void(ModelBuilder &)> &build) {
  ModelBuilder b(17);
  b.input("x", {1, 6}).output("y");
  build(b);
  ImportOptions options;
  options.shapes["x"] = {4, 6};
  return import(b.save(), options);
}

TEST(Structure, BatchOfOneStaysWhereSamplesWouldMix) {
  auto mean = rebatched([](ModelBuilder &b) {
    auto &node = b.node("ReduceMean", {"x"}, {"m"});
    node.set_name("centre");
    set(node, "axes", std::vector<int64_t>{0});
    b.node("Sub", {"x", "m"}, {"y"});
  });
  EXPECT_FALSE(mean.ok);
  for (const char *part : {"'x' has batch 1", "node 'centre' (reduce) mixes samples",
                           "accumulate: 4", "dynamic batch"})
    EXPECT_TRUE(contains(mean.problems, part));
  auto square = rebatched([](ModelBuilder &b) {
    auto &node = b.node("Transpose", {"x"}, {"t"});
    set(node, "perm", std::vector<int64_t>{1, 0});
    b.node("MatMul", {"x", "t"}, {"y"}).set_name("gram");
  });
  EXPECT_TRUE(contains(square.problems, "node 'gram' (contract) mixes samples"));
  auto softmax = rebatched([](ModelBuilder &b) {
    auto &node = b.node("Softmax", {"x"}, {"y"});
    node.set_name("over batch");
    set(node, "axis", int64_t(0));
  });
  EXPECT_TRUE(contains(softmax.problems, "node 'over batch' (softmax) mixes samples"));
}

TEST(Structure, BatchOfOneIsReplacedThroughHeadsAndLosses) {
  auto heads = rebatched([](ModelBuilder &b) {
    b.integers("split", {1, 3, 2});
    b.integers("merged", {1, 6});
    b.weight("w", {6, 6});
    b.node("MatMul", {"x", "w"}, {"h"});
    b.node("Reshape", {"h", "split"}, {"s"});
    auto &turn = b.node("Transpose", {"s"}, {"t"});
    set(turn, "perm", std::vector<int64_t>{0, 2, 1});
    b.node("MatMul", {"s", "t"}, {"p"});
    b.node("MatMul", {"p", "s"}, {"o"});
    b.node("Reshape", {"o", "merged"}, {"y"});
  });
  EXPECT_TRUE(heads.ok) << heads.problems;
  EXPECT_EQ(heads.report.outputs[0].shape, (std::vector<int64_t>{4, 6}));
  auto loss = rebatched([](ModelBuilder &b) {
    b.node("Mul", {"x", "x"}, {"s"});
    set(b.node("ReduceMean", {"s"}, {"y"}), "keepdims", int64_t(0));
  });
  EXPECT_TRUE(loss.ok) << loss.problems;
}

std::string notesOf(const Imported &m) {
  std::string notes;
  for (const std::string &note : m.report.notes)
    notes += note + "\n";
  return notes;
}

/// x [2, 6] through a matrix that a Constant node holds.
ModelBuilder hiddenWeight() {
  ModelBuilder b;
  b.input("x", {2, 6}).output("y");
  auto &tensor = b.weight("unused", {6, 3});
  auto &node = b.node("Constant", {}, {"dense.weight"});
  auto &value = *node.add_attribute();
  value.set_name("value");
  value.set_type(onnx::AttributeProto::TENSOR);
  *value.mutable_t() = tensor;
  b.node("MatMul", {"x", "dense.weight"}, {"y"});
  b.model.mutable_graph()->clear_initializer();
  return b;
}

TEST(Structure, WeightsInConstantNodesAreNotedAndPromoted) {
  std::string path = hiddenWeight().save();
  auto as = import(path);
  ASSERT_TRUE(as.ok) << as.problems;
  EXPECT_TRUE(as.symbols().empty());
  EXPECT_TRUE(contains(notesOf(as), "`promote: [dense.weight]`"));
  ImportOptions options;
  options.promote = {"dense.*"};
  auto promoted = import(path, options);
  ASSERT_TRUE(promoted.ok) << promoted.problems;
  EXPECT_EQ(promoted.symbols(), std::set<std::string>{"param/dense.weight"});
  EXPECT_TRUE(contains(notesOf(promoted), "'dense.weight' (6x3), a Constant node"));
  options.promote = {"dense.*", "nothing*"};
  EXPECT_TRUE(contains(import(path, options).problems, "`promote` names 'nothing*'"));
}

TEST(Structure, NamesMadeUpByTheExporterAreNoted) {
  ModelBuilder b;
  b.input("x", {2, 6}).output("y");
  b.weight("onnx::MatMul_17", {6, 3});
  b.weight("bias", {3});
  b.node("MatMul", {"x", "onnx::MatMul_17"}, {"h"});
  b.node("Add", {"h", "bias"}, {"y"});
  EXPECT_TRUE(contains(notesOf(import(b.save())),
                       "1 of 2 weights carry names that the exporter made up "
                       "('onnx::MatMul_17')"));
}

TEST(Structure, FoldedBatchNormIsNoted) {
  for (bool folded : {true, false}) {
    ModelBuilder b;
    b.input("x", {2, 3, 5, 5}).output("y");
    std::string prefix = folded ? "onnx::Conv_1" : "conv.";
    b.weight(prefix + "1", {4, 3, 3, 3});
    b.weight(prefix + "2", {4});
    b.node("Conv", {"x", prefix + "1", prefix + "2"}, {"y"}).set_name("stem");
    std::string notes = notesOf(import(b.save()));
    bool told = notes.find("convolutions ('stem', ...) have biases") != std::string::npos;
    EXPECT_EQ(told, folded) << notes;
  }
}

TEST(Structure, TokensRepeatedForTheBatchAreNotedAndTied) {
  ModelBuilder b;
  b.input("x", {3, 2, 8}).output("y");
  std::vector<float> token, zeros(24);
  for (int i = 0; i < 24; ++i)
    token.push_back(float(i % 8));
  b.weight("token", {3, 1, 8}, token);
  b.weight("state", {3, 1, 8}, zeros);
  set(b.node("Concat", {"token", "x", "state"}, {"y"}), "axis", int64_t(1));
  std::string path = b.save();
  auto apart = import(path);
  ASSERT_TRUE(apart.ok) << apart.problems;
  EXPECT_TRUE(contains(notesOf(apart), "'token' holds 3 equal copies"));
  EXPECT_TRUE(contains(notesOf(apart), "`tie: [[token, \"token@copies\"]]`"));
  EXPECT_EQ(notesOf(apart).find("'state' holds"), std::string::npos);
  ImportOptions options;
  options.tie = {{"token", "token", false, true}};
  auto tied = import(path, options);
  ASSERT_TRUE(tied.ok) << tied.problems;
  for (auto parameter : tied.parameters())
    if (parameter.getSymName() == "param/token")
      EXPECT_EQ(parameter.getTensorType().getShape(), llvm::ArrayRef<int64_t>({1, 1, 8}));
  options.tie = {{"other", "other", false, true}};
  EXPECT_TRUE(
      contains(import(path, options).problems, "'other', which is no initializer"));
}

/// PyTorch's PRESERVE export of a fresh BatchNorm: its variance is its weight's twin.
TEST(Structure, StatisticsMergedWithWeightsAreKeptApart) { // case I4
  ModelBuilder b(14);
  b.input("x", {2, 3, 4}).output("y");
  b.weight("bn.weight", {3}, {1, 1, 1});
  b.weight("bn.bias", {3}, {0, 0, 0});
  b.node("Identity", {"bn.weight"}, {"bn.running_var"});
  b.node("Identity", {"bn.bias"}, {"bn.running_mean"});
  b.node("BatchNormalization",
         {"x", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"}, {"y"});
  auto m = import(b.save());
  ASSERT_TRUE(m.ok) << m.problems;
  std::set<std::string> buffers;
  for (auto parameter : m.parameters())
    if (!parameter.getTrainable())
      buffers.insert(parameter.getSymName().str());
  EXPECT_EQ(buffers,
            (std::set<std::string>{"param/bn.running_mean", "param/bn.running_var"}));
  EXPECT_EQ(m.symbols().size(), 4u);
  EXPECT_TRUE(contains(notesOf(m), "'bn.running_var' was merged with the weight"));
  EXPECT_EQ(notesOf(m).find("trained as one"), std::string::npos);
  EXPECT_TRUE(contains(notesOf(m), "nodes in evaluation form use the running"));
}

TEST(Structure, MergedNormsAreNoted) {
  ModelBuilder b(17);
  b.input("x", {2, 8}).output("y");
  b.weight("n1.weight", {8});
  b.node("LayerNormalization", {"x", "n1.weight"}, {"h"});
  b.node("LayerNormalization", {"h", "n1.weight"}, {"y"});
  EXPECT_TRUE(contains(notesOf(import(b.save())),
                       "'n1.weight' is read by 2 nodes and trained as one; `untie: "
                       "[n1.weight]`"));
  ModelBuilder named(17);
  named.input("x", {2, 8}).output("y");
  named.weight("n1.weight", {8});
  named.node("Identity", {"n1.weight"}, {"n2.weight"});
  named.node("LayerNormalization", {"x", "n1.weight"}, {"h"});
  named.node("LayerNormalization", {"h", "n2.weight"}, {"y"});
  EXPECT_TRUE(contains(notesOf(import(named.save())), "as 'n2.weight': equal weights"));
  ModelBuilder plain(13); // norms in pieces, and a shape that is read
  plain.input("x", {2, 8}).output("y").output("z");
  plain.weight("n1.weight", {8});
  plain.weight("once", {8, 3});
  plain.node("Identity", {"n1.weight"}, {"n2.weight"});
  plain.node("Mul", {"x", "n1.weight"}, {"h"});
  plain.node("Mul", {"h", "n2.weight"}, {"k"});
  plain.node("MatMul", {"k", "once"}, {"y"});
  plain.node("Shape", {"once"}, {"z"});
  std::string notes = notesOf(import(plain.save()));
  EXPECT_TRUE(contains(notes, "'n1.weight' is read by 2 nodes (as 'n2.weight'"));
  EXPECT_EQ(notes.find("'once' is read"), std::string::npos) << notes;
}

} // namespace
} // namespace sluice::test
