// FuseUpdates: the product that computes a gradient, or the sum of rows into a table, and
// the update that consumes it become one launch. A worker applies the update to the tile
// that it has just computed, so that the gradient never reaches memory. Between the
// order, which says what lives when, and the merging of the updates that are left.
//
// Bits stay: tiles cut rows and columns only, never a sum. Whether a gradient has other
// readers (a norm to clip by, a loss scale that looks at all of them) shows in its
// buffer: it must be written once and read once.

#include "passes/ElasticRegion.h"
#include "passes/GradientTiles.h"
#include "passes/LaunchCosts.h"
#include "passes/LiveRanges.h"
#include "passes/Passes.h"
#include "passes/RegionDomain.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_FUSEUPDATES
#include "passes/Passes.h.inc"
namespace {

constexpr int64_t lineBytes = 64;
/// Scratch that is no concern although the gradient is smaller.
constexpr int64_t smallBytes = 64 << 10;

/// Two launches that could be one, and the instant of either at which it would run.
struct Pair {
  size_t producer, update;
  plan::BufferOp gradient;
  unsigned input;         // of the update's stage
  int64_t updateUnit = 0; // elements of a unit of it; 0: elastic, of any number
  GradientTiles tiles;
  bool early = false; // at the producer's instant
};

class UpdateFuser {
public:
  UpdateFuser(plan::ProgramOp program, SymbolTable &symbols, const DeviceRates &rates)
      : symbols(symbols), rates(rates), launches(launchesOf(program)),
        ranges(liveRanges(program)), redZone(plan::redZoneOf(program)),
        live(launches.size() + 2) {
    for (plan::LaunchOp launch : launches)
      accesses.push_back(accessesOf(launch));
    for (auto buffer : program.getBody().front().getOps<plan::BufferOp>())
      if (LiveRange range = ranges.lookup(buffer); !range.empty())
        addLive(range.first, range.last, bytesOf(buffer));
    peak = *llvm::max_element(live);
    if (auto attr = program->getParentOfType<ModuleOp>()->getAttrOfType<IntegerAttr>(
            "graph.threads"))
      threads = std::max<int64_t>(1, attr.getInt());
  }

  void run() {
    for (size_t update = 1; update < launches.size(); ++update)
      tryFuse(update);
  }

private:
  void tryFuse(size_t update) {
    std::optional<Pair> pair = pairOf(update);
    if (!pair)
      return;
    for (const GradientTiles &tiles :
         gradientTiles(launches[pair->producer], pair->updateUnit)) {
      pair->tiles = tiles;
      int64_t most = std::max(smallBytes, int64_t(pair->gradient.getSize()));
      if (scratchBytes(tiles) > most || !isWorthIt(*pair))
        continue;
      for (bool early : {true, false}) {
        pair->early = early;
        if (isIndependent(*pair) && fits(*pair))
          return fuse(*pair);
      }
    }
  }

  static plan::StageOp onlyStage(plan::LaunchOp launch) {
    Block &body = launch.getBody().front();
    return llvm::hasSingleElement(body) ? cast<plan::StageOp>(body.front())
                                        : plan::StageOp();
  }

  std::optional<Pair> pairOf(size_t update) {
    plan::StageOp stage = onlyStage(launches[update]);
    if (!stage || stage.getPart() || stage.getUnitStrides() ||
        !llvm::all_of(stage.getOuts(), [](Value out) {
          return isa_and_nonnull<plan::StateBufferOp>(out.getDefiningOp());
        }))
      return std::nullopt;
    auto kernel = symbols.lookup<plan::KernelOp>(stage.getKernel());
    if (!kernel.isGenerated())
      return std::nullopt;
    auto region = cast<graph::RegionOp>(kernel.getBody().front().front());
    for (auto [i, value] : llvm::enumerate(stage.getIns())) {
      auto buffer = value.getDefiningOp<plan::BufferOp>();
      if (!buffer)
        continue;
      std::optional<size_t> producer = onlyWriter(buffer, stage);
      if (!producer || *producer >= update)
        continue;
      int64_t elements = buffer.getSize() / 4;
      std::optional<int64_t> unit = unitOf(stage, region, i, elements);
      if (unit && llvm::all_of(gradientTiles(launches[*producer], *unit),
                               [&](const GradientTiles &cut) {
                                 return cut.tiles.elements == elements;
                               }))
        return Pair{*producer, update, buffer, unsigned(i), *unit, {}};
    }
    return std::nullopt;
  }

  /// Elements of a unit of a kernel that reads all elements of input `i` in order, 0 if
  /// they can be any number; nothing for other kernels.
  static std::optional<int64_t> unitOf(plan::StageOp stage, graph::RegionOp region,
                                       unsigned i, int64_t elements) {
    Value input = region.getBody().front().getArgument(i);
    auto type = graph::tensorType(input);
    FailureOr<RegionDomain> domain = analyseRegion(region);
    if (failed(domain) || !type.getElementType().isF32() || tileInput(region))
      return std::nullopt;
    for (auto &[use, leaf] : domain->leaves)
      if (use->get() == input && leaf.shape != domain->allDims())
        return std::nullopt;
    if (isElastic(region))
      return stage.getParams()[0] == elements ? std::optional<int64_t>(0) : std::nullopt;
    if (domain->elements() != elements || type.getNumElements() != elements)
      return std::nullopt;
    if (domain->kind == WalkKind::Flat)
      return RegionDomain::flatUnit;
    return domain->kind == WalkKind::Rows ? std::optional(domain->columns())
                                          : std::nullopt;
  }

  /// The launch of a single stage that writes the buffer, where `reader` is all that
  /// reads it.
  std::optional<size_t> onlyWriter(plan::BufferOp buffer, plan::StageOp reader) {
    plan::StageOp writer;
    for (OpOperand &use : buffer.getBuffer().getUses()) {
      auto stage = dyn_cast<plan::StageOp>(use.getOwner());
      if (!stage ||
          (stage == reader ? writer == reader : bool(writer) && writer != reader))
        return std::nullopt;
      if (stage != reader)
        writer = stage;
    }
    if (!writer || !llvm::hasNItems(buffer.getBuffer().getUses(), 2) ||
        !llvm::is_contained(writer.getOuts(), buffer.getBuffer()))
      return std::nullopt;
    auto launch = writer->getParentOfType<plan::LaunchOp>();
    const auto *found = llvm::find(launches, launch);
    if (found == launches.end() || !onlyStage(launch))
      return std::nullopt;
    return found - launches.begin();
  }

  int64_t scratchBytes(const GradientTiles &tiles) const {
    return threads * tiles.chunk * tiles.tiles.tileElements() * 4;
  }

  /// As the cost model sees it, which knows nothing of caches.
  bool isWorthIt(Pair &pair) {
    plan::LaunchOp from = launches[pair.producer], to = launches[pair.update];
    LaunchWork work(rates);
    work.addStage(
        workOf(onlyStage(from).getKernel(), pair.tiles.params.data(), pair.tiles.chunk));
    work.addStage(KernelWork());
    LaunchCost cost = work.cost(flopsOf(pair), bytesOf(pair), pair.tiles.tiles.units(),
                                pair.tiles.chunk);
    return predictLaunch(cost, rates).us <= from.getPredictedUs().convertToDouble() +
                                                to.getPredictedUs().convertToDouble();
  }

  double flopsOf(Pair &pair) {
    return launches[pair.producer].getFlops().convertToDouble() +
           launches[pair.update].getFlops().convertToDouble();
  }
  double bytesOf(Pair &pair) { // but the gradient's
    return launches[pair.producer].getBytes().convertToDouble() +
           launches[pair.update].getBytes().convertToDouble() -
           2.0 * double(pair.gradient.getSize());
  }

  /// Whether the launch that moves may run where the other does.
  bool isIndependent(Pair &pair) {
    size_t moved = pair.early ? pair.update : pair.producer;
    for (size_t between = pair.producer + 1; between < pair.update; ++between)
      if (launches[between])
        for (const LaunchAccess &a : accesses[moved])
          for (const LaunchAccess &b : accesses[between])
            if (conflict(a, b))
              return false;
    for (const LaunchAccess &a : accesses[pair.producer])
      for (const LaunchAccess &b : accesses[pair.update])
        if (a.range.root != pair.gradient && conflict(a, b))
          return false;
    return true;
  }

  /// The buffers of the launch that moves, with the ranges they would have.
  SmallVector<std::pair<plan::BufferOp, LiveRange>> movedRanges(Pair &pair) {
    size_t from = pair.early ? pair.update : pair.producer,
           to = pair.early ? pair.producer : pair.update;
    SmallVector<std::pair<plan::BufferOp, LiveRange>> moved;
    for (const LaunchAccess &access : accesses[from]) {
      auto buffer = dyn_cast<plan::BufferOp>(access.range.root);
      if (!buffer || buffer == pair.gradient ||
          llvm::any_of(moved, [&](auto &other) { return other.first == buffer; }))
        continue;
      LiveRange range = ranges[buffer];
      if (range.first == int64_t(from) && range.last == int64_t(from))
        range = {};
      range.include(to);
      moved.push_back({buffer, range});
    }
    return moved;
  }

  /// Whether no instant then needs more than the program's peak. Takes the new ranges if
  /// so.
  bool fits(Pair &pair) {
    std::vector<int64_t> before = live;
    int64_t at = pair.early ? pair.producer : pair.update;
    addLive(pair.producer, pair.update, -bytesOf(pair.gradient));
    addLive(at, at, withZones(scratchBytes(pair.tiles)));
    auto moved = movedRanges(pair);
    for (auto &[buffer, range] : moved) {
      LiveRange old = ranges[buffer];
      addLive(old.first, old.last, -bytesOf(buffer));
      addLive(range.first, range.last, bytesOf(buffer));
    }
    if (*llvm::max_element(live) > peak) {
      live = std::move(before);
      return false;
    }
    for (auto &[buffer, range] : moved)
      ranges[buffer] = range;
    return true;
  }

  void fuse(Pair &pair) {
    plan::LaunchOp from = launches[pair.producer], to = launches[pair.update];
    plan::StageOp product = onlyStage(from), update = onlyStage(to);
    int64_t tileBytes = pair.tiles.tiles.tileElements() * 4;
    useTile(product, pair, product.getIns().size(), tileBytes);
    useTile(update, pair, pair.input, tileBytes);
    product.setParams(pair.tiles.params);
    if (pair.updateUnit > 0) {
      update.setUnitScale(pair.tiles.tiles.tileElements() / pair.updateUnit);
    } else {
      update.setParams(pair.tiles.tiles.pack());
      update.setKernel(tileKernel(update.getKernel(), pair.input));
    }
    useScratch(product, update, pair);
    // The products' barriers and the gradient's traffic are not subtracted: plans with
    // other room for fusing stay comparable, and no bound is missed.
    to.setPredictedUs(APFloat(from.getPredictedUs().convertToDouble() +
                              to.getPredictedUs().convertToDouble()));
    to.setFlops(APFloat(flopsOf(pair)));
    to.setBytes(APFloat(bytesOf(pair)));
    to.setLabel((from.getLabel() + "+" + to.getLabel()).str());
    to.setNode((from.getNode() + "+" + to.getNode()).str());
    to.setUnits(pair.tiles.tiles.units());
    to.setChunk(pair.tiles.chunk);
    if (Attribute run = from->getAttr(runAttr))
      to->setAttr(runAttr, run);
    if (pair.early)
      to->moveBefore(from);
    product->moveBefore(update);
    size_t kept = pair.early ? pair.producer : pair.update,
           gone = pair.early ? pair.update : pair.producer;
    from.erase();
    launches[kept] = to;
    launches[gone] = nullptr;
    accesses[kept] = accessesOf(to);
    accesses[gone].clear();
    NamedAttrList gradient;
    Builder builder(to.getContext());
    gradient.append("bytes", builder.getI64IntegerAttr(pair.gradient.getSize()));
    gradient.append("name", pair.gradient.getLabelAttr());
    to->setAttr(fusedGradientAttr, gradient.getDictionary(to.getContext()));
    pair.gradient->erase();
  }

  /// Strides of the operand that holds a tile.
  void useTile(plan::StageOp stage, Pair &pair, unsigned operand, int64_t bytes) {
    size_t count = stage.getNumOperands();
    SmallVector<int64_t> workers(count, 0), units(count, 0);
    if (auto known = stage.getWorkerStrides())
      workers.assign(known->begin(), known->end());
    workers[operand] = pair.tiles.chunk * bytes;
    units[operand] = bytes;
    Builder builder(stage.getContext());
    stage.setWorkerStridesAttr(builder.getDenseI64ArrayAttr(workers));
    stage.setUnitStridesAttr(builder.getDenseI64ArrayAttr(units));
  }

  void useScratch(plan::StageOp product, plan::StageOp update, Pair &pair) {
    OpBuilder builder(pair.gradient);
    Value scratch = builder.create<plan::BufferOp>(
        pair.gradient.getLoc(), pair.gradient.getBuffer().getType(), "gradient tiles",
        "workspace", scratchBytes(pair.tiles), IntegerAttr(), IntegerAttr(),
        IntegerAttr(), StringAttr(), false, false);
    product->replaceUsesOfWith(pair.gradient.getBuffer(), scratch);
    update->replaceUsesOfWith(pair.gradient.getBuffer(), scratch);
  }

  /// The same kernel, tile by tile.
  StringRef tileKernel(StringRef name, unsigned input) {
    auto kernel = symbols.lookup<plan::KernelOp>(name);
    std::string made = (name + "_tiles_" + Twine(input)).str();
    if (auto known = symbols.lookup<plan::KernelOp>(made))
      return known.getSymName();
    OpBuilder builder(kernel);
    builder.setInsertionPointAfter(kernel);
    auto clone = cast<plan::KernelOp>(builder.clone(*kernel));
    clone.setSymName(made);
    clone.getBody().front().front().setAttr(tileInputAttr,
                                            builder.getI64IntegerAttr(input));
    symbols.insert(clone);
    return clone.getSymName();
  }

  int64_t withZones(int64_t bytes) const {
    return llvm::alignTo(bytes + 2 * redZone, lineBytes);
  }
  int64_t bytesOf(plan::BufferOp buffer) { return withZones(buffer.getSize()); }
  void addLive(int64_t first, int64_t last, int64_t bytes) {
    for (int64_t instant = first; instant <= last; ++instant)
      live[instant + 1] += bytes;
  }

  SymbolTable &symbols;
  const DeviceRates &rates;
  SmallVector<plan::LaunchOp> launches; // null: fused with another one
  std::vector<SmallVector<LaunchAccess>> accesses;
  LiveRanges ranges;
  int64_t redZone, threads = 1;
  std::vector<int64_t> live; // bytes at each instant, from -1 on
  int64_t peak = 0;
};

/// Kernels that no stage calls any more.
void eraseUnused(ModuleOp module) {
  llvm::DenseSet<StringAttr> used;
  module.walk([&](plan::StageOp stage) { used.insert(stage.getKernelAttr().getAttr()); });
  for (auto kernel : llvm::make_early_inc_range(module.getOps<plan::KernelOp>()))
    if (kernel.isGenerated() && !used.contains(kernel.getSymNameAttr()))
      kernel.erase();
}

struct FuseUpdates : impl::FuseUpdatesBase<FuseUpdates> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    DeviceRates rates = deviceRates(module);
    for (auto program : module.getOps<plan::ProgramOp>()) {
      // What waits for copies or ranks stays in its place.
      Block &queue = program.queue().getBody().front();
      if (llvm::any_of(queue, [](Operation &op) { return !isa<plan::LaunchOp>(op); }))
        continue;
      mergeInPlace(program); // it decides what is live
      UpdateFuser(program, symbols, rates).run();
    }
    eraseUnused(module);
  }
};

} // namespace

std::unique_ptr<Pass> createFuseUpdates() { return std::make_unique<FuseUpdates>(); }
} // namespace sluice
