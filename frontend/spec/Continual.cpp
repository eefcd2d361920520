// The key `continual`: what keeps a model from forgetting while it learns on.

#include "frontend/spec/Reader.h"

namespace sluice {

void Reader::readContinual(const YAML::Node &node) {
  if (node["ewc"] && node["si"])
    return error(node["si"], "'continual.ewc' and 'continual.si' both hold parameters at "
                             "an anchor; give one");
  if (node["ewc"])
    readEwc(node["ewc"]);
  if (node["si"])
    readSi(node["si"]);
  if (node["replay"])
    readReplay(node["replay"]);
  if (node["masks"])
    readMasks(node["masks"]);
}

/// What it meets in other sections.
void Reader::checkContinual(const YAML::Node &root) {
  if (!spec.penalty.isOn())
    return;
  std::string key = "continual." + spec.penalty.kind;
  if (spec.zero > 0)
    error(root["parallel"], "'" + key + "' is not yet supported with 'parallel.zero': " +
                                "anchors lie whole on every rank; remove one of them");
  for (const char *labels : {"sampled", "all"})
    if (spec.penalty.labels == labels && spec.loss.kind != "cross_entropy" &&
        spec.loss.kind != "nll")
      error(root["continual"], "'continual.ewc.fisher.labels: " + std::string(labels) +
                                   "' needs classes: the loss is '" + spec.loss.kind +
                                   "', expected cross_entropy or nll; take 'true'");
}

void Reader::readEwc(const YAML::Node &node) {
  PenaltySpec &penalty = spec.penalty;
  penalty.kind = "ewc";
  number(node, "lambda", penalty.lambda, 0, 1e30);
  if (!node["lambda"])
    error(node, "'continual.ewc' has no 'lambda'; the mean squared gradients of samples "
                "are of very different sizes, so that no default would serve");
  read(node, "coupled", penalty.coupled, "true or false");
  count(node, "tasks", penalty.tasks, 1);
  if (node["fisher"])
    readFisher(node["fisher"]);
  if (node["online"])
    readOnline(node["online"]);
  if (node["online"] && node["tasks"])
    error(node["tasks"], "'continual.ewc.tasks' counts anchors, of which 'online' has "
                         "one; give one of them");
  if (penalty.tasks > 64)
    error(node["tasks"], "'continual.ewc.tasks' is " + std::to_string(penalty.tasks) +
                             ", expected at most 64; 'online: {gamma: G}' has one anchor "
                             "for any number of tasks");
  number(node, "refresh", penalty.refresh, 0, 1e6);
  if (penalty.refresh > 0 && !penalty.gamma)
    error(node["refresh"], "'continual.ewc.refresh' adds to one anchor again and again, "
                           "which needs 'online: {gamma: G}'");
}

void Reader::readFisher(const YAML::Node &node) {
  PenaltySpec &penalty = spec.penalty;
  if (node["labels"]) {
    penalty.labels = text(node["labels"]);
    oneOf(node["labels"], penalty.labels, {"true", "sampled", "all"}, {},
          "continual.ewc.fisher.labels");
  }
  count(node, "samples", penalty.samples, 1);
  readImportanceStorage(node, "continual.ewc.fisher.storage");
}

void Reader::readOnline(const YAML::Node &node) {
  if (node.IsScalar() && text(node) == "false")
    return;
  if (!node.IsMap() || !node["gamma"])
    return error(node, "'continual.ewc.online' has no 'gamma', the share of the Fisher "
                       "that is left when a task is added: give {gamma: 0.95}, or "
                       "{gamma: 1} for a sum that forgets nothing");
  double gamma = 1;
  number(node, "gamma", gamma, 0, 1);
  spec.penalty.gamma = gamma;
}

void Reader::readSi(const YAML::Node &node) {
  PenaltySpec &penalty = spec.penalty;
  penalty.kind = "si";
  double c = 0;
  number(node, "c", c, 0, 1e30);
  if (!node["c"])
    error(node, "'continual.si' has no 'c', the strength of its penalty");
  penalty.lambda = 2 * c;
  penalty.gamma = 1; // one anchor, importances add up
  number(node, "xi", penalty.xi, 1e-30, 1e30);
  read(node, "coupled", penalty.coupled, "true or false");
  readImportanceStorage(node, "continual.si.storage");
}

void Reader::readImportanceStorage(const YAML::Node &node, const std::string &key) {
  read(node, "storage", spec.penalty.storage, "text");
  oneOf(node["storage"] ? node["storage"] : node, spec.penalty.storage,
        {"bf16", "fp32", "fp16", "int8"}, {}, key);
}

} // namespace sluice
