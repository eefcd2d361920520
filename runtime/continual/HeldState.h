#pragma once
// The state of a penalty: anchors and importances by parameter, as values.

#include "runtime/Session.h"

#include <string>
#include <vector>

namespace sluice {

/// One parameter that a penalty holds.
struct HeldParameter {
  std::string name; // the model's
  uint64_t elements = 0;
};

class HeldState {
public:
  /// Refused without a penalty; damaged where its tensors do not fit the parameters'.
  static Result<HeldState> open(const Plan &plan);

  const fbs::Continual &options() const { return *table; }
  bool isSi() const { return table->kind() == fbs::PenaltyKind::si; }
  const std::vector<HeldParameter> &parameters() const { return held; }
  /// "ewc/tasks": how often it has been consolidated.
  std::string counter() const { return folder + "tasks"; }
  /// Anchors in use.
  int64_t anchors(const Session &session) const;

  std::string anchor(const HeldParameter &parameter, int64_t task = 0) const;
  std::string importance(const HeldParameter &parameter, int64_t task = 0) const;
  std::string path(const HeldParameter &parameter) const;

  std::vector<float> values(const Session &session, const std::string &symbol) const;
  std::vector<float> importances(const Session &session, const HeldParameter &parameter,
                                 int64_t task) const;
  void setImportances(Session &session, const HeldParameter &parameter, int64_t task,
                      std::span<const float> values) const;

private:
  Status addParameter(const Plan &plan, const fbs::StateTensor &anchor);

  const fbs::Continual *table = nullptr;
  std::string folder; // "ewc/"
  std::vector<HeldParameter> held;
};

} // namespace sluice
