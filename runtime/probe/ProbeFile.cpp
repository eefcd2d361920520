#include "runtime/probe/ProbeFile.h"

#include <algorithm>
#include <deque>
#include <limits>

namespace sluice {

double writtenIncrease(const ParameterImportance &parameter, size_t format,
                       int64_t block) {
  if (parameter.overflows(format, block))
    return std::numeric_limits<float>::max();
  double mean = parameter.increase(format).blocks[static_cast<size_t>(block)].mean();
  return std::max(mean, 0.0);
}

Status writeProbe(const std::string &path, const Importance &importance,
                  const Metadata &metadata) {
  std::deque<std::vector<float>> values; // stay where they are
  std::vector<TensorToWrite> tensors;
  auto add = [&](const std::string &name, size_t blocks, auto &&valueOf) {
    std::vector<float> &list = values.emplace_back(blocks);
    for (size_t b = 0; b < blocks; ++b)
      list[b] = static_cast<float>(valueOf(b));
    tensors.push_back({name,
                       DType::f32,
                       {static_cast<int64_t>(blocks)},
                       list.data(),
                       blocks * sizeof(float)});
  };
  for (const ParameterImportance &p : importance.parameters) {
    const std::vector<RunningMean> &means = p.importance().blocks;
    std::string name = "importance/" + p.name();
    add(name, means.size(), [&](size_t b) { return means[b].mean(); });
    add(name + "/stderr", means.size(),
        [&](size_t b) { return means[b].standardError(); });
    for (size_t f = 0; f < std::size(probedFormats); ++f) {
      const std::vector<RunningMean> &rises = p.increase(f).blocks;
      name = "increase/" + p.name() + "/" + std::string(traitsOf(probedFormats[f]).name);
      add(name, rises.size(),
          [&](size_t b) { return writtenIncrease(p, f, static_cast<int64_t>(b)); });
      add(name + "/stderr", rises.size(),
          [&](size_t b) { return rises[b].standardError(); });
    }
  }
  return writeSafetensors(path, tensors, metadata);
}

} // namespace sluice
