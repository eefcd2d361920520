// The section `precision`: what numbers are computed and kept in.

#include "frontend/spec/Reader.h"

#include <algorithm>
#include <cmath>

namespace sluice {

namespace {

/// Keys of `loss_scale` that only some kinds read: a key without effect is an error.
const struct {
  const char *key;
  std::vector<std::string> kinds;
} kLossScaleKeys[] = {
    {"init", {"dynamic", "static", "adaptive"}}, {"growth_interval", {"dynamic"}},
    {"backoff", {"dynamic", "adaptive"}},        {"min_scale", {"dynamic", "adaptive"}},
    {"max_scale", {"dynamic", "adaptive"}},
};

bool isPowerOfTwo(double value) {
  int exponent = 0;
  return value > 0 && std::frexp(value, &exponent) == 0.5;
}

std::string numberText(double value) {
  std::ostringstream text;
  text.precision(17);
  text << value;
  return text.str();
}

} // namespace

void Reader::readPrecision(const YAML::Node &node) {
  std::string compute = "fp32";
  read(node, "compute", compute, "text");
  oneOf(node["compute"] ? node["compute"] : node, compute, {"fp32"},
        {"amp_bf16", "amp_fp16"}, "precision.compute");
  if (compute == "amp_fp16")
    spec.lossScale.kind = "dynamic";
  if (node["loss_scale"])
    readLossScale(node["loss_scale"]);
  if (compute == "amp_fp16" && !spec.lossScale.isOn())
    error(node["loss_scale"],
          "'precision.loss_scale' is none under 'amp_fp16': gradients below 2^-24 would "
          "become 0; expected dynamic, static or adaptive");
}

/// A kind alone, or a map.
void Reader::readLossScale(const YAML::Node &node) {
  LossScaleSpec &scale = spec.lossScale;
  if (node.IsScalar()) {
    scale.kind = text(node);
  } else if (node.IsMap()) {
    scale.kind = "dynamic";
    read(node, "kind", scale.kind, "text");
  } else {
    return error(node, "'precision.loss_scale' is '" + text(node) +
                           "', expected a kind, or a map such as {kind: dynamic}");
  }
  YAML::Node at = node.IsMap() && node["kind"] ? node["kind"] : node;
  if (!oneOf(at, scale.kind, {"none", "dynamic", "static", "adaptive"}, {},
             "precision.loss_scale.kind") ||
      node.IsScalar())
    return;
  for (const auto &[key, kinds] : kLossScaleKeys)
    if (node[key] && std::find(kinds.begin(), kinds.end(), scale.kind) == kinds.end())
      error(node[key], "'precision.loss_scale." + std::string(key) +
                           "' has no effect on " + scale.kind + "; remove it");
  count(node, "growth_interval", scale.growthInterval, 1);
  powerOfTwo(node, "init", scale.init, 0x1p-32, 0x1p64);
  powerOfTwo(node, "backoff", scale.backoff, 0x1p-16, 0.5);
  powerOfTwo(node, "min_scale", scale.min, 0x1p-32, 0x1p64);
  powerOfTwo(node, "max_scale", scale.max, 0x1p-32, 0x1p64);
  if (scale.kind == "static")
    scale.min = scale.max = scale.init;
  if (!(scale.min <= scale.init && scale.init <= scale.max))
    error(node, "'precision.loss_scale' begins at " + numberText(scale.init) +
                    ", expected a number from 'min_scale', " + numberText(scale.min) +
                    ", to 'max_scale', " + numberText(scale.max));
}

/// Scales are powers of two: gradients are scaled and unscaled without rounding.
void Reader::powerOfTwo(const YAML::Node &parent, const char *key, double &into,
                        double low, double high) {
  size_t before = result.errors.size();
  number(parent, key, into, low, high);
  if (!parent[key] || result.errors.size() > before || isPowerOfTwo(into))
    return;
  error(parent[key], "'" + std::string(key) + "' is " + numberText(into) +
                         ", expected a power of two such as " +
                         numberText(std::exp2(std::round(std::log2(into)))) +
                         ": nothing else is undone without rounding");
}

} // namespace sluice
