// Ranks and how they talk to each other.

#include "frontend/spec/Reader.h"

namespace sluice {

void Reader::readParallel(const YAML::Node &node) {
  count(node, "data", spec.ranks, 1);
  constexpr int64_t most = 4096;
  if (spec.ranks > most)
    error(node["data"], "'parallel.data' is " + std::to_string(spec.ranks) +
                            ", expected at most " + std::to_string(most));
  if (spec.ranks > 1 && spec.asRanks > 1)
    error(node, "'accumulate.as_ranks' is what one rank does in place of many; leave it "
                "out beside 'parallel.data: " +
                    std::to_string(spec.ranks) + "'");
  // What stands for what is there already may be spelled out.
  count(node, "zero", spec.zero, 0);
  if (spec.zero > 2)
    error(node["zero"],
          "'parallel.zero: " + std::to_string(spec.zero) +
              "' is not yet supported, expected 0, 1 (optimizer state shared out to the "
              "ranks) or 2 (gradients too)");
  const std::pair<const char *, const char *> later[] = {{"tensor", "1"},
                                                         {"pipeline", "1"}};
  for (auto [key, only] : later)
    if (node[key] && text(node[key]) != only)
      error(node[key], "'parallel." + std::string(key) + ": " + text(node[key]) +
                           "' is not yet supported, only " + only);
}

void Reader::readComm(const YAML::Node &node) {
  if (YAML::Node bucket = node["bucket"]; bucket && text(bucket) != "auto") {
    spec.bucketBytes = bucket.IsScalar() ? parseSize(bucket.Scalar()) : std::nullopt;
    if (!spec.bucketBytes || *spec.bucketBytes < 1)
      error(bucket, "'comm.bucket' is '" + text(bucket) +
                        "', expected auto, bytes or a size such as 8MiB");
  }
  number(node, "window_ms", spec.windowMs, 0, 1e9);
  number(node, "timeout_s", spec.timeoutSeconds, 0.001, 1e9);
  if (YAML::Node order = node["order"])
    oneOf(order, text(order), {"fixed"}, {}, "comm.order");
}

} // namespace sluice
