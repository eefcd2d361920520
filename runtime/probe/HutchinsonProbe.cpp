// The Hessian's diagonal by products with random signs, each the central difference of
// two gradients.

#include "runtime/probe/Probe.h"
#include "runtime/probe/ProbeGradients.h"
#include "runtime/probe/Signs.h"

#include <cmath>

namespace sluice {
namespace {

/// Weights that are moved, and come back at the end whatever happens.
class MovedWeights {
public:
  MovedWeights(Session &session, const Importance &importance)
      : session(session), importance(importance) {}
  ~MovedWeights() { (void)moveTo({}, 0); }
  MovedWeights(const MovedWeights &) = delete;
  MovedWeights &operator=(const MovedWeights &) = delete;

  Status moveTo(const std::vector<Signs> &signs, double eps) {
    for (size_t p = 0; p < importance.parameters.size(); ++p) {
      const ParameterImportance &parameter = importance.parameters[p];
      moved = parameter.weights();
      if (eps != 0) {
        Signs z = signs[p];
        for (size_t i = 0; i < moved.size(); ++i)
          moved[i] = static_cast<float>(moved[i] + eps * z.of(i));
      }
      Status status = session.writeState("param/" + parameter.name(), moved.data(),
                                         moved.size() * sizeof(float));
      if (!status.ok())
        return status;
    }
    return Status::success();
  }

private:
  Session &session;
  const Importance &importance;
  std::vector<float> moved;
};

/// Moved weights must reach what computes: as f32, unrounded.
Status checkExact(const Plan &plan, const Importance &importance) {
  for (const ParameterImportance &parameter : importance.parameters) {
    const fbs::StateTensor *tensor = plan.state("param/" + parameter.name());
    if (tensor->dtype() != fbs::DType::f32)
      return Status::refused(
          "parameter '" + parameter.name() + "' is stored in " +
          std::string(dtypeName(static_cast<DType>(tensor->dtype()))) +
          ", which rounds small steps away: differences of gradients need an f32 plan, "
          "such as --model compiles");
  }
  return Status::success();
}

double onePercent(const Importance &importance) {
  double sum = 0, count = 0;
  for (const ParameterImportance &parameter : importance.parameters) {
    for (float w : parameter.weights())
      sum += static_cast<double>(w) * w;
    count += static_cast<double>(parameter.weights().size());
  }
  return sum > 0 ? 0.01 * std::sqrt(sum / count) : 0.01;
}

class HutchinsonProbe {
public:
  HutchinsonProbe(ProbeGradients &gradients, BatchSource &source,
                  const ProbeOptions &options)
      : gradients(gradients), source(source), options(options) {}

  Status run() {
    auto importance = gradients.importance(options.blocks);
    if (!importance)
      return importance.status();
    result.importance = std::move(*importance);
    if (Status status = checkExact(gradients.session().plan(), result.importance);
        !status.ok())
      return status;
    result.eps = options.eps.value_or(onePercent(result.importance));
    if (Status status = visit(0, {}); !status.ok()) // the loss where the weights are
      return status;
    if (!(result.lossCount > 0))
      return Status::refused("no label of the data counts in the loss");
    MovedWeights weights(gradients.session(), result.importance);
    for (int64_t draw = 0; draw < options.draws; ++draw)
      if (Status status = addDraw(draw, weights); !status.ok())
        return status;
    return Status::success();
  }

  ProbeResult result;

private:
  Status addDraw(int64_t draw, MovedWeights &weights) {
    std::vector<Signs> signs;
    for (size_t p = 0; p < gradients.size(); ++p)
      signs.emplace_back(options.seed, static_cast<uint32_t>(draw),
                         static_cast<uint32_t>(p));
    for (int sign : {1, -1}) {
      Status status = weights.moveTo(signs, sign * result.eps);
      if (status.ok())
        status = visit(sign, signs);
      if (!status.ok())
        return status;
    }
    result.importance.closeWindow(1 / (2 * result.eps * result.lossCount), 1);
    ++result.windows;
    return Status::success();
  }

  /// Adds sign * z * gradient of the sum of losses; with sign 0 only the loss.
  Status visit(int sign, const std::vector<Signs> &signs) {
    return forSamples(source, options.samples, [&](Batch &batch) {
      StepResult step;
      if (Status status = gradients.run(batch, batch.firstSample, step); !status.ok())
        return status;
      if (sign == 0) {
        result.lossSum += step.lossSum;
        result.lossCount += step.lossCount;
        return Status::success();
      }
      for (size_t p = 0; p < gradients.size(); ++p) {
        std::span<const float> g = gradients.gradient(p);
        std::vector<double> &sums = result.importance.parameters[p].window();
        Signs z = signs[p];
        for (size_t i = 0; i < g.size(); ++i)
          sums[i] += static_cast<double>(sign * z.of(i)) * g[i];
      }
      return Status::success();
    });
  }

  ProbeGradients &gradients;
  BatchSource &source;
  const ProbeOptions &options;
};

} // namespace

Result<ProbeResult> probeHutchinson(Session &session, BatchSource &source,
                                    const ProbeOptions &options) {
  if (options.samples < 1 || options.draws < 2)
    return Status::usage(std::to_string(options.draws) + " draws over " +
                         std::to_string(options.samples) +
                         " samples are asked for, expected at least 2 draws over 1");
  if (options.eps && !(*options.eps > 0 && std::isfinite(*options.eps)))
    return Status::usage("the distance of the differences must be positive");
  auto gradients = ProbeGradients::open(session);
  if (!gradients)
    return gradients.status();
  HutchinsonProbe probe(*gradients, source, options);
  if (Status status = probe.run(); !status.ok())
    return status;
  return std::move(probe.result);
}

} // namespace sluice
