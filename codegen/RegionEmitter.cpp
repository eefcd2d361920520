#include "codegen/RegionEmitter.h"

#include "codegen/RegionSymbol.h"
#include "codegen/RegionWalk.h"
#include "passes/ElasticRegion.h"
#include "passes/RegionDomain.h"

#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace sluice;

namespace {
/// Loads the operands' addresses: a worker's workspace is resolved by the caller.
SmallVector<Value> loadBuffers(LaneBuilder &lanes, Value buffers, size_t count) {
  auto pointer = LLVM::LLVMPointerType::get(lanes.b.getContext());
  SmallVector<Value> result;
  for (size_t i = 0; i < count; ++i) {
    Value slot = lanes.b.create<LLVM::GEPOp>(
        pointer, pointer, buffers, ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(i)});
    result.push_back(lanes.b.create<LLVM::LoadOp>(pointer, slot));
  }
  return result;
}

SmallVector<Value> loadParams(LaneBuilder &lanes, Value params, size_t count) {
  Type i64 = lanes.b.getI64Type();
  SmallVector<Value> result;
  for (size_t i = 0; i < count; ++i)
    result.push_back(
        lanes.b.create<LLVM::LoadOp>(i64, lanes.address(params, lanes.constant(i), i64)));
  return result;
}

void emitKernel(graph::RegionOp region, const RegionDomain &domain, StringRef symbol,
                ModuleOp kernels) {
  MLIRContext *context = kernels.getContext();
  ImplicitLocOpBuilder b(UnknownLoc::get(context), context);
  b.setInsertionPointToEnd(kernels.getBody());
  Type pointer = LLVM::LLVMPointerType::get(context), i64 = b.getI64Type();
  auto function = b.create<func::FuncOp>(
      symbol, b.getFunctionType({pointer, pointer, i64, i64, i64}, {}));
  Block *entry = function.addEntryBlock();
  b.setInsertionPointToStart(entry);

  SmallVector<Operation *> ops;
  for (Operation &op : region.getBody().front().without_terminator())
    ops.push_back(&op);
  LaneBuilder lanes(b);
  size_t workspaces = domain.scratchBytes > 0 ? 1 : 0;
  SmallVector<Value> buffers =
      loadBuffers(lanes, entry->getArgument(0),
                  domain.inputs.size() + domain.outputs.size() + workspaces);
  ValueEmitter values(lanes, domain, ops, buffers);
  Value scratch = workspaces > 0 ? buffers.back() : Value();
  RegionWalk walk(lanes, domain, ops, values, scratch);
  Value begin = entry->getArgument(2), end = entry->getArgument(3);
  std::optional<unsigned> tiled = tileInput(region);
  SmallVector<Value> params = loadParams(lanes, entry->getArgument(1),
                                         tiled               ? TileParams::count
                                         : isElastic(region) ? 1
                                                             : 0);
  if (tiled)
    walk.emitTiles(begin, end, *tiled, params);
  else if (isElastic(region))
    walk.emitElastic(begin, end, params[0]);
  else
    walk.emit(begin, end);
  b.create<func::ReturnOp>();
}
} // namespace

FailureOr<GeneratedKernel> sluice::emitRegion(graph::RegionOp region, ModuleOp kernels) {
  kernels.getContext()
      ->loadDialect<arith::ArithDialect, cf::ControlFlowDialect, func::FuncDialect,
                    LLVM::LLVMDialect, math::MathDialect, scf::SCFDialect,
                    vector::VectorDialect>();
  FailureOr<RegionDomain> domain = analyseRegion(region);
  if (failed(domain) || (isElastic(region) && domain->kind != WalkKind::Flat))
    return region.emitError("the operations of this region cannot be one kernel");
  GeneratedKernel kernel{regionSymbol(region, domain->kind), domain->units, domain->chunk,
                         domain->scratchBytes};
  if (!kernels.lookupSymbol(kernel.symbol))
    emitKernel(region, *domain, kernel.symbol, kernels);
  return kernel;
}
