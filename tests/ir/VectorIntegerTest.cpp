// The vector code of integers, comparisons and conversions against the interpreter.
#include "tests/ir/VectorJit.h"

#include <bit>
#include <cmath>
#include <limits>

namespace sluice::graph {
namespace {

constexpr int64_t most = std::numeric_limits<int64_t>::max();

mlir::Type integerType(unsigned width) {
  return mlir::IntegerType::get(&context(), width);
}

/// Values of the width: small ones, extremes, and random ones; every pair of them.
std::pair<HostTensor, HostTensor> integerPairs(unsigned width) {
  std::vector<int64_t> values = {0, 1};
  if (width > 1) {
    const int64_t top = width == 64 ? most : (1LL << (width - 1)) - 1;
    values = {0, 1, -1, 2, -2, 3, 7, -7, 31, 63, 100, top, top - 1, -top - 1, -top, 5};
    std::mt19937_64 generator(3);
    for (int i = 0; i < 16; ++i)
      values.push_back(static_cast<int64_t>(generator()) >> (64 - width));
  }
  std::vector<int64_t> a, b;
  for (int64_t x : values)
    for (int64_t y : values)
      a.push_back(x), b.push_back(y);
  while (a.size() % 16)
    a.push_back(1), b.push_back(1);
  const int64_t count = a.size();
  return {integer({count}, a, width), integer({count}, b, width)};
}

TEST(VectorInteger, ArithmeticWrapsAsInterpreted) {
  const std::vector<std::pair<std::string, Build>> operations = {
      {"add", binary<AddOp>()},      {"sub", binary<SubOp>()},
      {"mul", binary<MulOp>()},      {"div", binary<DivOp>()},
      {"mod", binary<ModOp>(false)}, {"fmod", binary<ModOp>(true)},
      {"pow", binary<PowOp>()},      {"max", binary<MaxOp>()},
      {"min", binary<MinOp>()},      {"and", binary<AndOp>()},
      {"or", binary<OrOp>()},        {"xor", binary<XorOp>()}};
  for (unsigned width : {1, 8, 16, 32, 64}) {
    auto [a, b] = integerPairs(width);
    for (const auto &[name, build] : operations)
      expectAsInterpreted(build, {a, b}, name + " i" + std::to_string(width));
  }
}

TEST(VectorInteger, UnaryAsInterpreted) {
  for (unsigned width : {1, 8, 32, 64}) {
    HostTensor x = integerPairs(width).first;
    const std::string suffix = " i" + std::to_string(width);
    expectAsInterpreted(unary<NegOp>(), {x}, "neg" + suffix);
    expectAsInterpreted(unary<AbsOp>(), {x}, "abs" + suffix);
    expectAsInterpreted(unary<SignOp>(), {x}, "sign" + suffix);
    expectAsInterpreted(unary<ReluOp>(), {x}, "relu" + suffix);
    expectAsInterpreted(unary<NotOp>(), {x}, "not" + suffix);
  }
}

TEST(VectorInteger, DivisionAgreesOnAvx2) {
  auto [a, b] = integerPairs(64);
  expectAsInterpreted(binary<DivOp>(), {a, b}, "div", "haswell");
  expectAsInterpreted(binary<PowOp>(), {a, b}, "pow", "haswell");
}

HostTensor realsOfAllKinds() {
  std::vector<double> values = {
      0.0,       -0.0,         0.5,    -0.5,    1.5,        -1.5,         127,
      128,       -128,         -129,   32767.5, 2147483520, 2147483648.0, -2147483648.0,
      -4e9,      9.2233715e18, 0x1p63, -0x1p63, 1e30,       -1e30,        INFINITY,
      -INFINITY, NAN,          1e-40,  65504,   65520,      1e-8};
  std::mt19937 generator(5);
  while (values.size() % 16 || values.size() < 4096) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(generator()));
    values.push_back(std::isnan(x) ? 1 : x);
  }
  return real({static_cast<int64_t>(values.size())}, values);
}

TEST(VectorInteger, CompareAndSelectAsInterpreted) {
  HostTensor x = realsOfAllKinds(), y = x;
  std::rotate(y.reals.begin(), y.reals.begin() + 3, y.reals.end());
  for (size_t i = 0; i < y.reals.size(); i += 3)
    y.reals[i] = x.reals[i];
  for (const char *predicate : {"eq", "ne", "lt", "le", "gt", "ge"}) {
    expectAsInterpreted(binary<CompareOp>(predicate), {x, y}, predicate);
    for (unsigned width : {1, 32, 64}) {
      auto [a, b] = integerPairs(width);
      expectAsInterpreted(binary<CompareOp>(predicate), {a, b}, predicate);
    }
  }
  auto [a, b] = integerPairs(32);
  std::vector<int64_t> bits;
  for (int64_t v : a.integers)
    bits.push_back(v & 1);
  HostTensor condition = integer(a.shape, bits, 1);
  Build select = [](mlir::OpBuilder &b,
                    llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
    return b.create<SelectOp>(b.getUnknownLoc(), x[0], x[1], x[2]);
  };
  expectAsInterpreted(select, {condition, a, b}, "select");
}

TEST(VectorInteger, RealsConvertAsInterpreted) {
  HostTensor x = realsOfAllKinds();
  for (unsigned width : {1, 8, 16, 32, 64})
    for (const char *cpu : {"", "haswell"})
      expectAsInterpreted(unary<CastOp>(integerType(width)), {x},
                          "to i" + std::to_string(width), cpu);
  for (double &value : x.reals) // the payload of a NaN is not part of the definition
    value = std::isnan(value) ? 0 : value;
  expectAsInterpreted(unary<CastOp>(mlir::Type(mlir::BFloat16Type::get(&context()))), {x},
                      "to bf16");
  expectAsInterpreted(unary<CastOp>(mlir::Type(mlir::Float16Type::get(&context()))), {x},
                      "to f16");
}

TEST(VectorInteger, IntegersConvertAsInterpreted) {
  for (unsigned from : {1, 8, 32, 64}) {
    HostTensor x = integerPairs(from).first;
    for (unsigned to : {1, 8, 16, 32, 64})
      expectAsInterpreted(unary<CastOp>(integerType(to)), {x},
                          "i" + std::to_string(from) + " to i" + std::to_string(to));
    expectAsInterpreted(unary<CastOp>(mlir::Type(mlir::Float32Type::get(&context()))),
                        {x}, "i" + std::to_string(from) + " to f32");
  }
}

} // namespace
} // namespace sluice::graph
