// Runs of several ranks at once: sums by the tree of docs/numerics.md.

#include "GraphFixture.h"

#include <gtest/gtest.h>

namespace sluice::graph {
namespace {

mlir::OwningOpRef<mlir::ModuleOp> parse(const std::string &text) {
  return mlir::parseSourceString<mlir::ModuleOp>(text, &context());
}

const std::string sumText = R"(
graph.parameter @w : tensor<2xf32> "parameter"
func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> {
  %s = graph.all_reduce %x {name = "x"} : (tensor<2xf32>) -> tensor<2xf32>
  %w = graph.read @w : tensor<2xf32>
  %y = graph.add %s, %w : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  graph.write @w, %y : tensor<2xf32>
  %t = graph.all_reduce %y {name = "y"} : (tensor<2xf32>) -> tensor<2xf32>
  return %t : tensor<2xf32>
}
func.func @g(%x: tensor<2xf32>) -> tensor<2xf32> {
  %s = graph.all_reduce %x {name = "x"} : (tensor<2xf32>) -> tensor<2xf32>
  return %s : tensor<2xf32>
}
)";

struct Group {
  mlir::OwningOpRef<mlir::ModuleOp> module = parse(sumText);
  std::vector<std::vector<HostTensor>> inputs;
  std::vector<StateMap> states;
  std::vector<RankRun> ranks;

  explicit Group(const std::vector<std::vector<double>> &values) {
    for (const std::vector<double> &each : values) {
      inputs.push_back({real({2}, each)});
      states.push_back(*initialState(*module));
    }
    for (size_t r = 0; r < values.size(); ++r)
      ranks.push_back({function("f"), inputs[r], &states[r]});
  }
  mlir::func::FuncOp function(llvm::StringRef name) {
    return module->lookupSymbol<mlir::func::FuncOp>(name);
  }
};

TEST(Collective, RanksAddInOneTree) {
  // Such that another order of addition gives other bits.
  std::vector<std::vector<double>> values = {
      {1e8, 1}, {1, 2}, {-1e8, 3}, {1, 4}, {0.25, 5}};
  for (size_t count = 1; count <= values.size(); ++count) {
    Group group({values.begin(), values.begin() + count});
    ASSERT_TRUE(succeeded(interpretRanks(group.ranks, Precision::Single)));
    std::vector<float> sums;
    for (size_t r = 0; r < count; ++r)
      sums.push_back(static_cast<float>(values[r][0]));
    for (size_t step = 1; step < count; step *= 2)
      for (size_t r = 0; r + step < count; r += 2 * step)
        sums[r] = sums[r] + sums[r + step];
    for (size_t r = 0; r < count; ++r)
      EXPECT_EQ(group.states[r]["w"].reals[0], sums[0]) << count << " ranks, rank " << r;
    double second = count * (count + 1) / 2.0;
    EXPECT_EQ(group.ranks[0].results[0].reals[1], static_cast<double>(count) * second);
  }
}

TEST(Collective, AloneARankIsItsOwnSum) {
  Group group({{3, 4}});
  auto results =
      interpret(group.function("f"), group.inputs[0], group.states[0], Precision::Double);
  ASSERT_TRUE(succeeded(results));
  EXPECT_EQ((*results)[0].reals, (std::vector<double>{3, 4}));
}

TEST(Collective, RanksThatComeToDifferentOnesAreAnError) {
  Group group({{1, 2}, {3, 4}});
  group.ranks[1].function = group.function("g");
  std::string text;
  mlir::ScopedDiagnosticHandler handler(&context(), [&](mlir::Diagnostic &diagnostic) {
    text += diagnostic.str();
    return mlir::success();
  });
  EXPECT_TRUE(failed(interpretRanks(group.ranks, Precision::Single)));
  EXPECT_NE(text.find("is not what rank 0 has come to"), std::string::npos) << text;
}

const std::string rowsText = R"(
graph.parameter @own : tensor<3x2xf32> "moment"
graph.parameter @all : tensor<5x2xf32> "parameter"
func.func @f(%x: tensor<5x2xf32>) -> tensor<5x2xf32> {
  %s = graph.reduce_scatter %x {name = "x", ranks = 2 : i64} : (tensor<5x2xf32>) -> tensor<3x2xf32>
  graph.write @own, %s : tensor<3x2xf32>
  %t = graph.add %s, %s : (tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<3x2xf32>
  %y = graph.all_gather %t {name = "y", ranks = 2 : i64, rows = 5 : i64} : (tensor<3x2xf32>) -> tensor<5x2xf32>
  graph.write @all, %y : tensor<5x2xf32>
  return %y : tensor<5x2xf32>
}
)";

TEST(Collective, RanksHaveRowsInOrder) {
  auto module = parse(rowsText);
  ASSERT_TRUE(module);
  std::vector<HostTensor> inputs[2] = {
      {real({5, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10})},
      {real({5, 2}, {10, 20, 30, 40, 50, 60, 70, 80, 90, 100})}};
  StateMap states[2] = {*initialState(*module), *initialState(*module)};
  auto function = module->lookupSymbol<mlir::func::FuncOp>("f");
  std::vector<RankRun> ranks = {{function, inputs[0], &states[0]},
                                {function, inputs[1], &states[1]}};
  ASSERT_TRUE(succeeded(interpretRanks(ranks, Precision::Single)));
  // Rank 1 has a row less, and room for it.
  EXPECT_EQ(states[0]["own"].reals, (std::vector<double>{11, 22, 33, 44, 55, 66}));
  EXPECT_EQ(states[1]["own"].reals, (std::vector<double>{77, 88, 99, 110, 0, 0}));
  std::vector<double> twice = {22, 44, 66, 88, 110, 132, 154, 176, 198, 220};
  for (int rank : {0, 1}) {
    EXPECT_EQ(states[rank]["all"].reals, twice);
    EXPECT_EQ(ranks[rank].results[0].reals, twice);
  }
}

// Case S4: of the gradients 3 and 4 each rank has one, 2 is with both and counts once.
TEST(Collective, NormsCountWhatIsSharedOutOnce) {
  auto module = parse(R"(
func.func @f(%x: tensor<2x1xf32>, %w: tensor<f32>) -> tensor<f32> {
  %s = graph.reduce_scatter %x {name = "x", ranks = 2 : i64} : (tensor<2x1xf32>) -> tensor<1x1xf32>
  %r = graph.all_reduce %w {name = "w"} : (tensor<f32>) -> tensor<f32>
  %0 = graph.mul %s, %s : (tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<1x1xf32>
  %1 = graph.all_gather %0 {name = "norm", ranks = 2 : i64, rows = 2 : i64} : (tensor<1x1xf32>) -> tensor<2x1xf32>
  %2 = graph.reduce %1 {kind = "sum", axes = array<i64: 0, 1>} : (tensor<2x1xf32>) -> tensor<f32>
  %3 = graph.mul %r, %r : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %4 = graph.add %2, %3 : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %5 = graph.sqrt %4 : (tensor<f32>) -> tensor<f32>
  return %5 : tensor<f32>
}
)");
  ASSERT_TRUE(module);
  auto function = module->lookupSymbol<mlir::func::FuncOp>("f");
  std::vector<HostTensor> inputs[2] = {{real({2, 1}, {1, 4}), real({}, {2})},
                                       {real({2, 1}, {2, 0}), real({}, {0})}};
  StateMap states[2];
  std::vector<RankRun> ranks = {{function, inputs[0], &states[0]},
                                {function, inputs[1], &states[1]}};
  ASSERT_TRUE(succeeded(interpretRanks(ranks, Precision::Double)));
  for (const RankRun &rank : ranks)
    EXPECT_NEAR(rank.results[0].reals[0], 5.3851648, 1e-7);
}

} // namespace
} // namespace sluice::graph
