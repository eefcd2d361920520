#include "tests/kernels/KernelCase.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <sys/mman.h>

namespace sluice::test {
namespace {

constexpr int64_t kRedZone = 256;
constexpr int kWorkers = 2;

/// Memory whose last byte is followed by an unreadable page and whose first follows a red
/// zone.
class GuardedMemory {
public:
  explicit GuardedMemory(const Bytes &contents) : size(contents.size()) {
    constexpr size_t page = 4096;
    mapped = (size + kRedZone + page - 1) / page * page;
    base = static_cast<uint8_t *>(mmap(nullptr, mapped + page, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base + mapped, page, PROT_NONE);
    std::memset(base, 0x5c, mapped);
    if (size)
      std::memcpy(data(), contents.data(), size);
  }
  ~GuardedMemory() { munmap(base, mapped + 4096); }
  GuardedMemory(const GuardedMemory &) = delete;

  uint8_t *data() { return base + mapped - size; }
  Bytes contents() { return Bytes(data(), data() + size); }
  bool intact() {
    for (uint8_t *p = base; p < data(); ++p)
      if (*p != 0x5c)
        return false;
    return true;
  }

private:
  size_t size, mapped;
  uint8_t *base;
};

enum class Split { Whole, SinglesBackwards, Random };

std::vector<std::pair<int64_t, int64_t>> chunksOf(int64_t units, Split split) {
  std::vector<std::pair<int64_t, int64_t>> chunks;
  std::mt19937 rng(7);
  for (int64_t b = 0; b < units;) {
    int64_t n = split == Split::Whole    ? units
                : split == Split::Random ? 1 + rng() % 5
                                         : 1;
    chunks.push_back({b, std::min(units, b + n)});
    b += n;
  }
  if (split == Split::SinglesBackwards)
    std::reverse(chunks.begin(), chunks.end());
  return chunks;
}

std::vector<Bytes> run(const KernelCase &c, const std::vector<OperandExtent> &extents,
                       KernelFn kernel, Split split) {
  std::vector<std::unique_ptr<GuardedMemory>> memory;
  std::vector<void *> buffers[kWorkers];
  for (size_t i = 0; i < c.operands.size(); ++i)
    for (int w = 0; w < kWorkers; ++w) {
      if (w == 0 || extents[i].perWorker)
        memory.push_back(std::make_unique<GuardedMemory>(
            extents[i].perWorker ? poisoned(extents[i].bytes) : c.operands[i]));
      buffers[w].push_back(memory.back()->data());
    }
  int64_t worker = 0;
  for (auto [begin, end] : chunksOf(c.units, split)) {
    worker = (worker + 1) % kWorkers;
    kernel(buffers[worker].data(), c.params.data(), begin, end, worker);
  }
  std::vector<Bytes> after;
  size_t next = 0;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    after.push_back(memory[next]->contents());
    for (int w = 0; w < (extents[i].perWorker ? kWorkers : 1); ++w)
      EXPECT_TRUE(memory[next++]->intact()) << "wrote before operand " << i;
    if (!extents[i].written) {
      EXPECT_EQ(after[i], c.operands[i]) << "wrote to input " << i;
    }
  }
  return after;
}

void expectExactSizes(const KernelCase &c, const std::vector<OperandExtent> &extents) {
  std::vector<int64_t> sizes;
  for (const OperandExtent &e : extents)
    sizes.push_back(e.bytes);
  std::string why;
  auto valid = [&] {
    return validBuiltinLaunch(c.name, c.params.data(), c.params.size(), sizes.data(),
                              sizes.size(), c.units, why);
  };
  EXPECT_TRUE(valid()) << why;
  for (int64_t &s : sizes) {
    s -= 1;
    EXPECT_FALSE(valid());
    s += 1;
  }
}

} // namespace

Bytes poisoned(int64_t bytes) {
  Bytes b(bytes);
  for (int64_t i = 0; i < bytes; ++i)
    b[i] = kPoison >> (i % 4 * 8) & 0xff;
  return b;
}

std::vector<float> randomFloats(std::mt19937 &rng, int64_t count) {
  std::vector<float> v(count);
  std::uniform_real_distribution<float> value(-1, 1);
  for (float &x : v)
    x = value(rng);
  return v;
}

bool hasLevel(FeatureLevel level) {
  if (level == FeatureLevel::V3)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
  if (level == FeatureLevel::Dots)
    return __builtin_cpu_supports("avx512bf16") && hasLevel(FeatureLevel::V4);
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

std::vector<Bytes> runEverywhere(const KernelCase &c) {
  std::vector<KernelFn> kernels;
  bool packs = c.name == "gemm_pack_b_f32" || c.name == "gemm_packed_f32";
  for (FeatureLevel level : {FeatureLevel::V3, FeatureLevel::V4, FeatureLevel::Dots})
    if (hasLevel(level) && !(packs && level == FeatureLevel::Dots))
      kernels.push_back(findBuiltinKernel(c.name, level));
  return runOn(kernels, c);
}

std::vector<Bytes> runOn(const std::vector<KernelFn> &kernels, const KernelCase &c) {
  std::vector<OperandExtent> extents;
  std::string why;
  bool described = describeBuiltinLaunch(c.name, c.params.data(), c.params.size(),
                                         c.units, extents, why);
  EXPECT_TRUE(described) << why;
  EXPECT_EQ(extents.size(), c.operands.size());
  if (!described || extents.size() != c.operands.size())
    return c.operands;
  for (size_t i = 0; i < extents.size(); ++i) {
    if (!extents[i].perWorker) {
      EXPECT_LE(extents[i].bytes, static_cast<int64_t>(c.operands[i].size()))
          << "operand " << i;
    }
  }
  expectExactSizes(c, extents);

  std::vector<Bytes> first;
  for (size_t k = 0; k < kernels.size(); ++k)
    for (Split split : {Split::Whole, Split::SinglesBackwards, Split::Random}) {
      std::vector<Bytes> after = run(c, extents, kernels[k], split);
      if (first.empty())
        first = after;
      for (size_t i = 0; i < after.size(); ++i)
        if (!extents[i].perWorker) {
          EXPECT_EQ(after[i], first[i])
              << "kernel " << k << " split " << int(split) << " operand " << i;
        }
    }
  return first;
}

void expectNear(const std::vector<double> &expected, const Bytes &before,
                const Bytes &actual, double tolerance) {
  auto was = fromBytes<uint32_t>(before), bits = fromBytes<uint32_t>(actual);
  auto values = fromBytes<float>(actual);
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(expected[i])) {
      ASSERT_EQ(bits[i], was[i]) << "element " << i << " should be untouched";
    } else {
      ASSERT_NEAR(values[i], expected[i], tolerance) << "element " << i;
    }
  }
}

} // namespace sluice::test
