// Kernels with one fault each: the emulator must find it, and nothing where there is
// none.
#include "tests/emulator/Emulator.h"

#include "llvm/AsmParser/Parser.h"
#include "llvm/Bitcode/BitcodeWriter.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/SourceMgr.h"

#include <gtest/gtest.h>

#include <numeric>

using namespace sluice::emulator;

namespace {
/// A kernel over 64 floats in and out, with `body` between thread number and end:
/// %t is the thread's number (i64), %a and %b the operands, @s shared memory.
std::string kernelWith(const std::string &body) {
  return R"(
@s = external addrspace(3) global [0 x float], align 16
define void @k(ptr %a, ptr %b) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ctaid = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %t = zext i32 %tid to i64
  %block = zext i32 %ctaid to i64
  %in = getelementptr float, ptr %a, i64 %t
  %out = getelementptr float, ptr %b, i64 %t
  %other = xor i64 %t, 32
  %mine = getelementptr float, ptr addrspace(3) @s, i64 %t
  %theirs = getelementptr float, ptr addrspace(3) @s, i64 %other
  %x = load float, ptr %in
)" + body +
         R"(
  ret void
}
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare void @llvm.nvvm.barrier0()
declare void @llvm.nvvm.bar.warp.sync(i32)
declare float @llvm.nvvm.shfl.sync.bfly.f32(i32, float, i32, i32)
!nvvm.annotations = !{!0}
!0 = !{ptr @k, !"kernel", i32 1}
)";
}

class PlantedFault : public testing::Test {
protected:
  Report run(const std::string &body, int64_t blocks = 1) {
    llvm::LLVMContext context;
    llvm::SMDiagnostic error;
    auto module = llvm::parseAssemblyString(kernelWith(body), error, context);
    EXPECT_TRUE(module != nullptr) << error.getMessage().str();
    if (!module)
      return {};
    std::string bitcode;
    llvm::raw_string_ostream stream(bitcode);
    llvm::WriteBitcodeToFile(*module, stream);
    auto emulator = Emulator::create(bitcode);
    if (!emulator) {
      ADD_FAILURE() << llvm::toString(emulator.takeError());
      return {};
    }
    std::iota(std::begin(in), std::end(in), 0.0f);
    (*emulator)->addBuffer(in, sizeof in, true);
    (*emulator)->addBuffer(out, sizeof out, false);
    auto report = (*emulator)->run({"k", blocks, 64, 4096, {in, out}});
    if (!report) {
      ADD_FAILURE() << llvm::toString(report.takeError());
      return {};
    }
    return *report;
  }

  static void expectOnly(const Report &report, Fault fault) {
    EXPECT_TRUE(report.has(fault)) << "not found: " << faultName(fault);
    for (const Finding &finding : report.findings)
      EXPECT_EQ(finding.fault, fault) << finding.text;
  }

  alignas(64) float in[64], out[64];
};

const char *const exchange = R"(
  store float %x, ptr addrspace(3) %mine
  call void @llvm.nvvm.barrier0()
  %y = load float, ptr addrspace(3) %theirs
  store float %y, ptr %out)";
} // namespace

TEST_F(PlantedFault, NoneInAnExchangeThroughSharedMemory) {
  Report report = run(exchange);
  for (const Finding &finding : report.findings)
    ADD_FAILURE() << finding.text;
  for (int i = 0; i < 64; ++i)
    EXPECT_EQ(out[i], in[i ^ 32]);
  EXPECT_EQ(report.bytesLoaded, 256);
  EXPECT_EQ(report.bytesStored, 256);
  EXPECT_EQ(report.bankConflicts, 0);
}

TEST_F(PlantedFault, MissingBarrier) {
  expectOnly(run(R"(
  store float %x, ptr addrspace(3) %theirs
  call void @llvm.nvvm.barrier0()
  store float %x, ptr addrspace(3) %mine
  %y = load float, ptr addrspace(3) %theirs
  store float %y, ptr %out)"),
             Fault::Race);
}

TEST_F(PlantedFault, WritesBesideReadsOfAnotherWarp) {
  expectOnly(run(std::string(exchange) + R"(
  store float %y, ptr addrspace(3) %mine)"),
             Fault::Race);
}

TEST_F(PlantedFault, BlocksThatWriteOnePlace) {
  expectOnly(run("  store float %x, ptr %out", /*blocks=*/2), Fault::Race);
}

TEST_F(PlantedFault, LanesThatWriteOnePlaceWithoutOrder) {
  expectOnly(run("  store float %x, ptr %b"), Fault::Race);
}

TEST_F(PlantedFault, WarpsAreOrderedByTheirOwnBarrierOnly) {
  // Neighbours in a warp, so its barrier is enough.
  Report report = run(R"(
  store float %x, ptr addrspace(3) %mine
  call void @llvm.nvvm.bar.warp.sync(i32 -1)
  %next = xor i64 %t, 1
  %place = getelementptr float, ptr addrspace(3) @s, i64 %next
  %y = load float, ptr addrspace(3) %place
  store float %y, ptr %out)");
  EXPECT_TRUE(report.findings.empty()) << report.findings.front().text;
}

TEST_F(PlantedFault, OutOfBounds) {
  expectOnly(run(R"(
  %far = getelementptr float, ptr %out, i64 1
  store float %x, ptr %far)"),
             Fault::OutOfBounds);
}

TEST_F(PlantedFault, Misaligned) {
  expectOnly(run(R"(
  %odd = getelementptr i8, ptr %a, i64 4
  %v = load <2 x float>, ptr %odd, align 8
  %y = extractelement <2 x float> %v, i64 0
  store float %y, ptr %out)"),
             Fault::Misaligned);
}

TEST_F(PlantedFault, ReadOfUnwrittenMemory) {
  expectOnly(run(R"(
  %y = load float, ptr addrspace(3) %mine
  store float %y, ptr %out)"),
             Fault::UnwrittenRead);
}

TEST_F(PlantedFault, BarrierThatHalfTheThreadsReach) {
  expectOnly(run(R"(
  %lower = icmp ult i64 %t, 32
  br i1 %lower, label %wait, label %done
wait:
  call void @llvm.nvvm.barrier0()
  br label %done
done:
  store float %x, ptr %out)"),
             Fault::BarrierDivergence);
}

TEST_F(PlantedFault, ShuffleThatSomeLanesSkip) {
  expectOnly(run(R"(
  %odd = and i64 %t, 1
  %isOdd = icmp eq i64 %odd, 1
  br i1 %isOdd, label %move, label %done
move:
  %y = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %x, i32 1, i32 31)
  br label %done
done:
  store float %x, ptr %out)"),
             Fault::BarrierDivergence);
}

TEST_F(PlantedFault, BadStrideInSharedMemory) {
  // All lanes of a warp in one bank.
  Report report = run(R"(
  %far = mul i64 %t, 32
  %low = and i64 %far, 1023
  %place = getelementptr float, ptr addrspace(3) @s, i64 %low
  %first = icmp ult i64 %t, 32
  br i1 %first, label %write, label %done
write:
  store float %x, ptr addrspace(3) %place
  br label %done
done:
  store float %x, ptr %out)");
  EXPECT_TRUE(report.findings.empty());
  EXPECT_EQ(report.bankConflicts, 31);
}

TEST_F(PlantedFault, BadStrideInGlobalMemory) {
  // Eight floats apart: each lane loads a sector of its own.
  Report report = run(R"(
  %far = mul i64 %t, 8
  %low = and i64 %far, 63
  %place = getelementptr float, ptr %a, i64 %low
  %y = load volatile float, ptr %place
  store float %y, ptr %out)");
  EXPECT_TRUE(report.findings.empty());
  EXPECT_EQ(report.bytesLoaded, 256 + 2 * 8 * 32);
}

TEST(Emulator, NamesWhatItDoesNotEmulate) {
  llvm::LLVMContext context;
  llvm::SMDiagnostic error;
  auto module = llvm::parseAssemblyString(R"(
define void @k() {
  call void @llvm.nvvm.membar.sys()
  ret void
}
declare void @llvm.nvvm.membar.sys()
!nvvm.annotations = !{!0}
!0 = !{ptr @k, !"kernel", i32 1}
)",
                                          error, context);
  std::string bitcode;
  llvm::raw_string_ostream stream(bitcode);
  llvm::WriteBitcodeToFile(*module, stream);
  auto emulator = Emulator::create(bitcode);
  ASSERT_FALSE(static_cast<bool>(emulator));
  EXPECT_EQ(llvm::toString(emulator.takeError()),
            "'llvm.nvvm.membar.sys' in 'k' is not emulated");
}
