// Generated kernels on one thread: time and bandwidth of necessary reads and writes,
// beside memcpy.
//   region [level]        level: x86-64-v3 or x86-64-v4 (default)

#include "codegen/KernelCompiler.h"
#include "codegen/RegionEmitter.h"
#include "ir/graph/GraphBuilder.h"
#include "kernels/Kernel.h"
#include "runtime/CodeImage.h"

#include "mlir/IR/MLIRContext.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>

using namespace mlir;
using namespace sluice;
using graph::GraphBuilder;
using Shape = llvm::SmallVector<int64_t>;
using Values = llvm::SmallVector<Value>;

namespace {
struct Case {
  std::string name;
  std::vector<Shape> inputs;
  std::function<Values(GraphBuilder &, ArrayRef<Value>)> body;
};

/// The results of a composite, in core operations.
template <class OpT, class... Args> Values decomposed(GraphBuilder &b, Args &&...args) {
  auto op = b.create<OpT>(std::forward<Args>(args)...);
  Values results = op.decompose(b);
  op.erase();
  return results;
}

Value rowMean(GraphBuilder &b, Value x) {
  double columns = graph::tensorType(x).getShape().back();
  return b.broadcastLike(b.scale(b.sum(x, {1}, true), 1 / columns), x);
}

std::vector<Case> cases() {
  const Shape adam = {8 << 20}, scalar = {};
  return {
      {"add 4M",
       {{4 << 20}, {4 << 20}},
       [](GraphBuilder &b, auto x) { return Values{b.add(x[0], x[1])}; }},
      {"bias + gelu 1024x3072",
       {{1024, 3072}, {3072}},
       [](GraphBuilder &b, auto x) {
         return Values{
             b.make<graph::GeluOp>(b.add(x[0], b.broadcastLike(x[1], x[0])), true)};
       }},
      {"softmax 4096x1024",
       {{4096, 1024}},
       [](GraphBuilder &b, auto x) {
         return decomposed<graph::SoftmaxOp>(b, x[0], int64_t{1});
       }},
      {"layer norm 4096x768",
       {{4096, 768}, {768}, {768}},
       [](GraphBuilder &b, auto x) {
         return Values{decomposed<graph::LayerNormOp>(b, x[0], x[1], x[2], int64_t{1},
                                                      llvm::APFloat(1e-5))[0]};
       }},
      {"layer norm backward 4096x768",
       {{4096, 768}, {4096, 768}, {768}, {4096, 1}, {4096, 1}},
       [](GraphBuilder &b, auto x) {
         Value rstd = b.broadcastLike(x[4], x[0]);
         Value xhat = b.mul(b.sub(x[0], b.broadcastLike(x[3], x[0])), rstd);
         Value g = b.mul(x[1], b.broadcastLike(x[2], x[1]));
         Value inner =
             b.sub(b.sub(g, rowMean(b, g)), b.mul(xhat, rowMean(b, b.mul(g, xhat))));
         return Values{b.mul(inner, rstd)};
       }},
      {"gamma and beta gradients 4096x768",
       {{4096, 768}, {4096, 768}, {4096, 1}, {4096, 1}},
       [](GraphBuilder &b, auto x) {
         Value xhat =
             b.mul(b.sub(x[0], b.broadcastLike(x[2], x[0])), b.broadcastLike(x[3], x[0]));
         return Values{b.sum(b.mul(x[1], xhat), {0}, false), b.sum(x[1], {0}, false)};
       }},
      {"column sum 4096x3072",
       {{4096, 3072}},
       [](GraphBuilder &b, auto x) { return Values{b.sum(x[0], {0}, false)}; }},
      {"batch norm 32x64x56x56",
       {{32, 64, 3136}, {64}, {64}},
       [](GraphBuilder &b, auto x) {
         return decomposed<graph::BatchNormTrainOp>(
             b, x[0], x[1], x[2], llvm::APFloat(1e-5), llvm::APFloat(0.9),
             FlatSymbolRefAttr(), FlatSymbolRefAttr());
       }},
      {"random uniform 4M",
       {{4 << 20}},
       [](GraphBuilder &b, auto x) {
         Value key = b.splat(RankedTensorType::get({}, b.getI64Type()), 7);
         Value u = b.make<graph::RandomUniformOp>(key, key, key,
                                                  ArrayRef<int64_t>{4 << 20}, 3, false);
         return Values{
             b.select(b.compare(u, "ge", b.splatLike(u, 0.1)), x[0], b.splatLike(u, 0))};
       }},
      {"adamw 8M",
       {adam, adam, adam, adam, scalar, scalar, scalar},
       [](GraphBuilder &b, auto x) {
         auto real = [](double v) { return llvm::APFloat(v); };
         return decomposed<graph::AdamOp>(
             b, x[0], x[1], x[2], x[3], x[4], x[5], x[6], Value(), real(0.9), real(0.999),
             real(1e-8), real(0.01), true, false, ValueRange(), ArrayAttr());
       }},
  };
}

/// The shortest of many runs: other work on the machine only ever adds.
double bestSeconds(const std::function<void()> &run) {
  double best = 1e9;
  for (int i = 0; i < 40; ++i) {
    auto start = std::chrono::steady_clock::now();
    run();
    best = std::min(
        best,
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

/// Zeroed memory on large pages; lives as long as the process.
char *allocate(size_t bytes) {
  constexpr size_t large = 2 << 20;
  size_t size = (bytes + large - 1) / large * large + large;
  auto *base = static_cast<char *>(
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  auto *aligned = reinterpret_cast<char *>(
      (reinterpret_cast<uintptr_t>(base) + large - 1) / large * large);
  madvise(aligned, size - large, MADV_HUGEPAGE);
  std::memset(aligned, 0, bytes);
  return aligned;
}

OwningOpRef<ModuleOp> moduleOf(const Case &c, MLIRContext &context) {
  OpBuilder builder(&context);
  Location loc = builder.getUnknownLoc();
  OwningOpRef<ModuleOp> module = ModuleOp::create(loc);
  builder.setInsertionPointToEnd(module->getBody());
  llvm::SmallVector<Type> types;
  for (const Shape &shape : c.inputs)
    types.push_back(RankedTensorType::get(shape, builder.getF32Type()));
  auto function =
      builder.create<func::FuncOp>(loc, "f", builder.getFunctionType(types, {}));
  Block *entry = function.addEntryBlock();
  auto *block = new Block;
  block->addArguments(types, llvm::SmallVector<Location>(types.size(), loc));
  builder.setInsertionPointToEnd(block);
  GraphBuilder graph(loc, builder);
  Values outputs = c.body(graph, Values(block->args_begin(), block->args_end()));
  builder.setInsertionPointToEnd(block);
  builder.create<graph::YieldOp>(loc, ValueRange(outputs));
  builder.setInsertionPointToEnd(entry);
  auto region = builder.create<graph::RegionOp>(loc, ValueRange(outputs).getTypes(),
                                                entry->getArguments(), StringAttr());
  region.getBody().push_back(block);
  builder.create<func::ReturnOp>(loc);
  return module;
}

int measure(const Case &c, MLIRContext &context, const std::string &level) {
  OwningOpRef<ModuleOp> module = moduleOf(c, context);
  graph::RegionOp region;
  module->walk([&](graph::RegionOp op) { region = op; });
  OwningOpRef<ModuleOp> kernels = ModuleOp::create(UnknownLoc::get(&context));
  auto kernel = emitRegion(region, *kernels);
  auto start = std::chrono::steady_clock::now();
  FailureOr<std::vector<KernelImage>> images = failure();
  if (succeeded(kernel))
    images = compileKernels(*kernels, {{level}, {}});
  double compileMs =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
          .count();
  if (failed(images))
    return 1;
  const std::string &bytes = images->front().bytes;
  auto image = CodeImage::load(
      {reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size()}, level);
  if (!image.ok()) {
    std::fprintf(stderr, "%s\n", image.status().message.c_str());
    return 1;
  }
  auto run = reinterpret_cast<KernelFn>((*image)->symbol(kernel->symbol));
  size_t total = 0;
  std::vector<void *> buffers;
  auto add = [&](Type type) {
    size_t size = cast<RankedTensorType>(type).getNumElements() * 4;
    auto *data = reinterpret_cast<float *>(allocate(size));
    for (size_t i = 0; i < size / 4; ++i)
      data[i] = static_cast<float>(i % 1023) / 512 - 0.99f;
    buffers.push_back(data);
    total += size;
  };
  for (Type type : region.getOperandTypes())
    add(type);
  for (Type type : region.getResultTypes())
    add(type);
  if (kernel->scratchBytes > 0)
    buffers.push_back(allocate(kernel->scratchBytes));
  double seconds = bestSeconds([&] {
    for (int64_t unit = 0; unit < kernel->units; unit += kernel->chunk)
      run(buffers.data(), nullptr, unit, std::min(kernel->units, unit + kernel->chunk),
          0);
  });
  std::vector<char> unused;
  char *from = allocate(total / 2), *to = allocate(total / 2);
  double copySeconds = bestSeconds([&] { std::memcpy(to, from, total / 2); });
  std::printf("%-36s %8.3f ms %7.1f GB/s  memcpy %6.1f GB/s  compile %5.0f ms\n",
              c.name.c_str(), seconds * 1e3, total / seconds * 1e-9,
              total / copySeconds * 1e-9, compileMs);
  return 0;
}
} // namespace

int main(int count, char **arguments) {
  std::string level = count > 1 ? arguments[1] : "x86-64-v4";
  MLIRContext context(MLIRContext::Threading::DISABLED);
  context.loadDialect<graph::GraphDialect, func::FuncDialect>();
  int failures = 0;
  for (const Case &c : cases())
    failures += measure(c, context, level);
  return failures;
}
