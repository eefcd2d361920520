#include "codegen/cuda/CudaRegion.h"

#include "codegen/RegionSymbol.h"
#include "codegen/cuda/BlockWalk.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace sluice;
using namespace sluice::cuda;

namespace {
constexpr unsigned sharedSpace = NVVM::NVVMMemorySpace::kSharedMemorySpace;

/// The address of the block's dynamic shared memory, as a generic one.
Value sharedMemory(ImplicitLocOpBuilder &b, ModuleOp kernels) {
  MLIRContext *context = b.getContext();
  if (!kernels.lookupSymbol(sharedSymbol)) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(kernels.getBody());
    b.create<LLVM::GlobalOp>(LLVM::LLVMArrayType::get(b.getI8Type(), 0),
                             /*isConstant=*/false, LLVM::Linkage::External, sharedSymbol,
                             Attribute(), /*alignment=*/16, sharedSpace);
  }
  Value global = b.create<LLVM::AddressOfOp>(
      LLVM::LLVMPointerType::get(context, sharedSpace), sharedSymbol);
  return b.create<LLVM::AddrSpaceCastOp>(LLVM::LLVMPointerType::get(context), global);
}

void emitKernel(ArrayRef<Operation *> ops, const RegionDomain &domain,
                const BlockLayout &layout, StringRef symbol, ModuleOp kernels) {
  MLIRContext *context = kernels.getContext();
  ImplicitLocOpBuilder b(UnknownLoc::get(context), context);
  b.setInsertionPointToEnd(kernels.getBody());
  size_t operands = domain.inputs.size() + domain.outputs.size();
  SmallVector<Type> pointers(operands, LLVM::LLVMPointerType::get(context));
  auto function = b.create<func::FuncOp>(symbol, b.getFunctionType(pointers, {}));
  function->setAttr(kernelThreads, b.getDenseI32ArrayAttr({static_cast<int32_t>(
                                       layout.threads * layout.unitsPerBlock)}));
  Block *entry = function.addEntryBlock();
  b.setInsertionPointToStart(entry);

  LaneBuilder lanes(b, layout.width), single(b, 1);
  Value shared = layout.sharedBytes() > 0 ? sharedMemory(b, kernels) : Value();
  SmallVector<Value> buffers(entry->args_begin(), entry->args_end());
  if (layout.keptBytes > 0)
    buffers.push_back(BlockWalk::keptBase(lanes, layout, shared));
  ValueEmitter values(lanes, domain, ops, buffers), tail(single, domain, ops, buffers);
  values.assumeAligned();
  BlockWalk(domain, layout, ops, values, tail, lanes, single, shared).emit();
  b.create<func::ReturnOp>();
}
} // namespace

FailureOr<CudaKernel> sluice::cuda::emitCudaRegion(graph::RegionOp region,
                                                   ModuleOp kernels, int64_t mostShared) {
  kernels.getContext()
      ->loadDialect<arith::ArithDialect, func::FuncDialect, LLVM::LLVMDialect,
                    math::MathDialect, NVVM::NVVMDialect, scf::SCFDialect,
                    vector::VectorDialect>();
  FailureOr<RegionDomain> domain = analyseRegion(region);
  if (failed(domain))
    return region.emitError("the operations of this region cannot be one kernel");
  SmallVector<Operation *> ops;
  for (Operation &op : region.getBody().front().without_terminator())
    ops.push_back(&op);
  BlockLayout layout = chooseLayout(ops, *domain);
  if (layout.sharedBytes() > mostShared)
    return region.emitError("this region needs ")
           << layout.sharedBytes()
           << " bytes of shared memory in a block, the target has " << mostShared;
  CudaKernel kernel{regionSymbol(region, domain->kind), layout.blocks,
                    layout.threads * layout.unitsPerBlock, layout.sharedBytes()};
  if (!kernels.lookupSymbol(kernel.symbol))
    emitKernel(ops, *domain, layout, kernel.symbol, kernels);
  return kernel;
}
