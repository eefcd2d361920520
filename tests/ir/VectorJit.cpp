#include "tests/ir/VectorJit.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVMPass.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Operator.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/TargetParser/Host.h"

using namespace mlir;

namespace sluice::graph {

namespace {
/// The type of one element in memory and of one lane.
struct Storage {
  Type memory, lane;
  explicit Storage(Type element) {
    OpBuilder b(element.getContext());
    if (isa<FloatType>(element))
      memory = lane = b.getF32Type();
    else if (element.isInteger(1))
      memory = b.getI8Type(), lane = element;
    else
      memory = lane = element.isInteger(32) ? element : b.getI64Type();
  }
};

Value address(ImplicitLocOpBuilder &b, Value base, Value index, Type element) {
  return b.create<LLVM::GEPOp>(base.getType(), element, base,
                               ArrayRef<LLVM::GEPArg>{index});
}

Value load(ImplicitLocOpBuilder &b, Value base, Value index, Type element) {
  Storage storage(element);
  Value p = address(b, base, index, storage.memory);
  Value x =
      b.create<LLVM::LoadOp>(VectorType::get({16}, storage.memory), p, /*alignment=*/1);
  if (storage.memory == storage.lane)
    return x;
  Value zero = b.create<arith::ConstantOp>(b.getZeroAttr(x.getType()));
  return b.create<arith::CmpIOp>(arith::CmpIPredicate::ne, x, zero);
}

void store(ImplicitLocOpBuilder &b, Value x, Value base, Value index, Type element) {
  Storage storage(element);
  if (storage.memory != storage.lane)
    x = b.create<arith::ExtUIOp>(VectorType::get({16}, storage.memory), x);
  b.create<LLVM::StoreOp>(x, address(b, base, index, storage.memory), /*alignment=*/1);
}

/// void @kernel(ptr operands[0], ..., ptr result, i64 count)
OwningOpRef<ModuleOp> emit(Elementwise op) {
  MLIRContext *context = op->getContext();
  Location loc = UnknownLoc::get(context);
  OwningOpRef<ModuleOp> module = ModuleOp::create(loc);
  auto b = ImplicitLocOpBuilder::atBlockEnd(loc, module->getBody());
  Type pointer = LLVM::LLVMPointerType::get(context);
  SmallVector<Type> arguments(op->getNumOperands() + 1, pointer);
  arguments.push_back(b.getI64Type());
  auto function = b.create<func::FuncOp>("kernel", b.getFunctionType(arguments, {}));
  b.setInsertionPointToStart(function.addEntryBlock());
  Value zero = b.create<arith::ConstantOp>(b.getI64IntegerAttr(0));
  Value step = b.create<arith::ConstantOp>(b.getI64IntegerAttr(16));
  auto loop = b.create<scf::ForOp>(zero, function.getArguments().back(), step);
  b.create<func::ReturnOp>();
  b.setInsertionPointToStart(loop.getBody());
  SmallVector<Value> lanes;
  for (auto [i, operand] : llvm::enumerate(op->getOperands()))
    lanes.push_back(load(b, function.getArgument(i), loop.getInductionVar(),
                         tensorType(operand).getElementType()));
  Value y = op.emitVector(b, lanes);
  store(b, y, function.getArgument(lanes.size()), loop.getInductionVar(),
        tensorType(op->getResult(0)).getElementType());
  return module;
}

LogicalResult lower(ModuleOp module) {
  PassManager passes(module.getContext());
  passes.addPass(createCanonicalizerPass());
  passes.addPass(createCSEPass());
  passes.addPass(createConvertSCFToCFPass());
  passes.addPass(createConvertMathToLLVMPass());
  passes.addPass(createConvertFuncToLLVMPass());
  passes.addPass(createConvertControlFlowToLLVMPass());
  passes.addPass(createArithToLLVMConversionPass());
  passes.addPass(createReconcileUnrealizedCastsPass());
  return passes.run(module);
}

/// No instruction may be reassociated or fused at the compiler's choice.
void expectStrict(const llvm::Module &code) {
  for (const llvm::Function &function : code)
    for (const llvm::Instruction &instruction : llvm::instructions(function)) {
      if (llvm::isa<llvm::FPMathOperator>(instruction))
        EXPECT_FALSE(instruction.getFastMathFlags().any());
      if (auto *call = llvm::dyn_cast<llvm::IntrinsicInst>(&instruction))
        EXPECT_NE(call->getIntrinsicID(), llvm::Intrinsic::fmuladd);
    }
}

/// Optimised machine code that may call nothing from outside.
llvm::Expected<std::unique_ptr<llvm::orc::LLJIT>> compile(ModuleOp module,
                                                          const std::string &cpu) {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  auto context = std::make_unique<llvm::LLVMContext>();
  std::unique_ptr<llvm::Module> code = translateModuleToLLVMIR(module, *context);
  if (!code)
    return llvm::createStringError("no translation to LLVM");
  expectStrict(*code);
  llvm::orc::JITTargetMachineBuilder target{llvm::Triple(llvm::sys::getProcessTriple())};
  target.setCPU(cpu.empty() ? llvm::sys::getHostCPUName().str() : cpu);
  auto jit = llvm::orc::LLJITBuilder()
                 .setJITTargetMachineBuilder(target)
                 .setLinkProcessSymbolsByDefault(false)
                 .setPlatformSetUp(llvm::orc::setUpInactivePlatform)
                 .create();
  if (!jit)
    return jit.takeError();
  llvm::orc::ThreadSafeModule safe(std::move(code), std::move(context));
  if (llvm::Error error = (*jit)->addIRModule(std::move(safe)))
    return std::move(error);
  return jit;
}
} // namespace

struct VectorKernel::Code {
  std::unique_ptr<llvm::orc::LLJIT> jit;
  llvm::orc::ExecutorAddr entry;
};

VectorKernel::~VectorKernel() = default;
VectorKernel::VectorKernel(VectorKernel &&) noexcept = default;

VectorKernel::VectorKernel(const Build &build, const std::vector<Type> &operandTypes,
                           const std::string &cpu)
    : code(std::make_unique<Code>()) {
  DialectRegistry registry;
  registry.insert<arith::ArithDialect, math::MathDialect, scf::SCFDialect,
                  LLVM::LLVMDialect>();
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  context().appendDialectRegistry(registry);
  context().loadAllAvailableDialects();

  std::vector<HostTensor> inputs;
  for (Type type : operandTypes)
    inputs.push_back(HostTensor::zeros(RankedTensorType::get({16}, type)));
  OwningOpRef<ModuleOp> source = moduleOf(build, inputs);
  auto function = source->lookupSymbol<func::FuncOp>("f");
  auto op = function.front().getTerminator()->getOperand(0).getDefiningOp<Elementwise>();
  OwningOpRef<ModuleOp> module = emit(op);
  if (failed(verify(*module)) || failed(lower(*module))) {
    ADD_FAILURE() << "the vector code does not lower to LLVM";
    return;
  }
  auto jit = compile(*module, cpu);
  if (!jit) {
    ADD_FAILURE() << llvm::toString(jit.takeError());
    return;
  }
  code->jit = std::move(*jit);
  auto entry = code->jit->lookup("kernel");
  if (entry)
    code->entry = *entry;
  else
    ADD_FAILURE() << llvm::toString(entry.takeError());
}

void VectorKernel::run(std::vector<const void *> operands, void *result,
                       int64_t count) const {
  using P = const void *;
  if (!code->entry)
    return;
  if (operands.size() == 1)
    code->entry.toPtr<void (*)(P, void *, int64_t)>()(operands[0], result, count);
  else if (operands.size() == 2)
    code->entry.toPtr<void (*)(P, P, void *, int64_t)>()(operands[0], operands[1], result,
                                                         count);
  else
    code->entry.toPtr<void (*)(P, P, P, void *, int64_t)>()(operands[0], operands[1],
                                                            operands[2], result, count);
}

/// The elements as they lie in memory for the kernels of the test.
static std::vector<char> toMemory(const HostTensor &tensor) {
  std::vector<char> bytes;
  auto append = [&](auto value) {
    const char *raw = reinterpret_cast<const char *>(&value);
    bytes.insert(bytes.end(), raw, raw + sizeof(value));
  };
  for (double x : tensor.reals)
    append(static_cast<float>(x));
  for (int64_t x : tensor.integers)
    if (tensor.elementType.isInteger(1))
      append(static_cast<int8_t>(x));
    else if (tensor.elementType.isInteger(32))
      append(static_cast<int32_t>(x));
    else
      append(x);
  return bytes;
}

void expectAsInterpreted(const Build &build, const std::vector<HostTensor> &inputs,
                         const std::string &name, const std::string &cpu) {
  std::vector<mlir::Type> types;
  std::vector<std::vector<char>> memory;
  std::vector<const void *> pointers;
  for (const HostTensor &input : inputs) {
    types.push_back(input.elementType);
    memory.push_back(toMemory(input));
  }
  for (const std::vector<char> &bytes : memory)
    pointers.push_back(bytes.data());
  const HostTensor expected = run(build, inputs, Precision::Single)[0];
  std::vector<char> wanted = toMemory(expected), got(wanted.size());
  VectorKernel(build, types, cpu).run(pointers, got.data(), expected.size());
  const size_t width = wanted.size() / expected.size();
  int failures = 0;
  for (size_t i = 0; i < wanted.size() && failures < 5; i += width)
    if (!std::equal(&wanted[i], &wanted[i] + width, &got[i])) {
      ++failures;
      const HostTensor &x = inputs[0];
      ADD_FAILURE() << name << ": element " << i / width << ", first operand "
                    << (x.isReal() ? x.reals[i / width] : double(x.integers[i / width]))
                    << ", expected "
                    << (expected.isReal() ? expected.reals[i / width]
                                          : double(expected.integers[i / width]));
    }
}

} // namespace sluice::graph
