#include "frontend/spec/Reader.h"

namespace sluice {

void Reader::readRecompute(const YAML::Node &node) {
  if (node.IsMap() && node["every"]) {
    spec.recompute = "every";
    count(node, "every", spec.recomputeEvery, 1);
  } else if (node.IsMap()) {
    error(node, "'memory.recompute' is a map without 'every'; expected none, sqrt, auto "
                "or {every: N}");
  } else if (oneOf(node, text(node), {"none", "sqrt", "auto"}, {}, "memory.recompute")) {
    spec.recompute = text(node);
  }
}

void Reader::readMemory(const YAML::Node &node) {
  if (YAML::Node budget = node["budget"]) {
    spec.budgetBytes = budget.IsScalar() ? parseSize(budget.Scalar()) : std::nullopt;
    if (!spec.budgetBytes)
      error(budget, "'memory.budget' is '" + text(budget) +
                        "', expected bytes or a size such as 2GiB");
  }
  if (YAML::Node recompute = node["recompute"])
    readRecompute(recompute);
  read(node, "keep", spec.keep, "a list of names");
  if (YAML::Node offload = node["offload"])
    oneOf(offload, text(offload), {"none"}, {"auto", "host"}, "memory.offload");
  if (YAML::Node order = node["order"])
    oneOf(order, text(order), {"auto"}, {}, "memory.order");
}

} // namespace sluice
