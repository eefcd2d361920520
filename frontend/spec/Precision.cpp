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
  PrecisionSpec &precision = spec.precision;
  std::string &compute = precision.compute;
  read(node, "compute", compute, "text");
  oneOf(node["compute"] ? node["compute"] : node, compute,
        {"fp32", "amp_bf16", "amp_fp16"}, {}, "precision.compute");
  readMaster(node);
  if (node["accumulator"]) { // gradients of parameters are f32: both are the same
    std::string accumulator;
    read(node, "accumulator", accumulator, "text");
    oneOf(node["accumulator"], accumulator, {"fp32", "gradient"}, {},
          "precision.accumulator");
  }
  if (node["optimizer_state"]) {
    read(node, "optimizer_state", precision.optimizerState, "text");
    checkMoments(node["optimizer_state"], precision.optimizerState,
                 "precision.optimizer_state");
  }
  if (node["rules"])
    readRules(node["rules"]);
  if (node["policy"])
    readPolicy(node["policy"]);
  if (node["rules"])
    checkKeep(node["rules"]);
  if (compute == "amp_fp16")
    spec.lossScale.kind = "dynamic";
  if (node["loss_scale"])
    readLossScale(node["loss_scale"]);
  if (compute == "amp_fp16" && !spec.lossScale.isOn())
    error(node["loss_scale"],
          "'precision.loss_scale' is none under 'amp_fp16': gradients below 2^-24 would "
          "become 0; expected dynamic, static or adaptive");
}

void Reader::readMaster(const YAML::Node &node) {
  PrecisionSpec &precision = spec.precision;
  precision.master = precision.masterForm();
  if (!node["master"])
    return;
  read(node, "master", precision.master, "text");
  if (!oneOf(node["master"], precision.master, {"split", "fp32", "none"}, {},
             "precision.master"))
    return;
  if (!precision.isNarrow())
    error(node["master"], "'precision.master' has no effect under compute fp32, where "
                          "weights are stored in f32; remove it");
  else if (precision.compute == "amp_fp16" && precision.master != "fp32")
    error(node["master"],
          "'precision.master' is '" + precision.master +
              "' under amp_fp16, expected fp32: f16 and 16 bits more are no f32, and "
              "updates of f16 weights alone overflow or vanish");
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
