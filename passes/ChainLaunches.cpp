// ChainLaunches: a product or convolution and the region that reads its rows (bias,
// activation, normalisation) become one launch of two stages. A worker runs the region on
// the rows it has just computed, while they are in its cache. Before the order is
// decided, which then sees one launch.

#include "passes/Passes.h"
#include "passes/PlanLaunches.h"
#include "passes/RegionDomain.h"
#include "passes/lowering/ProgramBuilder.h"

#include "kernels/Params.h"

#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_CHAINLAUNCHES
#include "passes/Passes.h.inc"
namespace {

/// A stage whose units can be whole rows of a contiguous result.
struct Producer {
  int64_t rows = 0;
  int64_t unitRows = 0; // rows of a unit
  int64_t chunk = 1;    // units
  std::vector<int64_t> params;
};

plan::StageOp onlyStage(plan::LaunchOp launch) {
  Block &body = launch.getBody().front();
  return llvm::hasSingleElement(body) ? cast<plan::StageOp>(body.front())
                                      : plan::StageOp();
}

/// A divisor of the rows that suits the kernel's tiles and leaves at least eight units; 0
/// if there is none.
int64_t rowsOfUnit(int64_t rows) {
  for (int64_t size : {48, 36, 24, 64, 60, 56, 52, 40, 44, 32, 28, 20, 16})
    if (rows % size == 0 && rows / size >= 8)
      return size;
  return 0;
}

std::optional<Producer> productOf(plan::StageOp stage) {
  auto params = unpackParams<GemmParams>(stage.getParams().data());
  bool packed = stage.getKernel() == "gemm_packed_f32";
  int64_t matrix = params.m * params.n;
  bool contiguous = params.cRow == params.n &&
                    (params.batch1 == 1 || params.cBatch1 == matrix) &&
                    (params.batch0 == 1 || params.cBatch0 == params.batch1 * matrix);
  Producer producer;
  producer.rows = params.batch0 * params.batch1 * params.m;
  constexpr int64_t fewRows = 128; // their tiles would be cut badly
  if (!contiguous || params.accumulate || (!packed && params.unitCols != 0) ||
      producer.rows < fewRows)
    return std::nullopt;
  producer.unitRows = rowsOfUnit(producer.rows);
  if (producer.unitRows == 0)
    return std::nullopt;
  params.unitRows = producer.unitRows;
  params.unitCols = 0;
  producer.params = packParams(params);
  // As planGemm: up to 288 rows and 1 MB of the result, but at least eight chunks.
  int64_t units = producer.rows / producer.unitRows;
  int64_t rows = std::min<int64_t>(gemm::kBlockRows, (int64_t{1} << 18) / params.n);
  producer.chunk = std::max<int64_t>(1, std::min(rows / producer.unitRows, units / 8));
  return producer;
}

std::optional<Producer> producerOf(plan::LaunchOp launch) {
  plan::StageOp stage = onlyStage(launch);
  if (!stage || stage.getOuts().size() != 1 ||
      !stage.getOuts()[0].getDefiningOp<plan::BufferOp>())
    return std::nullopt;
  StringRef kernel = stage.getKernel();
  if (kernel == "gemm_packed_f32" || kernel == "gemm_f32")
    return productOf(stage);
  if (kernel != "conv_forward_f32" && kernel != "conv_input_grad_f32")
    return std::nullopt;
  auto params = unpackParams<ConvParams>(stage.getParams().data());
  int64_t units = launch.getUnits(), images = convUnitImages(params);
  int64_t channels = kernel == "conv_forward_f32" ? params.g.m : params.g.c;
  if (images > 1 && params.unitChannels != channels)
    return std::nullopt; // its channels are not next to each other
  return Producer{
      units * images * params.unitChannels, images * params.unitChannels,
      int64_t(launch.getChunk()),
      std::vector<int64_t>(stage.getParams().begin(), stage.getParams().end())};
}

class Chainer {
public:
  explicit Chainer(plan::ProgramOp program, SymbolTable &symbols)
      : launches(launchesOf(program)), symbols(symbols) {
    for (plan::LaunchOp launch : launches)
      accesses.push_back(accessesOf(launch));
  }

  void run() {
    for (size_t consumer = 1; consumer < launches.size(); ++consumer)
      for (size_t producer = consumer; producer-- > 0;)
        if (tryChain(producer, consumer))
          break;
  }

private:
  bool tryChain(size_t first, size_t second) {
    if (!launches[first] || second - first > window)
      return false;
    plan::StageOp consumer = onlyStage(launches[second]);
    std::optional<Producer> producer = producerOf(launches[first]);
    if (!consumer || !producer)
      return false;
    Value rows = onlyStage(launches[first]).getOuts()[0];
    if (!readsRows(consumer, rows, producer->rows) || !independent(first, second, rows) ||
        !mayFollow(first, second))
      return false;
    join(first, second, *producer);
    return true;
  }

  /// Clones are chained as the first runs were, so that the costs which recompute was
  /// planned with hold: then a clone makes no other launch cheaper.
  bool mayFollow(size_t first, size_t second) {
    auto from = launches[first]->getAttrOfType<DenseI64ArrayAttr>(runAttr);
    auto to = launches[second]->getAttrOfType<DenseI64ArrayAttr>(runAttr);
    if (!from || !to)
      return true;
    std::pair<int64_t, int64_t> pair{from[0], to[0]};
    if (from[1] == 0 && to[1] == 0)
      chainedRuns.insert(pair);
    else if (from[1] == 0 || to[1] == 0)
      return false;
    return chainedRuns.contains(pair);
  }

  /// Each unit of the consumer is a row, and all it reads of `rows` is that row.
  bool readsRows(plan::StageOp stage, Value rows, int64_t count) {
    auto kernel = symbols.lookup<plan::KernelOp>(stage.getKernel());
    if (!llvm::is_contained(stage.getIns(), rows) ||
        llvm::is_contained(stage.getOuts(), rows) || !kernel.isGenerated())
      return false;
    auto region = cast<graph::RegionOp>(kernel.getBody().front().front());
    FailureOr<RegionDomain> domain = analyseRegion(region);
    if (failed(domain) || domain->kind != WalkKind::Rows || domain->units != count)
      return false;
    for (auto [i, input] : llvm::enumerate(stage.getIns())) {
      if (input != rows)
        continue;
      Value argument = region.getBody().front().getArgument(i);
      if (graph::tensorType(argument).getNumElements() != domain->elements())
        return false;
      for (auto &[use, leaf] : domain->leaves)
        if (use->get() == argument && leaf.shape != domain->allDims())
          return false;
    }
    return true;
  }

  /// The producer may run where the consumer does, and at the same time but for the rows.
  bool independent(size_t first, size_t second, Value rows) {
    for (const LaunchAccess &access : accesses[first]) {
      bool isRows = access.written;
      for (size_t between = first + 1; between < second; ++between)
        for (const LaunchAccess &other : accesses[between])
          if (launches[between] && conflict(access, other))
            return false;
      for (const LaunchAccess &other : accesses[second])
        if (!isRows && conflict(access, other))
          return false;
    }
    // Nor may the consumer see the rows in any other way.
    Operation *root = plan::rangeOf(rows).root;
    return llvm::count_if(accesses[second], [&](const LaunchAccess &access) {
             return access.range.root == root;
           }) == 1;
  }

  void join(size_t first, size_t second, const Producer &producer) {
    plan::LaunchOp from = launches[first], to = launches[second];
    plan::StageOp stage = onlyStage(from), region = onlyStage(to);
    Builder builder(to.getContext());
    stage.setParams(producer.params);
    region.setUnitScale(producer.unitRows);
    stage->moveBefore(region);
    to.setLabel((from.getLabel() + "+" + to.getLabel()).str());
    to.setNode(from.getNode() == to.getNode()
                   ? to.getNode().str()
                   : (from.getNode() + "+" + to.getNode()).str());
    to.setUnits(producer.rows / producer.unitRows);
    to.setChunk(producer.chunk);
    to.setFlops(from.getFlops() + to.getFlops());
    if (Attribute run = from->getAttr(runAttr))
      to->setAttr(chainedRunAttr, run);
    // The rows are read again from the cache only.
    double rowBytes = plan::rangeOf(stage.getOuts()[0]).size;
    to.setBytes(APFloat(from.getBytes().convertToDouble() +
                        to.getBytes().convertToDouble() - rowBytes));
    if (Attribute run = from->getAttr(recomputeAttr))
      to->setAttr(recomputeAttr, run);
    from.erase();
    launches[first] = nullptr;
    accesses[second].append(accesses[first]);
    accesses[first].clear();
  }

  static constexpr size_t window = 8; // launches between that are looked at
  SmallVector<plan::LaunchOp> launches;
  std::vector<SmallVector<LaunchAccess>> accesses;
  SymbolTable &symbols;
  llvm::DenseSet<std::pair<int64_t, int64_t>> chainedRuns; // first runs, by operation
};

struct ChainLaunches : impl::ChainLaunchesBase<ChainLaunches> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    for (auto program : getOperation().getOps<plan::ProgramOp>())
      Chainer(program, symbols).run();
  }
};

} // namespace

std::unique_ptr<Pass> createChainLaunches() { return std::make_unique<ChainLaunches>(); }
} // namespace sluice
