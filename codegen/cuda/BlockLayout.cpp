#include "codegen/cuda/BlockLayout.h"

#include "passes/RegionSchedule.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace sluice;
using namespace sluice::cuda;

namespace {
constexpr int64_t blockThreads = 256;
constexpr int64_t accumulatorBytes = 8; // of any type
/// Shared memory that several units of one block may take together: what every target
/// has without being asked for more.
constexpr int64_t commonShared = 48 << 10;

/// Threads for a unit of so many vectors: two or more vectors each, where there are.
int64_t threadsFor(int64_t vectors) {
  if (vectors <= 2 * BlockLayout::warp)
    return BlockLayout::warp;
  return std::clamp<int64_t>(llvm::bit_floor(static_cast<uint64_t>(vectors) / 2), 64,
                             512);
}

int64_t keptBytes(const RegionDomain &domain) {
  int64_t slots = 0;
  for (const auto &[value, kept] : domain.kept)
    slots = std::max<int64_t>(slots, kept.slot + 1);
  return llvm::alignTo(slots * domain.slotBytes, 16);
}
} // namespace

BlockLayout sluice::cuda::chooseLayout(ArrayRef<Operation *> ops,
                                       const RegionDomain &domain) {
  BlockLayout layout;
  int64_t columns = domain.columns();
  layout.width = domain.kind == WalkKind::Flat || columns % 4 == 0 ? 4 : 1;
  if (domain.kind == WalkKind::Flat) {
    layout.threads = blockThreads;
    // The tail has threads of its own: one for each element.
    int64_t threads = columns / layout.width + columns % layout.width;
    layout.blocks = llvm::divideCeil(threads, blockThreads);
    return layout;
  }
  for (int pass = 0; pass < domain.passes; ++pass)
    layout.reductions += passTargets(ops, domain, pass).reductions.size();
  layout.keptBytes = keptBytes(domain);
  if (domain.kind == WalkKind::Columns) {
    layout.threads = blockThreads;
    layout.columnThreads = RegionDomain::stripColumns / layout.width;
    if (layout.reductions > 0)
      layout.partialBytes = layout.threads * layout.width * accumulatorBytes;
  } else {
    int64_t rows = domain.kind == WalkKind::Channels ? domain.dims[domain.rowDim] : 1;
    layout.threads = threadsFor(rows * columns / layout.width);
    if (layout.warps() > 1)
      layout.partialBytes =
          llvm::alignTo(layout.reductions * layout.warps() * accumulatorBytes, 16);
    if (layout.threads == BlockLayout::warp) {
      layout.unitsPerBlock = blockThreads / BlockLayout::warp;
      while (layout.unitsPerBlock > 1 && layout.sharedBytes() > commonShared)
        layout.unitsPerBlock /= 2;
    }
  }
  layout.blocks = llvm::divideCeil(domain.units, layout.unitsPerBlock);
  return layout;
}
