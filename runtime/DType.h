#pragma once
// Element types of tensors in plans, checkpoints and batches.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace sluice {

/// The order is that of runtime/plan.fbs. `i1` takes one byte per element.
enum class DType : int8_t {
  f32 = 0,
  f64,
  f16,
  bf16,
  i8,
  u8,
  i16,
  u16,
  i32,
  u32,
  i64,
  u64,
  i1
};

constexpr int dtypeCount = 13;

/// Bytes of one element.
constexpr size_t dtypeSize(DType type) {
  constexpr size_t sizes[dtypeCount] = {4, 8, 2, 2, 1, 1, 2, 2, 4, 4, 8, 8, 1};
  return sizes[static_cast<int>(type)];
}

/// "f32", "i64", ...
constexpr std::string_view dtypeName(DType type) {
  constexpr std::string_view names[dtypeCount] = {"f32", "f64", "f16", "bf16", "i8",
                                                  "u8",  "i16", "u16", "i32",  "u32",
                                                  "i64", "u64", "i1"};
  return names[static_cast<int>(type)];
}

constexpr bool isFloat(DType type) { return static_cast<int>(type) <= 3; }

} // namespace sluice
