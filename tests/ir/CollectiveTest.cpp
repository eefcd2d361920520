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

} // namespace
} // namespace sluice::graph
