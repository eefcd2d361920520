#include "codegen/cuda/PtxCompiler.h"

#include "codegen/KernelLowering.h"
#include "codegen/KernelPasses.h"
#include "codegen/cuda/CudaRegion.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"

#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"

#include <mutex>

using namespace llvm;

namespace {
constexpr StringRef triple = "nvptx64-nvidia-cuda";

std::unique_ptr<TargetMachine> makeMachine(StringRef processor, StringRef version,
                                           std::string &message) {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
  const Target *target = TargetRegistry::lookupTarget(triple.str(), message);
  if (!target)
    return nullptr;
  TargetOptions options;
  options.AllowFPOpFusion = FPOpFusion::Strict; // bits: fma only where it is written
  return std::unique_ptr<TargetMachine>(target->createTargetMachine(
      triple, processor, ("+" + version).str(), options, Reloc::PIC_, std::nullopt,
      CodeGenOptLevel::Aggressive));
}
} // namespace

mlir::FailureOr<std::string> sluice::cuda::lowerCudaKernels(mlir::ModuleOp kernels) {
  mlir::registerNVVMDialectTranslation(*kernels.getContext());
  return lowerKernels(kernels, [](mlir::ModuleOp module) {
    using mlir::NVVM::NVVMDialect;
    for (auto function : module.getOps<mlir::LLVM::LLVMFuncOp>())
      if (mlir::Attribute threads = function->removeAttr(kernelThreads)) {
        function->setAttr(NVVMDialect::getKernelFuncAttrName(),
                          mlir::UnitAttr::get(module.getContext()));
        function->setAttr(NVVMDialect::getMaxntidAttrName(), threads);
      }
  });
}

mlir::FailureOr<std::string> sluice::cuda::writePtx(mlir::Location loc,
                                                    const std::string &bitcode,
                                                    const std::string &processor,
                                                    const std::string &version) {
  LLVMContext context;
  auto module = parseBitcodeFile(MemoryBufferRef(bitcode, "kernels"), context);
  if (!module)
    return mlir::emitError(loc) << toString(module.takeError());
  std::string message;
  std::unique_ptr<TargetMachine> machine = makeMachine(processor, version, message);
  if (!machine)
    return mlir::emitError(loc) << "no code generator for CUDA: " << message;
  (*module)->setTargetTriple(triple);
  (*module)->setDataLayout(machine->createDataLayout());
  simplifyKernels(**module, *machine);
  for (const Function &function : **module)
    if (function.isDeclaration() && !function.isIntrinsic())
      return mlir::emitError(loc) << "CUDA kernels call '" << function.getName().str()
                                  << "', expected no calls";
  SmallString<0> text;
  raw_svector_ostream stream(text);
  legacy::PassManager passes;
  if (machine->addPassesToEmitFile(passes, stream, nullptr,
                                   CodeGenFileType::AssemblyFile))
    return mlir::emitError(loc) << "the target cannot write assembly";
  passes.run(**module);
  return text.str().str();
}
