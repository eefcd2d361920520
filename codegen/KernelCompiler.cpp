// MLIR kernels to machine code: lowered once, then optimised and emitted per feature
// level.
#include "codegen/KernelCompiler.h"

#include "codegen/ImageLinker.h"
#include "codegen/KernelLowering.h"
#include "codegen/KernelPasses.h"

#include "mlir/IR/Diagnostics.h"

#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"

#include <mutex>
#include <thread>

using namespace llvm;

namespace {
constexpr StringRef triple = "x86_64-unknown-linux-gnu";

/// One feature level, on its own thread and in its own LLVM context.
class LevelCompiler {
public:
  LevelCompiler(StringRef level, const std::string &bitcode,
                const sluice::KernelCompilerOptions &options, std::mutex &inspection)
      : level(level), bitcode(bitcode), options(options), inspection(inspection) {}

  void run() {
    if (Error failed = compile())
      error = toString(std::move(failed));
  }

  std::string level, object, error;

private:
  Error compile();
  Error checkSelfContained(const Module &module);
  void setTarget(Module &module, TargetMachine &machine);
  Error writeObject(Module &module, TargetMachine &machine);

  const std::string &bitcode;
  const sluice::KernelCompilerOptions &options;
  std::mutex &inspection;
};
} // namespace

Error LevelCompiler::compile() {
  LLVMContext context;
  Expected<std::unique_ptr<Module>> module =
      parseBitcodeFile(MemoryBufferRef(bitcode, "kernels"), context);
  if (!module)
    return module.takeError();
  std::string message;
  const Target *target = TargetRegistry::lookupTarget(triple.str(), message);
  if (!target)
    return createStringError(message);
  TargetOptions targetOptions;
  targetOptions.AllowFPOpFusion =
      FPOpFusion::Strict; // products and sums join only where fma says so
  std::unique_ptr<TargetMachine> machine(target->createTargetMachine(
      triple, level, /*Features=*/"", targetOptions, Reloc::PIC_, CodeModel::Small,
      CodeGenOptLevel::Aggressive));
  setTarget(**module, *machine);
  sluice::simplifyKernels(**module, *machine);
  if (Error error = checkSelfContained(**module))
    return error;
  if (options.inspect) {
    std::lock_guard guard(inspection);
    options.inspect(**module, level);
  }
  return writeObject(**module, *machine);
}

void LevelCompiler::setTarget(Module &module, TargetMachine &machine) {
  module.setTargetTriple(triple);
  module.setDataLayout(machine.createDataLayout());
  for (Function &function : module) {
    if (function.isDeclaration())
      continue;
    function.addFnAttr("target-cpu", level);
    // Vectors of 16 lanes are one register where there is one.
    function.addFnAttr("prefer-vector-width", "512");
    function.addFnAttr("min-legal-vector-width", "512");
    function.addFnAttr(Attribute::NoUnwind);
  }
}

Error LevelCompiler::checkSelfContained(const Module &module) {
  std::string names;
  for (const Function &function : module)
    if (function.isDeclaration() && !function.isIntrinsic())
      names += (names.empty() ? "'" : ", '") + function.getName().str() + "'";
  if (names.empty())
    return Error::success();
  return createStringError(
      "generated kernels call " + names +
      ", expected no calls: expand the operation where it is emitted");
}

Error LevelCompiler::writeObject(Module &module, TargetMachine &machine) {
  SmallString<0> bytes;
  raw_svector_ostream stream(bytes);
  legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, stream, nullptr, CodeGenFileType::ObjectFile))
    return createStringError("the target cannot write object files");
  passes.run(module);
  object = bytes.str().str();
  return Error::success();
}

mlir::FailureOr<std::vector<sluice::KernelImage>>
sluice::compileKernels(mlir::ModuleOp kernels, const KernelCompilerOptions &options) {
  mlir::FailureOr<std::string> bitcode = lowerKernels(kernels);
  if (mlir::failed(bitcode))
    return mlir::failure();
  static std::once_flag targets;
  std::call_once(targets, [] {
    InitializeNativeTarget();
    InitializeNativeTargetAsmPrinter();
  });
  std::mutex inspection;
  std::vector<LevelCompiler> compilers;
  for (const std::string &level : options.levels)
    compilers.emplace_back(level, *bitcode, options, inspection);
  std::vector<std::thread> threads;
  for (LevelCompiler &compiler : compilers)
    threads.emplace_back([&compiler] { compiler.run(); });
  for (std::thread &thread : threads)
    thread.join();

  std::vector<KernelImage> images;
  for (LevelCompiler &compiler : compilers) {
    if (!compiler.error.empty())
      return kernels.emitError()
             << compiler.error << " (level '" << compiler.level << "')";
    Expected<std::string> image = linkImage(compiler.object);
    if (!image)
      return kernels.emitError() << toString(image.takeError());
    images.push_back({compiler.level, *image});
  }
  return images;
}
