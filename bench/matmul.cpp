// Matrix products and convolutions on one thread, packing included, as the planner would
// launch them. The roof is a loop of register FMAs measured in the same run; that of
// products of bf16 a loop of dot products of pairs (avx512_bf16) or of tile products
// (AMX) where the processor has them, of random data.

#include "kernels/Catalog.h"
#include "kernels/MatrixUnit.h"
#include "kernels/Params.h"

#include <benchmark/benchmark.h>

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <immintrin.h>
#include <memory>
#include <random>

namespace {

using namespace sluice;

FeatureLevel bestLevel(int64_t type = format::kF32) {
  if (!__builtin_cpu_supports("avx512f"))
    return FeatureLevel::V3;
  bool dots = type == format::kBf16 && __builtin_cpu_supports("avx512bf16");
  return dots ? FeatureLevel::Dots : FeatureLevel::V4;
}

#define SLUICE_ROOF(attribute, Vector, set, fma, store, lanes)                           \
  __attribute__((target(attribute))) void roof##lanes(int64_t rounds, float *out) {      \
    Vector a[12], x = set(out[0]), y = set(out[1]);                                      \
    for (auto &v : a)                                                                    \
      v = set(out[2]);                                                                   \
    for (int64_t i = 0; i < rounds; ++i)                                                 \
      for (auto &v : a)                                                                  \
        v = fma(v, x, y);                                                                \
    for (auto &v : a) {                                                                  \
      store(out, v);                                                                     \
      benchmark::ClobberMemory();                                                        \
    }                                                                                    \
  }
SLUICE_ROOF("avx512f", __m512, _mm512_set1_ps, _mm512_fmadd_ps, _mm512_storeu_ps, 16)
SLUICE_ROOF("avx2,fma", __m256, _mm256_set1_ps, _mm256_fmadd_ps, _mm256_storeu_ps, 8)

/// Runs all units of a launch in the chunks of the plan.
void launch(const char *name, const std::vector<int64_t> &params, int64_t units,
            int64_t chunk, std::vector<void *> buffers,
            FeatureLevel level = bestLevel()) {
  KernelFn kernel = findBuiltinKernel(name, level);
  for (int64_t b = 0; b < units; b += chunk)
    kernel(buffers.data(), params.data(), b, std::min(units, b + chunk), 0);
}

std::vector<float> random(int64_t n) {
  static std::mt19937 rng(1);
  std::vector<float> v(n);
  for (float &x : v)
    x = float(int(rng() % 2001) - 1000) / 1000;
  return v;
}

/// Values in [-1, 1] as bf16.
std::vector<uint16_t> randomHalves(int64_t n) {
  std::vector<uint16_t> halves;
  for (float x : random(n))
    halves.push_back(std::bit_cast<uint32_t>(x) >> 16);
  return halves;
}

/// Bytes of values of a format; of f16 those bits are not values in [-1, 1], but finite.
std::vector<uint8_t> randomOf(int64_t type, int64_t n) {
  auto bytes = [](const auto &values) {
    auto *data = reinterpret_cast<const uint8_t *>(values.data());
    return std::vector<uint8_t>(data, data + values.size() * sizeof values[0]);
  };
  return type == format::kF32 ? bytes(random(n)) : bytes(randomHalves(n));
}

void report(benchmark::State &state, double flops) {
  state.counters["FLOP/s"] = benchmark::Counter(
      flops, benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
}

void roof(benchmark::State &state) {
  alignas(64) float out[16] = {1, 1e-9f, 0.5f};
  benchmark::DoNotOptimize(out);
  constexpr int64_t rounds = 100000;
  bool wide = bestLevel() == FeatureLevel::V4;
  for (auto _ : state)
    wide ? roof16(rounds, out) : roof8(rounds, out);
  report(state, rounds * 12.0 * 2 * (wide ? 16 : 8));
}
BENCHMARK(roof);

__attribute__((target("avx512f,avx512bf16"))) void dotRoofLoop(int64_t rounds,
                                                               float *out) {
  __m512 sums[12];
  auto x = reinterpret_cast<__m512bh>(_mm512_set1_ps(out[0]));
  auto y = reinterpret_cast<__m512bh>(_mm512_set1_ps(out[1]));
  for (auto &v : sums)
    v = _mm512_set1_ps(out[2]);
  for (int64_t i = 0; i < rounds; ++i)
    for (auto &v : sums)
      v = _mm512_dpbf16_ps(v, x, y);
  for (auto &v : sums) {
    _mm512_storeu_ps(out, v);
    benchmark::ClobberMemory();
  }
}

void dotRoof(benchmark::State &state) {
  if (bestLevel(format::kBf16) != FeatureLevel::Dots)
    return state.SkipWithError("this processor lacks avx512_bf16");
  alignas(64) float out[16] = {1, 1e-9f, 0.5f};
  benchmark::DoNotOptimize(out);
  constexpr int64_t rounds = 100000;
  for (auto _ : state)
    dotRoofLoop(rounds, out);
  report(state, rounds * 12.0 * 2 * 32);
}
BENCHMARK(dotRoof);

void launchPlan(const GemmPlan &plan, void *a, void *b, void *c, void *packed,
                void *partial, void *work, FeatureLevel level) {
  switch (plan.kind) {
  case GemmPlan::Packed:
    launch("gemm_pack_b_f32", packParams(plan.pack), plan.packUnits, plan.packChunk,
           {b, packed}, level);
    launch("gemm_packed_f32", packParams(plan.gemm), plan.gemmUnits, plan.gemmChunk,
           {a, packed, c, work}, level);
    break;
  case GemmPlan::Direct:
    launch("gemm_f32", packParams(plan.gemm), plan.gemmUnits, plan.gemmChunk,
           {a, b, c, work}, level);
    break;
  case GemmPlan::SplitK:
    launch("gemm_splitk_f32", packParams(plan.split), plan.splitUnits, plan.splitChunk,
           {a, b, partial, work}, level);
    launch("sum_slices_f32", packParams(plan.sum), plan.sumUnits, plan.sumChunk,
           {partial, c}, level);
  }
  benchmark::ClobberMemory();
}

/// m, n, k, batch, B transposed in memory (a linear layer), whole rows, format of all
/// three (Formats.h).
void product(benchmark::State &state) {
  GemmParams s;
  s.m = state.range(0), s.n = state.range(1), s.k = state.range(2),
  s.batch1 = state.range(3);
  bool transposed = state.range(4);
  s.aRow = s.k, s.aCol = 1, s.cRow = s.n;
  s.bRow = transposed ? 1 : s.n, s.bCol = transposed ? s.k : 1;
  s.aBatch1 = s.m * s.k, s.bBatch1 = s.n * s.k, s.cBatch1 = s.m * s.n;
  s.aType = s.bType = s.cType = state.range(6);
  GemmPlan plan = planGemm(s, state.range(5));
  auto a = randomOf(s.aType, s.batch1 * s.m * s.k);
  auto b = randomOf(s.aType, s.batch1 * s.n * s.k);
  auto c = random(s.batch1 * s.m * s.n);
  std::vector<char> packed(plan.packedBytes), partial(plan.partialBytes),
      work(plan.workerBytes);
  for (auto _ : state)
    launchPlan(plan, a.data(), b.data(), c.data(), packed.data(), partial.data(),
               work.data(), bestLevel(s.aType));
  report(state, 2.0 * s.batch1 * s.m * s.n * s.k);
}
BENCHMARK(product)
    ->ArgNames({"m", "n", "k", "batch", "bT", "rows", "type"})
    ->Args({512, 768, 3072, 1, 1, 0, 0})
    ->Args({512, 768, 3072, 1, 0, 1, 0})
    ->Args({512, 3072, 768, 1, 1, 0, 0})
    ->Args({512, 3072, 768, 1, 1, 1, 0})
    ->Args({256, 768, 768, 1, 1, 0, 0})
    ->Args({256, 768, 768, 1, 1, 1, 0})
    ->Args({256, 50304, 768, 1, 1, 0, 0})
    ->Args({256, 50304, 768, 1, 1, 1, 0})
    ->Args({1024, 1024, 1024, 1, 0, 0, 0})
    ->Args({128, 128, 64, 96, 1, 1, 0})
    ->Args({128, 64, 128, 96, 0, 1, 0})
    ->Args({64, 64, 32, 96, 1, 1, 0})
    ->Args({128, 512, 784, 1, 1, 0, 0})
    ->Args({10, 512, 8192, 1, 0, 0, 0})
    ->Args({1, 3072, 768, 1, 1, 0, 0})
    ->Args({512, 768, 3072, 1, 1, 0, 1})
    ->Args({512, 3072, 768, 1, 1, 1, 1})
    ->Args({256, 768, 768, 1, 1, 0, 1})
    ->Args({256, 50304, 768, 1, 1, 1, 1})
    ->Args({1024, 1024, 1024, 1, 0, 0, 1})
    ->Args({128, 128, 64, 96, 1, 1, 1})
    ->Args({128, 512, 784, 1, 1, 0, 1})
    ->Args({10, 512, 8192, 1, 0, 0, 1})
    ->Args({1, 3072, 768, 1, 1, 0, 1})
    ->Args({512, 3072, 768, 1, 1, 1, 2});

/// Tile products from registers alone, as many in flight as a kernel has.
__attribute__((target("amx-tile,amx-bf16"))) void
tileRoofLoop(int64_t rounds, const uint16_t *data, float *out) {
  alignas(64) uint8_t config[64] = {1};
  for (int tile = 0; tile < 8; ++tile)
    config[16 + 2 * tile] = 64, config[48 + tile] = 16;
  _tile_loadconfig(config);
  _tile_zero(0), _tile_zero(1), _tile_zero(2), _tile_zero(3);
  _tile_loadd(4, data, 64), _tile_loadd(5, data + 512, 64);
  _tile_loadd(6, data + 1024, 64), _tile_loadd(7, data + 1536, 64);
  for (int64_t i = 0; i < rounds; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, out, 64);
  _tile_release();
}

void tileRoof(benchmark::State &state) {
  auto data = randomHalves(2048);
  std::vector<float> out(256);
  constexpr int64_t rounds = 100000;
  for (auto _ : state) {
    tileRoofLoop(rounds, data.data(), out.data());
    benchmark::ClobberMemory();
  }
  report(state, rounds * 4.0 * 2 * 16 * 16 * 32);
}

/// bf16 by bf16 into bf16 on tiles: m, n, k, batch, B transposed in memory.
void tileProduct(benchmark::State &state) {
  GemmParams s;
  s.m = state.range(0), s.n = state.range(1), s.k = state.range(2),
  s.batch1 = state.range(3);
  bool transposed = state.range(4);
  s.aRow = s.k, s.aCol = 1, s.cRow = s.n;
  s.bRow = transposed ? 1 : s.n, s.bCol = transposed ? s.k : 1;
  s.aBatch1 = s.m * s.k, s.bBatch1 = s.n * s.k, s.cBatch1 = s.m * s.n;
  s.aType = s.bType = s.cType = format::kBf16;
  GemmPlan plan = planGemm(s, false);
  auto a = randomHalves(s.batch1 * s.m * s.k), b = randomHalves(s.batch1 * s.n * s.k);
  std::vector<uint16_t> c(s.batch1 * s.m * s.n);
  std::vector<char> packed(plan.packedBytes), partial(plan.partialBytes);
  std::unique_ptr<char[], decltype(&std::free)> work(
      static_cast<char *>(std::aligned_alloc(64, (plan.workerBytes + 63) / 64 * 64)),
      std::free);
  for (auto _ : state)
    launchPlan(plan, a.data(), b.data(), c.data(), packed.data(), partial.data(),
               work.get(), FeatureLevel::Amx);
  report(state, 2.0 * s.batch1 * s.m * s.n * s.k);
}

void registerTiles() {
  std::vector<std::string> missing = missingForTiles();
  if (!missing.empty()) {
    std::string list;
    for (const std::string &feature : missing)
      list += (list.empty() ? "" : ", ") + feature;
    std::printf("no AMX here (%s): products on tiles are not measured\n", list.c_str());
    return;
  }
  benchmark::RegisterBenchmark("tileRoof", tileRoof);
  benchmark::RegisterBenchmark("tileProduct", tileProduct)
      ->ArgNames({"m", "n", "k", "batch", "bT"})
      ->Args({1024, 1024, 1024, 1, 0})
      ->Args({2048, 2048, 2048, 1, 0})
      ->Args({512, 768, 3072, 1, 1})
      ->Args({512, 3072, 768, 1, 1})
      ->Args({256, 768, 768, 1, 1})
      ->Args({1024, 50304, 768, 1, 1})
      ->Args({128, 128, 64, 96, 1})
      ->Args({128, 64, 128, 96, 0});
}

/// n, c, m, size, kernel, stride; which: 0 forward, 1 input gradient, 2 weight gradient;
/// format of operands and, but for the weight gradient, results.
void conv(benchmark::State &state) {
  ConvGeometry g;
  g.n = state.range(0), g.c = state.range(1), g.m = state.range(2);
  int64_t size = state.range(3), kernel = state.range(4), stride = state.range(5);
  for (int d = 1; d < 3; ++d) {
    g.in[d] = size, g.kernel[d] = kernel, g.stride[d] = stride, g.pad[d] = kernel / 2;
    g.out[d] = (size + 2 * g.pad[d] - kernel) / stride + 1;
  }
  int64_t outputs = g.out[1] * g.out[2], which = state.range(6);
  auto x = random(g.n * g.c * size * size), w = random(g.m * g.c * kernel * kernel);
  auto y = random(g.n * g.m * outputs);
  int64_t type = state.range(7);
  ConvParams p = which ? planConvInputGrad(g, type, type, type)
                       : planConvForward(g, type, type, type);
  ConvWeightGradParams wg = planConvWeightGrad(g);
  wg.xType = wg.dyType = type;
  std::vector<char> partial(convPartialBytes(wg));
  std::vector<char> work(
      std::max({convWeightGradWorkerBytes(wg), convForwardWorkerBytes(p),
                convInputGradWorkerBytes(p)}));
  SumSlicesParams sum{g.m, g.c * kernel * kernel, wg.slices, g.c * kernel * kernel, 0, 8};
  for (auto _ : state) {
    if (which == 0) {
      launch("conv_forward_f32", packParams(p), convForwardUnits(p), 1,
             {x.data(), w.data(), y.data(), work.data()}, bestLevel(type));
    } else if (which == 1) {
      launch("conv_input_grad_f32", packParams(p), convInputGradUnits(p), 1,
             {y.data(), w.data(), x.data(), work.data()}, bestLevel(type));
    } else {
      launch("conv_weight_grad_f32", packParams(wg), convWeightGradUnits(wg), 1,
             {x.data(), y.data(), partial.data(), work.data()}, bestLevel(type));
      launch("sum_slices_f32", packParams(sum), sumSlicesUnits(sum), 1,
             {partial.data(), w.data()});
    }
    benchmark::ClobberMemory();
  }
  report(state, 2.0 * g.n * g.m * outputs * g.c * kernel * kernel);
}
BENCHMARK(conv)
    ->ArgNames({"n", "c", "m", "size", "k", "s", "which", "type"})
    ->ArgsProduct({{32}, {64}, {64}, {28}, {3}, {1}, {0, 1, 2}, {0, 1}})
    ->ArgsProduct({{32}, {64}, {128}, {28}, {1}, {1}, {0, 1, 2}, {0, 1}})
    ->ArgsProduct({{32}, {1}, {32}, {28}, {3}, {1}, {0, 2}, {0, 1}})
    ->ArgsProduct({{32}, {32}, {64}, {14}, {3}, {1}, {0, 1, 2}, {0, 1}})
    ->ArgsProduct({{32}, {64}, {128}, {28}, {3}, {2}, {0, 1, 2}, {0, 1}})
    ->ArgsProduct({{8}, {256}, {256}, {7}, {3}, {1}, {0, 1, 2}, {0, 1}})
    ->ArgsProduct({{16}, {64}, {64}, {8}, {3}, {1}, {0, 1, 2}, {0, 1}})
    ->ArgsProduct({{16}, {128}, {128}, {4}, {3}, {1}, {0, 1, 2}, {0, 1}})
    ->ArgsProduct({{16}, {256}, {256}, {2}, {3}, {1}, {0, 1, 2}, {0, 1}})
    ->ArgsProduct({{16}, {512}, {512}, {1}, {3}, {1}, {0, 1, 2}, {0, 1}})
    ->ArgsProduct({{16}, {64}, {128}, {8}, {3}, {2}, {0, 1, 2}, {0, 1}})
    ->ArgsProduct({{16}, {256}, {512}, {2}, {3}, {2}, {0, 1, 2}, {0, 1}})
    ->ArgsProduct({{16}, {256}, {512}, {2}, {1}, {2}, {0, 1, 2}, {0, 1}});

/// The usual table with one more column: the share of the roof, which is measured first.
class ShareOfRoof : public benchmark::ConsoleReporter {
public:
  void ReportRuns(const std::vector<Run> &runs) override {
    for (const Run &run : runs) {
      double rate = run.counters.at("FLOP/s");
      std::string name = run.benchmark_name();
      double &roofRate = roofRates[name.starts_with("tile")];
      if (name.starts_with("roof") || name.starts_with("tileRoof"))
        roofRate = rate;
      GetOutputStream() << std::fixed;
      GetOutputStream().precision(1);
      GetOutputStream() << run.benchmark_name() << ": " << rate / 1e9 << " GFLOP/s";
      if (roofRate > 0)
        GetOutputStream() << ", " << 100 * rate / roofRate << " % of the roof";
      GetOutputStream() << "\n" << std::flush;
    }
  }
  bool ReportContext(const Context &) override { return true; }

private:
  double roofRates[2] = {0, 0}; ///< of FMAs, of tiles
};

} // namespace

int main(int argc, char **argv) {
  benchmark::Initialize(&argc, argv);
  registerTiles();
  ShareOfRoof reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
}
