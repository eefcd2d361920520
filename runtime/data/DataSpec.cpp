#include "runtime/data/DataSpec.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace sluice {
namespace {

struct Kind {
  std::string_view name;
  std::vector<std::string_view> options;
};

const std::vector<Kind> &kinds() {
  static const std::vector<Kind> all = {
      {"idx", {"range", "scale", "mean", "std", "layout", "lengths"}},
      {"npy", {"range", "scale", "mean", "std", "layout", "lengths"}},
      {"npz", {"range", "scale", "mean", "std", "layout", "lengths"}},
      {"safetensors", {"range", "scale", "mean", "std", "layout", "lengths"}},
      {"csv",
       {"range", "scale", "mean", "std", "layout", "columns", "target", "header",
        "delimiter", "standardize"}},
      {"text", {"range", "vocab", "vocab_from", "shift", "stride"}},
      {"tokens", {"range", "dtype", "shift", "stride"}}};
  return all;
}

std::string listed(const std::vector<std::string_view> &names) {
  std::string text;
  for (std::string_view name : names)
    text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  for (size_t begin = 0;;) {
    size_t end = text.find(separator, begin);
    pieces.push_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos)
      return pieces;
    begin = end + 1;
  }
}

Status parseOptions(DataSpec &spec, const std::vector<std::string_view> &pieces,
                    const Kind &kind) {
  for (size_t i = 1; i < pieces.size(); ++i) {
    size_t equals = pieces[i].find('=');
    if (equals == std::string_view::npos) {
      if (spec.options.empty() || pieces[i].empty())
        return spec.refuse("expected option=value, found '" + std::string(pieces[i]) +
                           "'; a file name cannot contain a comma");
      spec.options.back().values.emplace_back(pieces[i]);
      continue;
    }
    std::string key(pieces[i].substr(0, equals));
    if (std::find(kind.options.begin(), kind.options.end(), key) == kind.options.end())
      return spec.refuse("'" + spec.kind + "' has no option '" + key + "'; it knows " +
                         listed(kind.options));
    if (spec.find(key))
      return spec.refuse("the option '" + key + "' is given twice");
    spec.options.push_back({key, {std::string(pieces[i].substr(equals + 1))}});
  }
  return Status::success();
}

const Kind *findKind(std::string_view name) {
  auto kind = std::find_if(kinds().begin(), kinds().end(),
                           [&](const Kind &k) { return k.name == name; });
  return kind == kinds().end() ? nullptr : &*kind;
}

/// Where '=' ends the name of the input: before the first "KIND:", since names may hold
/// both signs ("serving_default:0"); else the first one, if no ':' precedes it.
size_t endOfName(std::string_view text) {
  constexpr size_t none = std::string_view::npos;
  for (size_t at = text.find('='); at != none; at = text.find('=', at + 1)) {
    size_t colon = text.find(':', at);
    if (colon != none && findKind(text.substr(at + 1, colon - at - 1)))
      return at;
  }
  size_t equals = text.find('=');
  return equals < text.find(':') ? equals : none;
}

} // namespace

Status DataSpec::refuse(const std::string &what) const {
  return Status::refused("'--data " + text + "': " + what);
}

Result<DataSpec> DataSpec::parse(std::string_view text) {
  DataSpec spec;
  spec.text = text;
  size_t equals = endOfName(text);
  size_t kindBegin = equals == std::string_view::npos ? 0 : equals + 1;
  size_t colon = text.find(':', kindBegin);
  if (colon == std::string_view::npos)
    return spec.refuse("expected NAME=KIND:FILE");
  if (kindBegin > 0) {
    spec.input = text.substr(0, equals);
    if (spec.input.empty())
      return spec.refuse("the name of the input before '=' is missing");
  }
  spec.kind = text.substr(kindBegin, colon - kindBegin);
  const Kind *kind = findKind(spec.kind);
  if (!kind) {
    std::vector<std::string_view> names;
    for (const Kind &known : kinds())
      names.push_back(known.name);
    return spec.refuse("no kind of data is called '" + spec.kind + "'; known are " +
                       listed(names));
  }
  std::vector<std::string_view> pieces = split(text.substr(colon + 1), ',');
  spec.file = pieces[0];
  bool hasMembers = spec.kind == "npz" || spec.kind == "safetensors";
  if (size_t hash = spec.file.rfind('#'); hasMembers && hash != std::string::npos) {
    spec.member = spec.file.substr(hash + 1);
    spec.file.resize(hash);
  }
  if (spec.file.empty())
    return spec.refuse("the file is missing");
  if (hasMembers && spec.member.empty())
    return spec.refuse("the name of the array is missing; write FILE#name");
  Status status = parseOptions(spec, pieces, *kind);
  if (!status.ok())
    return status;
  if (spec.input.empty() && !(spec.kind == "csv" && spec.find("target")))
    return spec.refuse(
        "the name of the model's input is missing; write NAME=" + spec.kind + ":FILE");
  return spec;
}

const DataOption *DataSpec::find(std::string_view key) const {
  for (const DataOption &option : options)
    if (option.key == key)
      return &option;
  return nullptr;
}

Result<std::string> DataSpec::single(std::string_view key,
                                     std::string_view fallback) const {
  const DataOption *option = find(key);
  if (!option)
    return std::string(fallback);
  if (option->values.size() != 1 || option->values[0].empty())
    return refuse("the option '" + option->key + "' takes one value");
  return option->values[0];
}

Result<int64_t> DataSpec::integer(std::string_view key, int64_t fallback,
                                  int64_t lower) const {
  Result<std::string> value = single(key, std::to_string(fallback));
  if (!value)
    return value.status();
  std::optional<int64_t> number = parseInteger(*value);
  if (!number || *number < lower)
    return refuse("the option '" + std::string(key) + "' is '" + *value +
                  "', expected a whole number of at least " + std::to_string(lower));
  return *number;
}

std::optional<int64_t> parseInteger(std::string_view text) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    return std::nullopt;
  return value;
}

std::optional<double> parseNumber(std::string_view text) {
  double value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

std::optional<double> parseFraction(std::string_view text) {
  size_t slash = text.find('/');
  if (slash == std::string_view::npos)
    return parseNumber(text);
  auto above = parseNumber(text.substr(0, slash));
  auto below = parseNumber(text.substr(slash + 1));
  if (!above || !below || *below == 0)
    return std::nullopt;
  return *above / *below;
}

Result<std::pair<int64_t, int64_t>> parseRange(std::string_view text, int64_t count) {
  size_t colon = text.find(':');
  std::string shown = "the range '" + std::string(text) + "'";
  if (colon == std::string_view::npos)
    return Status::refused(shown + " is not of the form first:end");
  std::string_view first = text.substr(0, colon), end = text.substr(colon + 1);
  auto low = first.empty() ? std::optional<int64_t>(0) : parseInteger(first);
  auto high = end.empty() ? std::optional<int64_t>(count) : parseInteger(end);
  if (!low || !high)
    return Status::refused(shown + " is not of the form first:end");
  if (*low < 0 || *high > count || *low >= *high)
    return Status::refused(shown + " is empty or goes beyond the " +
                           std::to_string(count) + " samples there are");
  return std::pair(*low, *high);
}

} // namespace sluice
