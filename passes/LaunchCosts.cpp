#include "passes/LaunchCosts.h"

#include "kernels/Catalog.h"
#include "passes/AddProduct.h"
#include "passes/CodedProducts.h"
#include "passes/Collectives.h"
#include "passes/ContractShape.h"
#include "passes/NarrowReads.h"
#include "passes/PlanLaunches.h"
#include "passes/lowering/Lowerings.h"

#include "llvm/ADT/StringSwitch.h"

#include <algorithm>

using namespace mlir;

namespace sluice {
namespace {

constexpr StringLiteral deviceAttr = "graph.device";

/// The numbers of a profile in one list, in the order of the fields.
template <typename Rates> auto fieldsOf(Rates &r) {
  return std::array{&r.product.flops,
                    &r.product.left,
                    &r.product.right,
                    &r.product.store,
                    &r.conv.flops,
                    &r.conv.left,
                    &r.conv.right,
                    &r.conv.store,
                    &r.convWeightGrad.flops,
                    &r.convWeightGrad.left,
                    &r.convWeightGrad.right,
                    &r.convWeightGrad.store,
                    &r.f64Flops,
                    &r.bf16Flops,
                    &r.conv16Flops,
                    &r.f16Flops,
                    &r.f8Flops,
                    &r.vectorFlops,
                    &r.indexBytes,
                    &r.moveBytes,
                    &r.launchUs,
                    &r.syncUs,
                    &r.linkBytesPerSecond,
                    &r.linkLatencyUs,
                    &r.rankBytesPerSecond,
                    &r.rankLatencyUs,
                    &r.rankRounds,
                    &r.rankMessageUs,
                    &r.rankHostBytesPerSecond,
                    &r.ranksPerNode,
                    &r.nodeBytesPerSecond,
                    &r.nodeLatencyUs};
}

/// Kernels of other machines have other tiles than those of the plan.
ProductWork onDevice(const KernelWork &work, const DeviceRates &rates) {
  ProductWork product;
  product.kind = work.kind == WorkKind::Conv             ? ProductKind::Conv
                 : work.kind == WorkKind::ConvWeightGrad ? ProductKind::ConvWeightGrad
                                                         : ProductKind::Product;
  product.left = work.left, product.right = work.right, product.store = work.store;
  product.flops = work.tileFlops;
  if (rates.processors <= 1)
    return product;
  auto tiles = [](double size, int64_t tile) { return std::ceil(size / double(tile)); };
  bool images = work.kind == WorkKind::Conv; // the images' pixels are one dimension
  double cols = images ? work.cols * work.batches : work.cols;
  double rowTiles = tiles(work.rows, rates.tileRows);
  double colTiles = tiles(cols, rates.tileCols);
  double count = rowTiles * colTiles * (images ? 1 : work.batches);
  product.flops = 2 * count * double(rates.tileRows * rates.tileCols) * work.depth;
  // Long sums with few results are cut into slices.
  constexpr double slice = 2048;
  product.tiles = count * std::max(1.0, std::floor(work.depth / slice));
  return product;
}

bool movesOnly(Operation *op) {
  return isa<graph::TransposeOp, graph::ReshapeOp, graph::SliceOp, graph::PadOp,
             graph::ConcatOp>(op);
}

double operandBytes(Operation *op) {
  double bytes = 0;
  for (Type type : op->getOperandTypes())
    bytes += plan::tensorBytes(type);
  for (Type type : op->getResultTypes())
    bytes += plan::tensorBytes(type);
  return bytes;
}

double flopsOf(Operation *op) {
  double flops = 0;
  op->walk([&](graph::Costed costed) { flops += costed.flops(); });
  return flops;
}

double productUs(graph::ContractOp op, double flops, double bytes,
                 const DeviceRates &rates, bool readsCodes = false) {
  LaunchWork work(rates);
  int64_t units = 0, chunk = 1;
  if (std::optional<GemmParams> shape = contractAsGemm(op)) {
    shape->bCodes.format = readsCodes; // any: B is not packed ahead
    GemmPlan plan = planGemm(*shape, /*wholeRows=*/false, rates.threads);
    bool splits = plan.kind == GemmPlan::SplitK;
    units = splits ? plan.splitUnits : plan.gemmUnits;
    chunk = splits ? plan.splitChunk : plan.gemmChunk;
    if (splits) {
      std::vector<int64_t> params = packParams(plan.split);
      work.addStage(workOf("gemm_splitk_f32", params.data(), chunk));
    } else {
      work.addStage(gemmWork(plan.gemm, plan.kind == GemmPlan::Packed, chunk));
    }
  }
  return predictLaunch(work.cost(flops, bytes, units, chunk), rates).us;
}

std::optional<KernelWork> convolutionWork(Operation *op) {
  std::optional<ConvGeometry> g = convGeometry(op);
  if (!g || isDepthwise(*g))
    return std::nullopt;
  auto stored = [op](unsigned i) {
    Type element = graph::tensorType(narrowSource(op->getOperand(i))).getElementType();
    return formatOf(element).value_or(format::kF32);
  };
  int64_t type = stored(0), second = stored(1);
  if (isa<graph::ConvWeightGradOp>(op)) {
    ConvWeightGradParams params = planConvWeightGrad(*g);
    params.xType = type, params.dyType = second;
    return convWeightGradWork(params);
  }
  bool grad = isa<graph::ConvInputGradOp>(op);
  return convWork(grad ? planConvInputGrad(*g, type, second, type)
                       : planConvForward(*g, type, second, type),
                  grad);
}

} // namespace

void setDevice(ModuleOp module, const DeviceProfile &profile) {
  Builder builder(module.getContext());
  std::vector<double> numbers, memory, scaling;
  DeviceRates rates = profile.rates;
  for (double *field : fieldsOf(rates))
    numbers.push_back(*field);
  for (const BandwidthPoint &point : rates.memory)
    memory.insert(memory.end(), {double(point.bytes), point.bytesPerSecond});
  for (const ThreadScaling &at : rates.scaling)
    scaling.insert(scaling.end(), {double(at.threads), at.matrix, at.vector, at.memory});
  NamedAttrList device;
  device.append("name", builder.getStringAttr(profile.name));
  device.append("rates", builder.getDenseF64ArrayAttr(numbers));
  device.append("memory", builder.getDenseF64ArrayAttr(memory));
  device.append("scaling", builder.getDenseF64ArrayAttr(scaling));
  device.append("tile", builder.getDenseI64ArrayAttr(
                            {rates.tileRows, rates.tileCols, rates.processors}));
  module->setAttr(deviceAttr, device.getDictionary(module.getContext()));
}

DeviceRates deviceRates(ModuleOp module) {
  DeviceRates rates;
  if (auto threads = module->getAttrOfType<IntegerAttr>("graph.threads"))
    rates.threads = std::max<int64_t>(1, threads.getInt());
  auto device = module->getAttrOfType<DictionaryAttr>(deviceAttr);
  if (!device)
    return rates;
  auto numbers = device.getAs<DenseF64ArrayAttr>("rates");
  auto memory = device.getAs<DenseF64ArrayAttr>("memory");
  auto scaling = device.getAs<DenseF64ArrayAttr>("scaling");
  auto tile = device.getAs<DenseI64ArrayAttr>("tile");
  auto fields = fieldsOf(rates);
  if (!numbers || !memory || !scaling || !tile || numbers.size() != fields.size() ||
      tile.size() != 3)
    return rates;
  for (auto [field, number] : llvm::zip_equal(fields, numbers.asArrayRef()))
    *field = number;
  rates.memory.clear(), rates.scaling.clear();
  for (int64_t i = 0; i + 1 < memory.size(); i += 2)
    rates.memory.push_back({int64_t(memory[i]), memory[i + 1]});
  for (int64_t i = 0; i + 3 < scaling.size(); i += 4)
    rates.scaling.push_back(
        {int64_t(scaling[i]), scaling[i + 1], scaling[i + 2], scaling[i + 3]});
  rates.tileRows = tile[0], rates.tileCols = tile[1], rates.processors = tile[2];
  return rates;
}

LinkTopology linksOf(const DeviceRates &rates) {
  return {{rates.rankBytesPerSecond, rates.rankLatencyUs},
          int64_t(rates.ranksPerNode),
          {rates.nodeBytesPerSecond, rates.nodeLatencyUs},
          rates.rankRounds,
          {rates.rankMessageUs,
           rates.rankHostBytesPerSecond > 0 ? 1e6 / rates.rankHostBytesPerSecond : 0}};
}

CollectiveKind collectiveKindOf(StringRef name) {
  return llvm::StringSwitch<CollectiveKind>(name)
      .Case("reduce_scatter", CollectiveKind::ReduceScatter)
      .Case("all_gather", CollectiveKind::AllGather)
      .Default(CollectiveKind::AllReduce);
}

void LaunchWork::addStage(const KernelWork &work) {
  ++stages;
  if (work.bytes >= 0)
    ownBytes = work.bytes;
  switch (work.kind) {
  case WorkKind::Generated:
    return;
  case WorkKind::Index:
    indexes = true;
    return;
  case WorkKind::Move:
    moves = true;
    return;
  case WorkKind::Product:
  case WorkKind::Conv:
  case WorkKind::ConvWeightGrad:
    sum.product = onDevice(work, rates);
    sum.type = work.operandType == format::kBf16  ? ComputeType::Bf16
               : work.operandType == format::kF16 ? ComputeType::F16
                                                  : ComputeType::F32;
    productFlops += work.flops;
  }
}

LaunchCost LaunchWork::cost(double flops, double bytes, int64_t units, int64_t chunk) {
  LaunchCost cost = sum;
  // What is left belongs to generated code; rounding of products leaves a little.
  double rest = flops - productFlops;
  cost.vectorFlops = rest > flops * 1e-6 ? rest : 0;
  cost.bytes = stages == 1 && ownBytes >= 0 ? ownBytes : bytes;
  if (stages == 1 && indexes)
    cost.indexBytes = cost.bytes;
  if (stages == 1 && moves)
    cost.moveBytes = cost.bytes;
  cost.chunks = chunk > 0 ? (units + chunk - 1) / chunk : 0;
  return cost;
}

LaunchCost launchCost(plan::LaunchOp launch, const DeviceRates &rates) {
  LaunchWork work(rates);
  for (auto stage : launch.getBody().front().getOps<plan::StageOp>()) {
    // By the name: a symbol would be looked for among all others.
    StringRef name = stage.getKernel();
    bool isBuiltin =
        name == collectiveKernel ||
        std::ranges::binary_search(builtinKernelNames(), std::string_view(name));
    work.addStage(isBuiltin ? workOf(name, stage.getParams().data(), launch.getChunk())
                            : KernelWork());
  }
  return work.cost(launch.getFlops().convertToDouble(),
                   launch.getBytes().convertToDouble(), launch.getUnits(),
                   launch.getChunk());
}

double untouchedBytes(Operation *op) {
  auto sliceBytes = [](Operation *slice) {
    return double(plan::tensorBytes(slice->getResult(0).getType()));
  };
  if (auto slice = dyn_cast<graph::SliceOp>(op))
    return plan::tensorBytes(slice.getX().getType()) - sliceBytes(slice);
  auto region = dyn_cast<graph::RegionOp>(op);
  if (!region)
    return 0;
  double bytes = 0;
  for (BlockArgument input : region.getBody().front().getArguments()) {
    double left = plan::tensorBytes(input.getType());
    for (Operation *user : input.getUsers())
      left -= isa<graph::SliceOp>(user) ? sliceBytes(user) : left;
    bytes += std::max(0.0, left);
  }
  return bytes;
}

double operationUs(Operation *op, const DeviceRates &rates) {
  if (isa<graph::Collective>(op))
    return 0; // it runs beside others
  double flops = flopsOf(op), bytes = operandBytes(op) - untouchedBytes(op);
  if (graph::ContractOp product = addedProduct(op))
    return productUs(product, product.flops(), bytes, rates);
  if (graph::ContractOp product = codedProduct(op)) {
    bool readsCodes =
        productSource(cast<graph::RegionOp>(op), product.getRhs()).format.has_value();
    return productUs(product, product.flops(), bytes, rates, readsCodes);
  }
  if (auto product = dyn_cast<graph::ContractOp>(op))
    return productUs(product, flops, bytes, rates);
  LaunchWork work(rates);
  KernelWork stage;
  if (std::optional<KernelWork> conv = convolutionWork(op))
    stage = *conv;
  else if (std::optional<KernelWork> attention = attentionWork(op))
    stage = *attention;
  else if (movesOnly(op))
    stage.kind = WorkKind::Move;
  else if (!isa<graph::RegionOp>(op))
    stage.kind = WorkKind::Index;
  if (auto gather = dyn_cast<graph::GatherOp>(op))
    stage.bytes = 2.0 * plan::tensorBytes(gather.getY().getType());
  work.addStage(stage);
  return predictLaunch(work.cost(flops, bytes, 0, 0), rates).us;
}

} // namespace sluice
