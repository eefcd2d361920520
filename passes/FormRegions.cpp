// FormRegions: elementwise work, reductions and random numbers become `graph.region`,
// each one kernel. Values inside a region never touch memory.
//
// From the last operation to the first, each joins the region that is its only user, so a
// value that one region reads is computed there. A value with more users is computed with
// the first of them that it may join, and becomes an output. What is cheap to repeat
// (constants, broadcasts, positions, views) is cloned into every region that reads it.
// Whether a set of operations can be one kernel is decided by analyseRegion alone.

#include "passes/CodedProducts.h"
#include "passes/Passes.h"
#include "passes/RegionClusters.h"

using namespace mlir;

namespace sluice {
#define GEN_PASS_DECL_FORMREGIONS
#define GEN_PASS_DEF_FORMREGIONS
#include "passes/Passes.h.inc"
namespace {

struct FormRegions : impl::FormRegionsBase<FormRegions> {
  explicit FormRegions(bool fuse) { this->fuse = fuse; }

  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      formCodedProducts(function.getBody().front());
      RegionClusters clusters(function.getBody().front());
      clusters.grow(fuse);
      clusters.outline();
    }
  }
};

} // namespace

std::unique_ptr<Pass> createFormRegions(bool fuse) {
  return std::make_unique<FormRegions>(fuse);
}
} // namespace sluice
