#include "codegen/KernelCompiler.h"
#include "tests/codegen/RegionCase.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Operator.h"

using namespace mlir;
using namespace sluice;
using namespace sluice::test;

namespace {
Values everything(GraphBuilder &b, ArrayRef<Value> x) {
  Value y = b.make<graph::GeluOp>(b.add(x[0], x[1]), /*tanh_form=*/true);
  Value s = b.broadcastLike(b.sum(b.mul(y, x[0]), {1}, true), y);
  Value r = b.rsqrt(b.make<graph::SigmoidOp>(b.log(b.exp(b.add(y, s)))));
  return {b.make<graph::PowOp>(r, b.make<graph::ErfOp>(x[1])), b.make<graph::TanhOp>(r),
          b.make<graph::SinOp>(r), b.make<graph::AtanOp>(r)};
}

OwningOpRef<ModuleOp> kernelsOf(RegionCase &region) {
  OwningOpRef<ModuleOp> kernels = ModuleOp::create(UnknownLoc::get(&context()));
  EXPECT_TRUE(succeeded(emitRegion(region.region(), *kernels)));
  return kernels;
}

std::string errorOf(ModuleOp kernels) {
  std::string messages;
  ScopedDiagnosticHandler handler(&context(), [&](Diagnostic &diagnostic) {
    messages += diagnostic.str() + "\n";
    return success();
  });
  EXPECT_TRUE(failed(compileKernels(kernels)));
  return messages;
}
} // namespace

TEST(KernelCompiler, UsesNoFastMathAndFusesOnlyWhatSaysFma) {
  RegionCase region(everything, {uniform({3, 100}, 1), uniform({3, 100}, 2)});
  OwningOpRef<ModuleOp> kernels = kernelsOf(region);
  int levels = 0, operations = 0;
  KernelCompilerOptions options;
  options.inspect = [&](const llvm::Module &module, StringRef) {
    ++levels;
    for (const llvm::Function &function : module)
      for (const llvm::Instruction &instruction : instructions(function)) {
        if (auto *math = dyn_cast<llvm::FPMathOperator>(&instruction)) {
          llvm::FastMathFlags flags = math->getFastMathFlags();
          flags.setNoSignedZeros(false);
          EXPECT_FALSE(flags.any());
          ++operations;
        }
        if (auto *intrinsic = dyn_cast<llvm::IntrinsicInst>(&instruction))
          EXPECT_NE(intrinsic->getIntrinsicID(), llvm::Intrinsic::fmuladd);
      }
  };
  ASSERT_TRUE(succeeded(compileKernels(*kernels, options)));
  EXPECT_EQ(levels, 2);
  EXPECT_GT(operations, 100);
}

TEST(KernelCompiler, GivesTheSameBytesTwice) {
  RegionCase region(everything, {uniform({3, 100}, 1), uniform({3, 100}, 2)});
  auto first = compileKernels(*kernelsOf(region)),
       second = compileKernels(*kernelsOf(region));
  ASSERT_TRUE(succeeded(first) && succeeded(second));
  ASSERT_EQ(first->size(), 2u);
  EXPECT_NE((*first)[0].bytes, (*first)[1].bytes);
  for (size_t i = 0; i < first->size(); ++i)
    EXPECT_EQ((*first)[i].bytes, (*second)[i].bytes);
}

TEST(KernelCompiler, SharesTheKernelOfIdenticalRegions) {
  RegionCase first(everything, {uniform({3, 100}, 1), uniform({3, 100}, 2)});
  RegionCase same(everything, {uniform({3, 100}, 3), uniform({3, 100}, 4)});
  RegionCase other(everything, {uniform({3, 101}, 1), uniform({3, 101}, 2)});
  OwningOpRef<ModuleOp> kernels = kernelsOf(first);
  auto again = emitRegion(same.region(), *kernels);
  ASSERT_TRUE(succeeded(again));
  EXPECT_EQ(llvm::range_size(kernels->getOps<func::FuncOp>()), 1u);
  auto different = emitRegion(other.region(), *kernels);
  ASSERT_TRUE(succeeded(different));
  EXPECT_NE(again->symbol, different->symbol);
}

TEST(KernelCompiler, RefusesCallsOutOfTheImage) {
  context().loadDialect<LLVM::LLVMDialect>();
  OwningOpRef<ModuleOp> kernels = ModuleOp::create(UnknownLoc::get(&context()));
  ImplicitLocOpBuilder b(UnknownLoc::get(&context()), &context());
  b.setInsertionPointToEnd(kernels->getBody());
  auto outside = b.create<func::FuncOp>("expf", b.getFunctionType({}, {}));
  outside.setPrivate();
  auto kernel = b.create<func::FuncOp>("k", b.getFunctionType({}, {}));
  b.setInsertionPointToStart(kernel.addEntryBlock());
  b.create<func::CallOp>(outside);
  b.create<func::ReturnOp>();
  EXPECT_NE(errorOf(*kernels).find("call 'expf', expected no calls"), std::string::npos);
}

TEST(KernelCompiler, RefusesMathThatBecomesALibraryCall) {
  context().loadDialect<math::MathDialect, LLVM::LLVMDialect>();
  OwningOpRef<ModuleOp> kernels = ModuleOp::create(UnknownLoc::get(&context()));
  ImplicitLocOpBuilder b(UnknownLoc::get(&context()), &context());
  b.setInsertionPointToEnd(kernels->getBody());
  Type f32 = b.getF32Type();
  auto kernel = b.create<func::FuncOp>("k", b.getFunctionType({f32}, {f32}));
  b.setInsertionPointToStart(kernel.addEntryBlock());
  b.create<func::ReturnOp>(b.create<math::ExpOp>(kernel.getArgument(0)).getResult());
  EXPECT_NE(errorOf(*kernels).find("undefined symbol: expf"), std::string::npos);
}
