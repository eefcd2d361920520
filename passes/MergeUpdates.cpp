// MergeUpdates: launches of the same elastic kernel (the update of a parameter) become
// one launch over many tensors, where the step needs no more bytes for it. Between the
// order, which says when each gradient is complete, and the places of buffers.
//
// An update runs as soon as its gradient is there, so that the bytes of the gradient are
// free again. Where it waits for others its gradient lives longer: that must fit below
// the peak, and a gradient that would leave the cache in between is not worth it. Groups
// that overlap wait for none of the others.

#include "passes/ElasticRegion.h"
#include "passes/LiveRanges.h"
#include "passes/OverlapUpdates.h"
#include "passes/Passes.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_MERGEUPDATES
#include "passes/Passes.h.inc"
namespace {

constexpr int64_t lineBytes = 64;
/// Of operands that wait while other work runs: reading them from memory instead of the
/// cache costs as much as a launch.
constexpr int64_t smallBytes = 64 << 10;
/// Stages of a launch that the runtime accepts.
constexpr size_t maxParts = 1024;

class UpdateMerger {
public:
  UpdateMerger(plan::ProgramOp program, SymbolTable &symbols,
               const OverlappedGroups &overlapped)
      : symbols(symbols), overlapped(overlapped), launches(launchesOf(program)),
        ranges(liveRanges(program)), redZone(plan::redZoneOf(program)),
        live(launches.size() + 2) {
    for (plan::LaunchOp launch : launches)
      accesses.push_back(accessesOf(launch));
    for (auto buffer : program.getBody().front().getOps<plan::BufferOp>())
      if (LiveRange range = ranges.lookup(buffer); !range.empty())
        addLive(range.first, range.last, bytesOf(buffer));
    peak = *llvm::max_element(live);
  }

  /// From the last launch: behind it most is free.
  void run() {
    for (size_t last = launches.size(); last-- > 1;)
      if (isUpdate(last))
        gather(last);
  }

private:
  bool isUpdate(size_t index) {
    if (!launches[index])
      return false;
    Block &body = launches[index].getBody().front();
    if (!llvm::hasSingleElement(body))
      return false;
    auto kernel = symbols.lookup<plan::KernelOp>(stageOf(index).getKernel());
    return kernel.isGenerated() &&
           isElastic(cast<graph::RegionOp>(kernel.getBody().front().front()));
  }

  /// A single stage of the same kernel.
  bool hasKernelOf(size_t index, size_t other) {
    return llvm::hasSingleElement(launches[index].getBody().front()) &&
           stageOf(index).getKernelAttr() == stageOf(other).getKernelAttr();
  }

  plan::StageOp stageOf(size_t index) {
    return cast<plan::StageOp>(launches[index].getBody().front().front());
  }

  /// The group of what it updates, if that overlaps with others.
  int32_t groupOf(size_t index) const {
    int32_t group = -1;
    for (const LaunchAccess &access : accesses[index])
      if (auto state = dyn_cast<plan::StateBufferOp>(access.range.root))
        group = std::max(group, overlapped.of(state.getSymbol()));
    return group;
  }

  /// Moves earlier launches of the same kernel to `last`.
  void gather(size_t last) {
    SmallVector<size_t> members{last}; // from the last to the first
    bool nothingBetween = true;        // but members
    for (size_t i = last; i-- > 0 && members.size() < maxParts;) {
      if (!launches[i])
        continue;
      bool joins = hasKernelOf(i, last) && groupOf(i) == groupOf(last) &&
                   fits(i, last, nothingBetween) && isIndependent(i, last);
      nothingBetween &= joins;
      if (!joins)
        continue;
      for (plan::BufferOp buffer : waiting(i, last)) {
        addLive(ranges[buffer].last + 1, last, bytesOf(buffer));
        ranges[buffer].last = last;
      }
      members.push_back(i);
    }
    if (members.size() > 1)
      join(llvm::to_vector(llvm::reverse(members)));
  }

  /// Nothing up to and with `last` touches what the launch writes, or writes what it
  /// reads.
  bool isIndependent(size_t index, size_t last) {
    for (size_t other = index + 1; other <= last; ++other)
      if (launches[other])
        for (const LaunchAccess &a : accesses[index])
          for (const LaunchAccess &b : accesses[other])
            if (conflict(a, b))
              return false;
    return true;
  }

  /// Buffers of the step that would live on until `last`.
  llvm::SmallSetVector<plan::BufferOp, 4> waiting(size_t index, size_t last) {
    llvm::SmallSetVector<plan::BufferOp, 4> buffers;
    for (const LaunchAccess &access : accesses[index]) {
      auto buffer = dyn_cast<plan::BufferOp>(access.range.root);
      if (buffer && ranges[buffer].last < int64_t(last))
        buffers.insert(buffer);
    }
    return buffers;
  }

  bool fits(size_t index, size_t last, bool nothingBetween) {
    llvm::SmallDenseMap<int64_t, int64_t> added; // from an instant on
    int64_t total = 0;
    for (plan::BufferOp buffer : waiting(index, last)) {
      added[ranges[buffer].last + 1] += bytesOf(buffer);
      total += bytesOf(buffer);
    }
    if (!nothingBetween && total > smallBytes)
      return false;
    int64_t more = 0;
    for (int64_t instant = index; instant <= int64_t(last); ++instant) {
      more += added.lookup(instant);
      if (live[instant + 1] + more > peak)
        return false;
    }
    return true;
  }

  /// One launch in the place of the last; a tensor is a part of its units.
  void join(ArrayRef<size_t> members) {
    plan::LaunchOp target = launches[members.back()];
    Block &body = target.getBody().front();
    Builder builder(target.getContext());
    llvm::SetVector<StringRef> nodes;
    int64_t units = 0, elements = 0;
    double flops = 0, bytes = 0, us = 0;
    for (size_t member : members) {
      plan::LaunchOp launch = launches[member];
      plan::StageOp stage = stageOf(member);
      SmallVector<StringRef> names;
      launch.getNode().split(names, '+');
      nodes.insert(names.begin(), names.end());
      flops += launch.getFlops().convertToDouble();
      bytes += launch.getBytes().convertToDouble();
      us += launch.getPredictedUs().convertToDouble();
      elements += stage.getParams()[0];
      int64_t own = launch.getUnits();
      stage.setPart(ArrayRef<int64_t>{units, own});
      units += own;
      stage->moveBefore(&body, body.end());
    }
    std::string node = llvm::join(nodes, "+");
    target.setNode(node);
    target.setUnits(units);
    target.setChunk(elasticChunk(elements, units));
    target.setFlops(APFloat(flops));
    target.setBytes(APFloat(bytes));
    // What the barriers between them took is not subtracted: plans with other room for
    // merging stay comparable, and no bound is missed.
    target.setPredictedUs(APFloat(us));
    for (size_t member : members.drop_back()) {
      launches[member].erase();
      launches[member] = nullptr;
      accesses[members.back()].append(accesses[member]);
    }
  }

  int64_t bytesOf(plan::BufferOp buffer) const {
    return llvm::alignTo(buffer.getSize() + 2 * redZone, lineBytes);
  }
  void addLive(int64_t first, int64_t last, int64_t bytes) {
    for (int64_t instant = first; instant <= last; ++instant)
      live[instant + 1] += bytes;
  }

  SymbolTable &symbols;
  const OverlappedGroups &overlapped;
  SmallVector<plan::LaunchOp> launches; // null: merged into a later one
  std::vector<SmallVector<LaunchAccess>> accesses;
  LiveRanges ranges;
  int64_t redZone;
  std::vector<int64_t> live; // bytes at each instant, from -1 on
  int64_t peak = 0;
};

struct MergeUpdates : impl::MergeUpdatesBase<MergeUpdates> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    OverlappedGroups overlapped(getOperation());
    for (auto program : getOperation().getOps<plan::ProgramOp>()) {
      // Where copies run beside the launches, what an update needs comes just before it.
      if (program.copyQueue())
        continue;
      mergeInPlace(program); // it decides what is live
      UpdateMerger(program, symbols, overlapped).run();
    }
  }
};

} // namespace

std::unique_ptr<Pass> createMergeUpdates() { return std::make_unique<MergeUpdates>(); }
} // namespace sluice
