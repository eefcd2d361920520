#pragma once
// Runs one launch the way the runtime may (any chunks, any order, several workers, both
// feature levels) with every operand between a red zone and an unreadable page.

#include "kernels/Catalog.h"
#include "kernels/Params.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace sluice::test {

using Bytes = std::vector<uint8_t>;

/// The pattern outputs are filled with before a launch: a NaN no kernel produces.
constexpr uint32_t kPoison = 0x7fa5a5a5;

template <typename T> Bytes toBytes(const std::vector<T> &v) {
  Bytes b(v.size() * sizeof(T));
  if (!b.empty())
    std::memcpy(b.data(), v.data(), b.size());
  return b;
}

template <typename T> std::vector<T> fromBytes(const Bytes &b) {
  std::vector<T> v(b.size() / sizeof(T));
  if (!v.empty())
    std::memcpy(v.data(), b.data(), v.size() * sizeof(T));
  return v;
}

Bytes poisoned(int64_t bytes);
std::vector<float> randomFloats(std::mt19937 &rng, int64_t count);

/// A launch with the contents of its operands; those of workspaces are ignored.
struct KernelCase {
  std::string name;
  std::vector<int64_t> params;
  int64_t units = 0;
  std::vector<Bytes> operands;
};

bool hasLevel(FeatureLevel level);

/// Runs the case on all levels (those of one packed B: it is the level's own otherwise)
/// and splits, and expects the same bits, intact red zones and a launch that is accepted
/// for the exact sizes and refused for a byte less. Returns the operands afterwards.
std::vector<Bytes> runEverywhere(const KernelCase &c);

/// The same with given implementations of the kernel.
std::vector<Bytes> runOn(const std::vector<KernelFn> &kernels, const KernelCase &c);

/// `expected` has NaN where the initial contents (`before`) must be untouched.
void expectNear(const std::vector<double> &expected, const Bytes &before,
                const Bytes &actual, double tolerance);

} // namespace sluice::test
