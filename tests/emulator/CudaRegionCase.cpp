#include "tests/emulator/CudaRegionCase.h"

#include "codegen/cuda/CudaRegion.h"
#include "codegen/cuda/PtxCompiler.h"

using namespace mlir;

namespace sluice::test {
namespace {
class DeviceBuffer {
public:
  explicit DeviceBuffer(size_t bytes)
      : storage(bytes + 256, static_cast<char>(0xa5)), bytes(bytes) {
    auto base = reinterpret_cast<uintptr_t>(storage.data());
    data = reinterpret_cast<char *>((base + 255) / 256 * 256);
  }
  std::vector<char> storage;
  size_t bytes;
  char *data;
};
} // namespace

CudaRun runOnEmulator(RegionCase &region, std::optional<InPlace> inPlace,
                      int64_t firstThread) {
  CudaRun result;
  OwningOpRef<ModuleOp> kernels = ModuleOp::create(UnknownLoc::get(&context()));
  graph::RegionOp op = region.region();
  auto kernel = cuda::emitCudaRegion(op, *kernels, sharedLimit);
  EXPECT_TRUE(succeeded(kernel));
  if (failed(kernel))
    return result;
  auto bitcode = cuda::lowerCudaKernels(*kernels);
  EXPECT_TRUE(succeeded(bitcode));
  if (failed(bitcode))
    return result;
  auto emulator = emulator::Emulator::create(*bitcode);
  if (!emulator) {
    ADD_FAILURE() << llvm::toString(emulator.takeError());
    return result;
  }

  std::vector<std::unique_ptr<DeviceBuffer>> owned;
  emulator::Launch launch{
      kernel->symbol, kernel->blocks, kernel->threads, kernel->sharedBytes, {},
      firstThread};
  for (const HostTensor &input : region.inputs) {
    std::vector<uint8_t> bytes = toBytes(input);
    auto &buffer = owned.emplace_back(std::make_unique<DeviceBuffer>(bytes.size()));
    std::copy(bytes.begin(), bytes.end(), buffer->data);
    (*emulator)->addBuffer(buffer->data, bytes.size(), true);
    launch.operands.push_back(buffer->data);
    result.bytesIn += static_cast<int64_t>(bytes.size());
  }
  std::vector<char *> places;
  for (auto [i, output] : llvm::enumerate(op.getResults())) {
    auto type = graph::tensorType(output);
    size_t bytes = toBytes(HostTensor::zeros(type)).size();
    result.bytesOut += static_cast<int64_t>(bytes);
    if (inPlace && inPlace->output == i) {
      places.push_back(static_cast<char *>(launch.operands[inPlace->input]));
    } else {
      auto &buffer = owned.emplace_back(std::make_unique<DeviceBuffer>(bytes));
      (*emulator)->addBuffer(buffer->data, bytes, false);
      places.push_back(buffer->data);
    }
    launch.operands.push_back(places.back());
  }
  auto report = (*emulator)->run(launch);
  if (!report) {
    ADD_FAILURE() << llvm::toString(report.takeError());
    return result;
  }
  result.report = *report;
  for (auto [place, output] : llvm::zip_equal(places, op.getResults()))
    result.outputs.push_back(
        fromBytes(reinterpret_cast<uint8_t *>(place), graph::tensorType(output)));
  return result;
}

CudaRun checkOnEmulator(RegionCase &region, double tolerance,
                        std::optional<InPlace> inPlace) {
  CudaRun run = runOnEmulator(region, inPlace);
  for (const emulator::Finding &finding : run.report.findings)
    ADD_FAILURE() << finding.text;
  expectMatches(region.expected(), run.outputs, tolerance);
  CudaRun turned = runOnEmulator(region, inPlace, /*firstThread=*/77);
  expectSameBits(run.outputs, turned.outputs);
  return run;
}

// Of RegionCase.h: what is checked there as a CPU kernel is checked here as a CUDA one.
std::vector<HostTensor> checkRegion(RegionCase &region, double tolerance) {
  return checkOnEmulator(region, tolerance).outputs;
}

} // namespace sluice::test
