#include "passes/SpikeRule.h"

#include "ir/TrainingSpec.h"

#include <cmath>
#include <numbers>
#include <sstream>

using namespace mlir;

namespace sluice {

static std::string clipText(const ClipSpec &clip) {
  std::ostringstream text;
  text << "clip: ";
  if (clip.kind == "global_norm")
    text << "gradients of all groups to a norm of " << clip.max << " together";
  else if (clip.kind == "group_norm")
    text << "gradients of each group to a norm of " << clip.max
         << (clip.isShared ? " * sqrt(its share of the elements)" : "");
  else if (clip.kind == "agc")
    text << "gradients of each output unit to " << clip.ratio
         << " of the norm of its weights, which counts as " << clip.eps << " or more";
  else
    text << "norms that are " << clip.z << " deviations above their mean, after "
         << clip.warmup << " updates" << (clip.max > 0 ? "; never above " : "");
  if (clip.kind == "zclip" && clip.max > 0)
    text << clip.max;
  return text.str();
}

static void noteSpikes(ModuleOp module, const SpikeSpec &spikes, StateSymbols &state) {
  Builder b(module.getContext());
  if (spikes.judgesNorms()) {
    std::ostringstream text;
    text << "spikes: an update whose gradient is not finite, or after " << spikes.warmup
         << " updates has " << spikes.factor << " times the mean norm, "
         << (spikes.outliers == "rerun" ? "runs again and then " : "")
         << "changes nothing";
    report(module, text.str());
    if (spikes.outliers == "rerun")
      module->setAttr(rerunsAttr, b.getUnitAttr());
  }
  if (!spikes.cutsRates)
    return;
  // mean, sum of squared differences, count, one window was above, cool-down, times
  state.declare(spikesState, RankedTensorType::get({6}, b.getF64Type()), "control");
  auto real = [&](StringRef name, double value) {
    return b.getNamedAttr(name, b.getF64FloatAttr(value));
  };
  auto count = [&](StringRef name, int64_t value) {
    return b.getNamedAttr(name, b.getI64IntegerAttr(value));
  };
  module->setAttr(
      spikesAttr,
      b.getDictionaryAttr({real("fluctuation", spikes.fluctuation),
                           real("scale", spikes.scale), count("window", spikes.window),
                           count("max_times", spikes.maxTimes),
                           count("cooldown", spikes.cooldown)}));
  std::ostringstream text;
  text << "spikes: rates are multiplied by " << spikes.scale << " when deviation / mean "
       << "of the loss is above " << spikes.fluctuation << " in two windows of "
       << spikes.window << " updates in a row; then not for " << spikes.cooldown
       << " updates, and at most " << spikes.maxTimes << " times";
  report(module, text.str());
}

/// Averaging K gradients allows Adam sqrt(K) of the rate, a delay asks for less.
static void noteRecalibration(ModuleOp module, const TrainingSpec &spec) {
  double scale = spec.schedule.lrScale;
  if (scale <= 1)
    return;
  std::ostringstream text;
  if (int64_t delay = spec.update.delay(); delay > 0) {
    double safe = std::sin(std::numbers::pi / (4.0 * double(delay) + 2));
    text << "warning: 'schedule.lr_scale' is " << scale << ", but gradients that are "
         << delay << " steps late ask for at most " << safe
         << " of the rate (docs/gradient-health.md)";
  } else {
    text << "schedule: every rate is multiplied by " << scale
         << "; averages of K gradients ask for about sqrt(K) with Adam, and for K with "
            "sgd";
  }
  report(module, text.str());
}

void noteGradientHealth(ModuleOp module, const TrainingSpec &spec, StateSymbols &state) {
  if (spec.clip.isOn())
    report(module, clipText(spec.clip));
  noteSpikes(module, spec.spikes, state);
  noteRecalibration(module, spec);
}

} // namespace sluice
