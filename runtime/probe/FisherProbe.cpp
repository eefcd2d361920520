// The Fisher information's diagonal, one sample at a time.

#include "runtime/probe/DrawnLabels.h"
#include "runtime/probe/Probe.h"
#include "runtime/probe/ProbeGradients.h"

#include <algorithm>

namespace sluice {
namespace {

class FisherProbe {
public:
  FisherProbe(ProbeGradients &gradients, const ProbeOptions &options)
      : gradients(gradients), options(options),
        slicer(gradients.session().plan(), "probe") {}

  Status run(BatchSource &source) {
    auto importance = gradients.importance(options.blocks);
    if (!importance)
      return importance.status();
    result.importance = std::move(*importance);
    GroupCoupling coupling(gradients.parameters(), options.groups, options.seed);
    if (coupling.isOn())
      result.coupling = std::move(coupling);
    if (options.labels != ProbeLabels::given) {
      auto made = DrawnLabels::create(gradients.session().plan(), options.seed,
                                      options.labels == ProbeLabels::all);
      if (!made)
        return made.status();
      labels.emplace(std::move(*made));
    }
    return forSamples(source, options.samples, [&](Batch &batch) {
      Status status;
      for (int64_t i = 0; i < batch.count && status.ok(); ++i) {
        sample = batch.samples.empty() ? batch.firstSample + i
                                       : batch.samples[static_cast<size_t>(i)];
        status = addSample(slicer.slice(batch, i));
        closeWindows();
      }
      return status;
    });
  }

  ProbeResult result;

private:
  Status addSample(const Batch &batch) {
    StepResult step;
    if (Status status = gradients.run(batch, sample, step); !status.ok())
      return status;
    result.lossSum += step.lossSum;
    result.lossCount += step.lossCount;
    windowCount += step.lossCount;
    if (!labels)
      addSquares(1);
    else if (Status status = addDrawn(batch); !status.ok())
      return status;
    ++done;
    return Status::success();
  }

  /// With labels of the model's distribution in place of those given.
  Status addDrawn(const Batch &batch) {
    if (Status status = labels->read(gradients.session(), batch, sample); !status.ok())
      return status;
    for (int64_t draw = 0; draw < labels->draws(); ++draw) {
      double weight = 1;
      StepResult step;
      Status status = gradients.run(labels->batchOf(draw, weight), sample, step);
      if (!status.ok())
        return status;
      addSquares(weight);
    }
    return Status::success();
  }

  void addSquares(double weight) {
    for (size_t p = 0; p < gradients.size(); ++p) {
      std::span<const float> g = gradients.gradient(p);
      std::vector<double> &sums = result.importance.parameters[p].window();
      for (size_t i = 0; i < g.size(); ++i)
        sums[i] += weight * (static_cast<double>(g[i]) * g[i]);
      if (result.coupling)
        result.coupling->add(p, g);
    }
    if (result.coupling)
      result.coupling->endSample(weight);
  }

  void closeWindows() {
    const int64_t windows =
        std::min<int64_t>(options.samples, result.importance.keepsErrors ? 32 : 8);
    if (done < (window + 1) * options.samples / windows)
      return;
    ++window;
    // A window in which no label counts says nothing.
    if (windowCount > 0) {
      result.importance.closeWindow(1 / windowCount, windowCount);
      ++result.windows;
    }
    windowCount = 0;
  }

  ProbeGradients &gradients;
  const ProbeOptions &options;
  SampleSlicer slicer;
  std::optional<DrawnLabels> labels;
  int64_t sample = 0, done = 0, window = 0;
  double windowCount = 0;
};

} // namespace

Result<ProbeResult> probeFisher(Session &session, BatchSource &source,
                                const ProbeOptions &options) {
  if (options.samples < 2)
    return Status::usage("the Fisher of " + std::to_string(options.samples) +
                         " samples is asked for, expected at least 2: the error is that "
                         "of their mean");
  auto gradients = ProbeGradients::open(session);
  if (!gradients)
    return gradients.status();
  FisherProbe probe(*gradients, options);
  if (Status status = probe.run(source); !status.ok())
    return status;
  if (probe.result.windows == 0)
    return Status::refused("no label of the data counts in the loss");
  return std::move(probe.result);
}

} // namespace sluice
