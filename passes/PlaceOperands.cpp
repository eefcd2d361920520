// Tensors that are copied as a whole into a part of another one (a concatenation, at
// batch 1 or along the first dimension) are written there at once, where the program's
// peak stays as it is: the larger tensor then lives from its first part on.
//
// Behind the merging of results with operands, so that a part is all that happened in its
// bytes. Entries that train are left alone: their plans are proven against what
// recompute planning was told about values and times.

#include "passes/Collectives.h"
#include "passes/LiveRanges.h"

#include "kernels/Params.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace sluice {
namespace {

constexpr int64_t lineBytes = 64;

/// A copy of all of `from` to the bytes of `to` from `offset` on.
struct PartCopy {
  size_t instant = 0;
  plan::BufferOp from, to;
  int64_t offset = 0;
};

bool isRun(const CopyParams &params) {
  int64_t run = 1;
  for (int dim = kMaxRank; dim-- > 0;) {
    if (params.dims[dim] == 1)
      continue;
    if (params.inStride[dim] != run || params.outStride[dim] != run)
      return false;
    run *= params.dims[dim];
  }
  return true;
}

class OperandPlacer {
public:
  explicit OperandPlacer(plan::ProgramOp program)
      : program(program), launches(launchesOf(program)), ranges(liveRanges(program)),
        redZone(plan::redZoneOf(program)), live(launches.size() + 2) {
    for (plan::LaunchOp launch : launches)
      accesses.push_back(accessesOf(launch));
    for (auto &[buffer, range] : ranges)
      if (auto own = dyn_cast<plan::BufferOp>(buffer); own && !range.empty())
        addLive(range, bytesOf(own));
    peak = *llvm::max_element(live);
  }

  /// The last part first: it makes the whole live least longer.
  void run() {
    llvm::MapVector<Operation *, SmallVector<PartCopy>> parts; // by the whole
    for (size_t i = launches.size(); i-- > 0;)
      if (std::optional<PartCopy> copy = partCopy(i)) {
        parts[copy->to].push_back(*copy);
        for (LaunchAccess &access : accesses[i]) // its launch names the whole
          if (access.range.root == copy->to)
            access.range = {copy->to, copy->offset, int64_t(copy->from.getSize())};
      }
    for (auto &[to, copies] : parts) {
      llvm::sort(copies, [&](const PartCopy &a, const PartCopy &b) {
        return std::tuple(ranges.lookup(b.from).first, a.instant) <
               std::tuple(ranges.lookup(a.from).first, b.instant);
      });
      for (PartCopy copy : copies)
        if (follow(copy) && isFree(copy) && fits(copy))
          place(copy);
    }
    double us = 0;
    for (plan::LaunchOp launch : launches)
      us += launch ? launch.getPredictedUs().convertToDouble() : 0;
    program.setPredictedUs(APFloat(us));
  }

private:
  std::optional<PartCopy> partCopy(size_t instant) {
    Block &body = launches[instant].getBody().front();
    auto stage = cast<plan::StageOp>(body.front());
    if (!llvm::hasSingleElement(body) || stage.getKernel() != "copy_strided")
      return std::nullopt;
    auto params = unpackParams<CopyParams>(stage.getParams().data());
    plan::BufferRange in = plan::rangeOf(stage.getIns()[0]);
    plan::BufferRange out = plan::rangeOf(stage.getOuts()[0]);
    auto from = dyn_cast<plan::BufferOp>(in.root);
    auto to = dyn_cast<plan::BufferOp>(out.root);
    if (!from || !to || from == to || isInput(from) || isOutput(from) || isInput(to) ||
        from.getCategory() != "activations")
      return std::nullopt;
    int64_t bytes = params.elementBytes;
    for (int64_t size : params.dims)
      bytes *= size;
    int64_t offset = out.offset + params.outOffset * params.elementBytes;
    bool whole = in.offset == 0 && params.inOffset == 0 &&
                 bytes == static_cast<int64_t>(from.getSize());
    if (!whole || bytes == 0 || !isRun(params) || offset % lineBytes != 0)
      return std::nullopt;
    return PartCopy{instant, from, to, offset};
  }

  /// The whole may have become a part of another one; false if the operand is one by now.
  bool follow(PartCopy &copy) {
    for (auto found = placed.find(copy.to); found != placed.end();
         found = placed.find(copy.to)) {
      copy.offset += found->second.offset;
      copy.to = found->second.to;
    }
    return !placed.contains(copy.from);
  }

  /// Nothing else happens in the part's bytes while the operand needs them, and what is
  /// copied is the operand's last value.
  bool isFree(PartCopy copy) {
    int64_t end = copy.offset + static_cast<int64_t>(copy.from.getSize());
    int64_t lastRead = -1;
    for (size_t i = 0; i < launches.size(); ++i)
      for (const LaunchAccess &access : accesses[i]) {
        if (!launches[i] || access.range.root != copy.from || i == copy.instant)
          continue;
        if (access.written && i > copy.instant)
          return false;
        lastRead = std::max<int64_t>(lastRead, i);
      }
    for (size_t i = 0; i < launches.size(); ++i)
      for (const LaunchAccess &access : accesses[i]) {
        bool overlaps = launches[i] && access.range.root == copy.to &&
                        i != copy.instant && access.range.offset < end &&
                        copy.offset < access.range.offset + access.range.size;
        bool early = i < copy.instant;
        bool overwrites = access.written && static_cast<int64_t>(i) <= lastRead;
        if (overlaps && (early || overwrites))
          return false;
      }
    return true;
  }

  bool fits(PartCopy copy) {
    LiveRange part = ranges[copy.from], whole = ranges[copy.to], joined = whole;
    joined.include(part.first), joined.include(part.last);
    auto inside = [](const LiveRange &range, int64_t instant) {
      return range.first <= instant && instant <= range.last;
    };
    for (int64_t instant = joined.first; instant <= joined.last; ++instant) {
      int64_t bytes = live[instant + 1];
      bytes -= inside(part, instant) ? bytesOf(copy.from) : 0;
      bytes += inside(whole, instant) ? 0 : bytesOf(copy.to);
      if (bytes > peak)
        return false;
    }
    return true;
  }

  void place(PartCopy copy) {
    plan::BufferOp from = copy.from, to = copy.to;
    LiveRange &whole = ranges[to];
    addLive(ranges[from], -bytesOf(from));
    addLive(whole, -bytesOf(to));
    whole.include(ranges[from].first), whole.include(ranges[from].last);
    addLive(whole, bytesOf(to));
    ranges.erase(from);
    to->setAttr(bufferNamesAttr,
                StringAttr::get(to.getContext(),
                                (bufferNames(to) + ", " + bufferNames(from)).str()));
    if (from->isBeforeInBlock(to))
      to->moveBefore(from);
    OpBuilder builder(from);
    Value part = builder.create<plan::SliceOp>(from.getLoc(), from.getBuffer().getType(),
                                               to.getBuffer(),
                                               builder.getI64IntegerAttr(copy.offset),
                                               builder.getI64IntegerAttr(from.getSize()));
    from.getBuffer().replaceAllUsesWith(part); // erased by PlanMemory, as nothing uses it
    launches[copy.instant].erase();
    launches[copy.instant] = nullptr;
    for (SmallVector<LaunchAccess> &list : accesses)
      for (LaunchAccess &access : list)
        if (access.range.root == from)
          access.range = {to, access.range.offset + copy.offset, access.range.size};
    placed.try_emplace(from, copy);
  }

  int64_t bytesOf(plan::BufferOp buffer) const {
    return llvm::alignTo(buffer.getSize() + 2 * redZone, lineBytes);
  }
  void addLive(const LiveRange &range, int64_t bytes) {
    for (int64_t instant = range.first; instant <= range.last; ++instant)
      live[instant + 1] += bytes;
  }

  plan::ProgramOp program;
  SmallVector<plan::LaunchOp> launches; // null: not needed any more
  std::vector<SmallVector<LaunchAccess>> accesses;
  LiveRanges ranges;
  int64_t redZone;
  std::vector<int64_t> live; // bytes by instant, from -1 on
  int64_t peak = 0;
  llvm::DenseMap<Operation *, PartCopy> placed; // by operand
};

} // namespace

void placeOperands(plan::ProgramOp program) {
  bool trains = program.getEntry() != "infer" && program.getEntry() != "eval";
  if (!trains && copiesOf(program).empty() && collectivesOf(program).empty())
    OperandPlacer(program).run();
}

} // namespace sluice
