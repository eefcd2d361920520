// FuseAttention: attention as exporters write it becomes one operation, whose scores are
// never stored. In the model, before the backward pass is built: the operation has a
// gradient of its own. Which are taken follows from shapes alone, so that entries,
// threads and devices agree on the bits.

#include "kernels/AttentionParams.h"
#include "passes/AttentionPattern.h"
#include "passes/EntryFunctions.h"
#include "passes/Passes.h"
#include "passes/StateSymbols.h"

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_FUSEATTENTION
#include "passes/Passes.h.inc"
namespace {

/// The kernels compute blocks of 64 queries, 16 of them at least: a few would cost as
/// many. Operands and gradients of the one operation are in memory together, so scores
/// that are fewer than the queries are better stored; and beside the scores of all heads
/// a worker's scratch is to be small.
bool isWorthIt(const graph::AttentionSizes &s) {
  constexpr int64_t fewQueries = 16, mostDepth = 256;
  AttentionGradParams params;
  params.of.keys = s.keys, params.of.depth = s.depth;
  params.of.valueDepth = s.valueDepth;
  double scores =
      4.0 * double(s.batch) * double(s.heads) * double(s.queries) * double(s.keys);
  return s.queries >= fewQueries && 2 * s.keys >= s.depth + s.valueDepth &&
         s.depth <= mostDepth && s.valueDepth <= mostDepth &&
         scores >= double(attentionGradWorkspace(params));
}

struct FuseAttention : impl::FuseAttentionBase<FuseAttention> {
  void runOnOperation() override {
    auto forward = getOperation().lookupSymbol<func::FuncOp>("forward");
    if (!forward)
      return;
    SmallVector<graph::ContractOp> products;
    forward.walk([&](graph::ContractOp op) { products.push_back(op); });
    int64_t fused = 0, small = 0;
    auto known = std::make_shared<KnownMasks>();
    for (graph::ContractOp product : products) {
      std::optional<AttentionMatch> match = matchAttention(product, known);
      if (!match)
        continue;
      if (!isWorthIt(match->sizes())) {
        ++small;
        continue;
      }
      buildAttention(*match);
      ++fused;
    }
    if (fused > 0)
      eraseDead(forward);
    say(fused, small);
  }

private:
  void say(int64_t fused, int64_t small) {
    if (fused + small == 0)
      return;
    std::string line = "attention: " + std::to_string(fused) + " of " +
                       std::to_string(fused + small) +
                       " computed without storing its scores";
    if (small > 0)
      line += "; the others have few queries or keys";
    report(getOperation(), line);
  }
};

} // namespace

std::unique_ptr<Pass> createFuseAttention() { return std::make_unique<FuseAttention>(); }
} // namespace sluice
