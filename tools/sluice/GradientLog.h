#pragma once
// What training says of its gradients: norms by group and layer, their dispersion over
// the depth, and the rate that is left after clipping (docs/gradient-health.md).

#include "runtime/Trainer.h"
#include "tools/sluice/Cli.h"

#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace sluice::cli {

/// Parameters whose names differ in their last element only: "blocks.0.attn" of
/// "blocks.0.attn.weight". In the order of their first use.
struct GradientLayer {
  std::string name;
  double elements = 0;
  double squares = 0, clipped = 0; // of the mean gradient, before and after clipping

  double rms() const;
  /// What clipping multiplies the rate by.
  double factor() const;
};

struct GradientFigures {
  std::vector<GradientLayer> layers;
  std::map<std::string, GradientLayer> groups;
  GradientLayer all;

  /// Largest / smallest RMS of a layer that has a gradient.
  double dispersion() const;
};

/// From the outputs of the update that ran last.
GradientFigures gradientFigures(const Session &session);

/// Layers over the updates of a run: their RMS and what clipping leaves of the rate.
class GradientHistory {
public:
  void add(const GradientFigures &figures);
  /// Means over the updates; members of `gradients` of train's JSON.
  Json summary() const;
  /// By layer: the range and the mean of the RMS, and what is left of the rate.
  std::string svg(const std::string &title) const;

private:
  struct Layer {
    std::string name;
    double least = 0, most = 0, logSum = 0, factorSum = 0;
    int64_t seen = 0, updates = 0;
  };
  std::vector<Layer> layers;
  int64_t updates = 0, clippedUpdates = 0;
  double normSum = 0, factorSum = 0, dispersionSum = 0;
};

/// `--gradients F`: F.jsonl a line per update, F.svg a picture at the end.
class GradientLog {
public:
  Status open(const std::vector<std::string> &paths, const Plan &plan);
  bool isOn() const { return !paths.empty(); }
  void add(const TrainProgress &progress, const Session &session);
  Status finish(Console &console);

private:
  std::vector<std::string> paths;
  std::ofstream lines;
  std::string title;
  GradientHistory history;
};

} // namespace sluice::cli
