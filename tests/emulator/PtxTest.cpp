// The kernels' text: deterministic, and accepted by ptxas for every architecture.
#include "codegen/cuda/CudaRegion.h"
#include "codegen/cuda/PtxCompiler.h"
#include "tests/emulator/CudaRegionCase.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Program.h"

#include <cstdlib>
#include <fstream>

using namespace mlir;
using namespace sluice;
using namespace sluice::test;

namespace {
std::vector<std::pair<const char *, std::unique_ptr<RegionCase>>> kernelsOfEachKind() {
  std::vector<std::pair<const char *, std::unique_ptr<RegionCase>>> cases;
  auto add = [&](const char *name, const Body &body, std::vector<HostTensor> inputs) {
    cases.push_back({name, std::make_unique<RegionCase>(body, std::move(inputs))});
  };
  add("elementwise",
      [](GraphBuilder &b, auto x) { return Values{b.exp(b.add(x[0], x[1]))}; },
      {uniform({1003}, 1), uniform({1003}, 2)});
  auto softmax = [](GraphBuilder &b, ArrayRef<Value> x) {
    Value largest = b.broadcastLike(b.reduce(x[0], "max", {1}, true), x[0]);
    Value e = b.exp(b.sub(x[0], largest));
    return Values{b.div(e, b.broadcastLike(b.sum(e, {1}, true), e))};
  };
  add("softmax of short rows", softmax, {uniform({9, 64})});
  add("softmax of long rows", softmax, {uniform({3, 3000})});
  add("columns", [](GraphBuilder &b, auto x) { return Values{b.sum(x[0], {0}, false)}; },
      {uniform({100, 132})});
  add("channels",
      [](GraphBuilder &b, auto x) { return Values{b.sum(x[0], {0, 2}, false)}; },
      {uniform({4, 5, 49})});
  return cases;
}

std::string ptxOf(RegionCase &region) {
  OwningOpRef<ModuleOp> kernels = ModuleOp::create(UnknownLoc::get(&context()));
  if (failed(cuda::emitCudaRegion(region.region(), *kernels, sharedLimit)))
    return "";
  auto bitcode = cuda::lowerCudaKernels(*kernels);
  if (failed(bitcode))
    return "";
  auto text = cuda::writePtx(kernels->getLoc(), *bitcode, "sm_80", "ptx80");
  return succeeded(text) ? *text : "";
}

std::string findPtxas() {
  for (const char *path : {"ptxas", "/usr/local/cuda/bin/ptxas"})
    if (auto found = llvm::sys::findProgramByName(path))
      return *found;
  return "";
}
} // namespace

TEST(Ptx, SameTextEveryTime) {
  for (auto &[name, region] : kernelsOfEachKind()) {
    std::string text = ptxOf(*region);
    EXPECT_NE(text.find(".entry"), std::string::npos) << name;
    EXPECT_EQ(text, ptxOf(*region)) << name;
  }
}

TEST(Ptx, UsesVectorsOfSixteenBytesAndNoFusedProducts) {
  RegionCase region(
      [](GraphBuilder &b, auto x) { return Values{b.add(b.mul(x[0], x[1]), x[1])}; },
      {uniform({4096}, 1), uniform({4096}, 2)});
  std::string text = ptxOf(region);
  EXPECT_NE(text.find("ld.global.v4.f32"), std::string::npos) << text;
  EXPECT_NE(text.find("st.global.v4.f32"), std::string::npos) << text;
  EXPECT_EQ(text.find("fma."), std::string::npos) << text;
}

TEST(Ptx, IsAcceptedForEveryArchitectureWithoutSpills) {
  std::string ptxas = findPtxas();
  if (ptxas.empty())
    GTEST_SKIP() << "ptxas is not installed";
  llvm::SmallString<64> folder;
  ASSERT_FALSE(llvm::sys::fs::createUniqueDirectory("sluice-ptx", folder));
  std::string input = (folder + "/k.ptx").str(), output = (folder + "/k.cubin").str(),
              messages = (folder + "/k.txt").str();
  for (auto &[name, region] : kernelsOfEachKind()) {
    std::ofstream(input) << ptxOf(*region);
    for (const char *target : {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"}) {
      std::string command = ptxas + " -v -arch=" + target + " -o " + output + " " +
                            input + " > " + messages + " 2>&1";
      int code = std::system(command.c_str());
      std::ifstream stream(messages);
      std::string said((std::istreambuf_iterator<char>(stream)), {});
      EXPECT_EQ(code, 0) << name << " for " << target << ": " << said;
      EXPECT_NE(said.find("0 bytes spill stores, 0 bytes spill loads"), std::string::npos)
          << name << " for " << target << ": " << said;
    }
  }
  llvm::sys::fs::remove_directories(folder);
}
