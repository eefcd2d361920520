// The key `precision.policy`: formats of parameters within a number of bytes.

#include "frontend/spec/Reader.h"

#include <cmath>
#include <cstdlib>

namespace sluice {
namespace {

/// "0.6x"
std::optional<double> parseShare(const std::string &text) {
  if (text.size() < 2 || text.back() != 'x')
    return std::nullopt;
  char *end = nullptr;
  double share = std::strtod(text.c_str(), &end);
  if (end != text.c_str() + text.size() - 1 || !std::isfinite(share))
    return std::nullopt;
  return share;
}

} // namespace

void Reader::readPolicy(const YAML::Node &node) {
  PolicySpec &policy = spec.precision.policy;
  if (node.IsScalar() && text(node) == "none")
    return;
  if (!node.IsMap())
    return error(node, "'precision.policy' is '" + text(node) +
                           "', expected none, or a map such as {kind: importance, from: "
                           "probe.safetensors, budget: 0.6x}");
  policy.kind = "importance";
  read(node, "kind", policy.kind, "text");
  if (!oneOf(node["kind"] ? node["kind"] : node, policy.kind,
             {"importance", "random", "size"}, {}, "precision.policy.kind"))
    return;
  read(node, "from", policy.from, "a file of 'sluice probe'");
  if (policy.kind == "importance" && policy.from.empty())
    error(node, "'precision.policy' has no 'from': importance is measured by 'sluice "
                "probe', which writes the file; give it, or the kind 'size', which needs "
                "none");
  if (node["budget"])
    readPolicyBudget(node["budget"]);
  read(node, "formats", policy.formats, "a list of formats");
  if (node["formats"] && policy.formats.empty())
    error(node["formats"], "'precision.policy.formats' has no format to choose from; "
                           "name some, or leave it out for all");
  number(node, "speed", policy.speed, 0.01, 1);
}

void Reader::readPolicyBudget(const YAML::Node &node) {
  PolicySpec &policy = spec.precision.policy;
  std::string given = text(node);
  policy.budgetShare = node.IsScalar() ? parseShare(given) : std::nullopt;
  policy.budgetBytes = node.IsScalar() ? parseSize(given) : std::nullopt;
  if (!policy.budgetShare && !policy.budgetBytes)
    error(node, "'precision.policy.budget' is '" + given +
                    "', expected a share such as 0.6x of what parameters and their "
                    "masters take without the policy, or a size such as 64MiB");
  else if (policy.budgetShare && !(*policy.budgetShare > 0 && *policy.budgetShare <= 1))
    error(node, "'precision.policy.budget' is '" + given +
                    "', expected a share above 0 and up to 1x");
  else if (policy.budgetBytes && *policy.budgetBytes <= 0)
    error(node, "'precision.policy.budget' is '" + given + "', expected a size above 0");
}

} // namespace sluice
