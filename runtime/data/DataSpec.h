#pragma once
// One `--data` argument: NAME=KIND:FILE[#MEMBER][,option=value...].

#include "runtime/Status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice {

/// A value may be a list, as pieces without '=' continue the option before them:
/// columns=1-3,7,age.
struct DataOption {
  std::string key;
  std::vector<std::string> values;
};

struct DataSpec {
  std::string text;  ///< as given, for messages
  std::string input; ///< the model's input; empty only for csv with a target
  std::string kind;  ///< idx, npy, npz, safetensors, csv, text or tokens
  std::string file;
  std::string member; ///< behind '#': the array in a npz or safetensors file
  std::vector<DataOption> options;

  /// Refused when it does not parse, or names a kind or option that does not exist.
  static Result<DataSpec> parse(std::string_view text);

  const DataOption *find(std::string_view key) const;
  /// The only value of an option, or `fallback` without it; refused when it is a list.
  Result<std::string> single(std::string_view key, std::string_view fallback) const;
  Result<int64_t> integer(std::string_view key, int64_t fallback, int64_t lower) const;

  /// "'--data TEXT': WHAT".
  Status refuse(const std::string &what) const;
};

/// A finite decimal number.
std::optional<double> parseNumber(std::string_view text);
/// The same, or a fraction of two (1/255).
std::optional<double> parseFraction(std::string_view text);
std::optional<int64_t> parseInteger(std::string_view text);

/// "A:B", ":B", "A:" or ":" as a part of [0, count); refused when it does not fit in.
Result<std::pair<int64_t, int64_t>> parseRange(std::string_view text, int64_t count);

} // namespace sluice
