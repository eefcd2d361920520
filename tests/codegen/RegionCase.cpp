#include "tests/codegen/RegionCase.h"

#include "kernels/Kernel.h"
#include "runtime/CpuLevel.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Verifier.h"

#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <random>

using namespace mlir;

namespace sluice::test {

MLIRContext &context() {
  static MLIRContext instance(MLIRContext::Threading::DISABLED);
  instance.loadDialect<graph::GraphDialect, func::FuncDialect>();
  return instance;
}

HostTensor uniform(Shape shape, unsigned seed) {
  std::mt19937 generator(seed);
  HostTensor tensor{Float32Type::get(&context()), std::move(shape), {}, {}};
  for (int64_t i = 0, size = tensor.size(); i < size; ++i)
    tensor.reals.push_back(static_cast<float>(generator() * 0x1p-30 - 2));
  return tensor;
}

HostTensor reals(Shape shape, std::vector<double> values) {
  return {Float32Type::get(&context()), std::move(shape), std::move(values), {}};
}

HostTensor integers(Shape shape, std::vector<int64_t> values, unsigned width) {
  return {IntegerType::get(&context(), width), std::move(shape), {}, std::move(values)};
}

RegionCase::RegionCase(const Body &body, std::vector<HostTensor> givenInputs)
    : inputs(std::move(givenInputs)) {
  OpBuilder builder(&context());
  Location loc = builder.getUnknownLoc();
  module = ModuleOp::create(loc);
  builder.setInsertionPointToEnd(module->getBody());
  SmallVector<Type> types;
  for (const HostTensor &input : inputs)
    types.push_back(RankedTensorType::get(input.shape, input.elementType));
  auto function =
      builder.create<func::FuncOp>(loc, "f", builder.getFunctionType(types, {}));
  Block *entry = function.addEntryBlock();

  auto block = std::make_unique<Block>();
  block->addArguments(types, SmallVector<Location>(types.size(), loc));
  builder.setInsertionPointToEnd(block.get());
  GraphBuilder core(loc, builder);
  Values arguments(block->args_begin(), block->args_end());
  Values outputs = body(core, arguments);
  builder.create<graph::YieldOp>(loc, ValueRange(outputs));

  builder.setInsertionPointToEnd(entry);
  auto op = builder.create<graph::RegionOp>(loc, ValueRange(outputs).getTypes(),
                                            entry->getArguments(), StringAttr());
  op.getBody().push_back(block.release());
  builder.create<func::ReturnOp>(loc, op.getResults());
  function.setType(builder.getFunctionType(types, op.getResultTypes()));
  EXPECT_TRUE(succeeded(verify(*module)));
}

graph::RegionOp RegionCase::region() {
  graph::RegionOp found;
  module->walk([&](graph::RegionOp op) { found = op; });
  return found;
}

std::vector<HostTensor> RegionCase::expected() {
  graph::StateMap state;
  auto function = module->lookupSymbol<func::FuncOp>("f");
  auto results = graph::interpret(function, inputs, state, graph::Precision::Double);
  EXPECT_TRUE(succeeded(results));
  return succeeded(results) ? *results : std::vector<HostTensor>();
}

static size_t bytesPerElement(Type type) {
  return (type.getIntOrFloatBitWidth() + 7) / 8;
}

std::vector<uint8_t> toBytes(const HostTensor &tensor) {
  size_t width = bytesPerElement(tensor.elementType);
  std::vector<uint8_t> bytes(tensor.size() * width);
  for (int64_t i = 0, size = tensor.size(); i < size; ++i) {
    uint8_t *at = bytes.data() + i * width;
    if (tensor.isReal()) {
      auto value = static_cast<float>(tensor.reals[i]);
      std::memcpy(at, &value, width);
    } else {
      std::memcpy(at, &tensor.integers[i], width);
    }
  }
  return bytes;
}

HostTensor fromBytes(const uint8_t *bytes, RankedTensorType type) {
  HostTensor tensor = HostTensor::zeros(type);
  size_t width = bytesPerElement(type.getElementType());
  for (int64_t i = 0, size = tensor.size(); i < size; ++i, bytes += width) {
    if (tensor.isReal()) {
      float value;
      std::memcpy(&value, bytes, width);
      tensor.reals[i] = value;
    } else if (type.getElementType().isInteger(1)) {
      EXPECT_LE(*bytes, 1) << "an i1 is stored as neither 0 nor 1";
      tensor.integers[i] = *bytes;
    } else {
      int64_t value = 0;
      std::memcpy(&value, bytes, width);
      int shift = static_cast<int>(64 - 8 * width);
      tensor.integers[i] =
          static_cast<int64_t>(static_cast<uint64_t>(value) << shift) >> shift;
    }
  }
  return tensor;
}

namespace {
/// Ends at an unreadable page; begins after a red zone.
class GuardedBuffer {
public:
  static constexpr size_t page = 4096;
  static constexpr uint8_t poison = 0xff, red = 0xa5;

  explicit GuardedBuffer(size_t size)
      : mapped((size + page - 1) / page * page + 2 * page) {
    base = static_cast<uint8_t *>(mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::memset(base, red, mapped - page);
    data = base + mapped - page - size;
    std::memset(data, poison, size);
    mprotect(base + mapped - page, page, PROT_NONE);
  }
  ~GuardedBuffer() {
    EXPECT_TRUE(std::all_of(base, data, [](uint8_t byte) { return byte == red; }))
        << "written before the start of an operand";
    munmap(base, mapped);
  }
  GuardedBuffer(const GuardedBuffer &) = delete;

  uint8_t *data;

private:
  size_t mapped;
  uint8_t *base;
};
} // namespace

static std::string printed(Operation *op) {
  std::string text;
  llvm::raw_string_ostream(text) << *op;
  return text;
}

RegionKernel::RegionKernel(RegionCase &region) : region(region) {
  OwningOpRef<ModuleOp> kernels = ModuleOp::create(UnknownLoc::get(&context()));
  FailureOr<GeneratedKernel> kernel = emitRegion(region.region(), *kernels);
  EXPECT_TRUE(succeeded(kernel)) << (succeeded(kernel) ? "" : printed(region.region()));
  if (failed(kernel))
    return;
  generated = *kernel;
  auto compiled = compileKernels(*kernels);
  EXPECT_TRUE(succeeded(compiled));
  if (failed(compiled))
    return;
  for (const KernelImage &image : *compiled) {
    if (!canRun(*levelByName(image.level))) {
      printf("level %s is not run: this processor lacks it\n", image.level.c_str());
      continue;
    }
    auto *bytes = reinterpret_cast<const uint8_t *>(image.bytes.data());
    auto loaded = CodeImage::load({bytes, image.bytes.size()}, image.level);
    EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? "" : loaded.status().message);
    if (loaded.ok())
      images.push_back({image.level, *loaded});
  }
}

std::vector<HostTensor> RegionKernel::run(const std::string &level, int64_t chunk,
                                          std::optional<InPlace> inPlace) {
  auto found = llvm::find_if(images, [&](const Loaded &l) { return l.level == level; });
  void *symbol = found == images.end() ? nullptr : found->image->symbol(generated.symbol);
  EXPECT_NE(symbol, nullptr);
  if (!symbol)
    return {};
  auto kernel = reinterpret_cast<KernelFn>(symbol);

  std::vector<std::unique_ptr<GuardedBuffer>> owned;
  auto allocate = [&](size_t size) {
    return owned.emplace_back(std::make_unique<GuardedBuffer>(size))->data;
  };
  std::vector<void *> buffers;
  for (const HostTensor &input : region.inputs) {
    std::vector<uint8_t> bytes = toBytes(input);
    buffers.push_back(std::copy_n(bytes.data(), bytes.size(), allocate(bytes.size())) -
                      bytes.size());
  }
  std::vector<RankedTensorType> types;
  for (auto [i, type] : llvm::enumerate(region.region().getResultTypes())) {
    types.push_back(cast<RankedTensorType>(type));
    size_t size =
        types.back().getNumElements() * bytesPerElement(types.back().getElementType());
    buffers.push_back(inPlace && inPlace->output == i ? buffers[inPlace->input]
                                                      : allocate(size));
  }
  constexpr int64_t workers = 3;
  std::vector<void *> workspaces;
  for (int64_t worker = 0; worker < workers; ++worker)
    workspaces.push_back(allocate(generated.scratchBytes));
  buffers.push_back(nullptr);
  // Chunks in reverse order: none may rely on another.
  int64_t chunks = (generated.units + chunk - 1) / chunk;
  for (int64_t i = chunks - 1; i >= 0; --i) {
    int64_t worker = i % workers;
    buffers.back() = generated.scratchBytes > 0 ? workspaces[worker] : nullptr;
    kernel(buffers.data(), nullptr, i * chunk, std::min(generated.units, (i + 1) * chunk),
           worker);
  }
  std::vector<HostTensor> results;
  for (auto [i, type] : llvm::enumerate(types))
    results.push_back(
        fromBytes(static_cast<uint8_t *>(buffers[region.inputs.size() + i]), type));
  return results;
}

std::vector<HostTensor> RegionKernel::runEverywhere(std::optional<InPlace> inPlace) {
  std::vector<HostTensor> first;
  for (const Loaded &loaded : images)
    for (int64_t chunk : {std::max<int64_t>(1, generated.units), generated.chunk,
                          int64_t{1}, int64_t{3}}) {
      SCOPED_TRACE(loaded.level + ", chunks of " + std::to_string(chunk));
      std::vector<HostTensor> results = run(loaded.level, chunk, inPlace);
      if (first.empty())
        first = results;
      expectSameBits(first, results);
    }
  return first;
}

void expectMatches(const std::vector<HostTensor> &expected,
                   const std::vector<HostTensor> &actual, double tolerance) {
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t k = 0; k < expected.size(); ++k) {
    EXPECT_EQ(expected[k].integers, actual[k].integers) << "output " << k;
    ASSERT_EQ(expected[k].reals.size(), actual[k].reals.size());
    int reported = 0;
    for (size_t i = 0; i < expected[k].reals.size() && reported < 5; ++i) {
      double a = actual[k].reals[i], e = expected[k].reals[i];
      bool same = a == e || (std::isnan(a) && std::isnan(e)) ||
                  std::abs(a - e) <= tolerance * (1 + std::abs(e));
      EXPECT_TRUE(same) << "output " << k << " element " << i << " is " << a
                        << ", expected " << e;
      reported += !same;
    }
  }
}

void expectSameBits(const std::vector<HostTensor> &a, const std::vector<HostTensor> &b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t k = 0; k < a.size(); ++k) {
    EXPECT_EQ(a[k].integers, b[k].integers);
    ASSERT_EQ(a[k].reals.size(), b[k].reals.size());
    size_t different = 0;
    for (size_t i = 0; i < a[k].reals.size(); ++i) {
      double x = a[k].reals[i], y = b[k].reals[i];
      bool bothNan = std::isnan(x) && std::isnan(y); // payloads are not promised
      different += !bothNan && std::memcmp(&x, &y, sizeof x) != 0;
    }
    EXPECT_EQ(different, 0u) << "of " << a[k].reals.size() << " elements of output " << k;
  }
}

std::vector<HostTensor> check(const Body &body, std::vector<HostTensor> inputs,
                              double tolerance) {
  RegionCase region(body, std::move(inputs));
  return checkRegion(region, tolerance);
}

} // namespace sluice::test
