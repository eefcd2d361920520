// Hyper-parameters and freezing between steps. What is changed is written into the
// controls before each program, and kept with checkpoints: a run that goes on has the
// same bits.

#include "runtime/Schedule.h"
#include "runtime/Session.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace sluice {

namespace {

constexpr std::string_view restSuffix = "_rest", clipName = "clip_max";

/// What a group's controls are called that the runtime computes itself.
bool isDerived(std::string_view name) {
  for (std::string_view known :
       {"lr", "bc1", "bc2", "nadam_g", "nadam_m", "radam_r", "active", "update"})
    if (name == known)
      return true;
  return name.ends_with(restSuffix);
}

/// The values optimizers are defined for.
Status checkHyper(std::string_view name, double value) {
  bool isBeta = name == "beta1" || name == "beta2" || name == "alpha";
  bool isFree = name == "beta2_decay";
  if (std::isnan(value) ||
      (std::isfinite(value) && (isFree || value >= 0) && (!isBeta || value < 1)))
    return Status::success();
  return Status::usage("hyper-parameter '" + std::string(name) + "' is " +
                       std::to_string(value) + ", expected a number" +
                       (isFree   ? ""
                        : isBeta ? " from 0 to below 1"
                                 : " of at least 0"));
}

std::string exactText(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%a", value);
  return text;
}

std::optional<double> exactNumber(const std::string &text) {
  char *end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  return end && *end == 0 && !text.empty() && std::isfinite(value) ? std::optional(value)
                                                                   : std::nullopt;
}

} // namespace

void Session::HyperControl::write() const {
  if (value)
    *value = static_cast<float>(current());
  if (rest)
    *rest = static_cast<float>(1.0 - current());
}

Session::HyperControl Session::hyperControl(const fbs::StateTensor &tensor,
                                            std::string_view name) {
  HyperControl control;
  control.name = name;
  control.initial = control.standard = tensor.fill();
  control.value = stateScalar<float>(std::string(viewOf(tensor.name())));
  control.rest =
      stateScalar<float>(std::string(viewOf(tensor.name())) + std::string(restSuffix));
  return control;
}

void Session::findHyper() {
  const auto *tensors = planPtr->raw().state();
  for (uint32_t i = 0; i < sizeOf(tensors); ++i) {
    std::string_view name = viewOf(tensors->Get(i)->name());
    if (name == "control/clip_max")
      controls.clipMax = hyperControl(*tensors->Get(i), clipName);
    for (GroupControls &group : controls.groups) {
      std::string prefix = "control/" + std::string(viewOf(group.group->name())) + "/";
      if (name.starts_with(prefix) && !isDerived(name.substr(prefix.size())))
        group.hyper.push_back(hyperControl(*tensors->Get(i), name.substr(prefix.size())));
    }
  }
  for (GroupControls &group : controls.groups) {
    std::string prefix = "control/" + std::string(viewOf(group.group->name())) + "/";
    group.active = stateScalar<float>(prefix + "active");
    group.update = stateScalar<int64_t>(prefix + "update");
    if (group.nadamG) { // computed from, and nowhere stored
      HyperControl decay;
      decay.name = "momentum_decay";
      decay.initial = decay.standard = group.group->momentum_decay();
      group.hyper.push_back(decay);
    }
  }
  followChanges(-1);
}

/// Values of the plan that hold from an update on; what freezes does so once, when it is
/// reached, and can be undone.
void Session::followChanges(int64_t before) {
  int64_t now = appliedUpdates();
  auto follow = [&](HyperControl &control, const HyperChanges *changes) {
    control.standard = changedValue(changes, control.name, now, control.initial);
  };
  follow(controls.clipMax, planPtr->raw().changes());
  for (GroupControls &group : controls.groups) {
    const HyperChanges *changes = group.group->changes();
    for (HyperControl &control : group.hyper)
      follow(control, changes);
    for (uint32_t i = 0; i < sizeOf(changes); ++i) {
      const fbs::HyperChange &change = *changes->Get(i);
      if (viewOf(change.name()) == "frozen" && change.update() > before &&
          change.update() <= now)
        group.frozen = change.value() != 0;
    }
  }
}

/// Updates the group's parameters have had. A frozen group does not count updates, as a
/// parameter without a gradient does not, and none counts what the loss scale has
/// skipped.
int64_t Session::doneIn(const GroupControls &group) const {
  return std::max<int64_t>(0, appliedUpdates() - group.skipped);
}

double Session::nadamProductOf(const GroupControls &group) const {
  return group.nadamProduct ? *group.nadamProduct
                            : nadamProduct(group.group->beta1(),
                                           group.group->momentum_decay(), doneIn(group));
}

/// Before the values change: `updatesDone` counts the update already.
void Session::countUpdate(GroupControls &group, bool isSkipped) {
  if (isSkipped)
    return;
  if (group.frozen || !group.isTurn) {
    ++group.skipped;
    return;
  }
  advanceNadam(group);
}

/// Of an update that `doneIn` counts.
void Session::advanceNadam(GroupControls &group) {
  if (!group.nadamG)
    return;
  int64_t before = std::max<int64_t>(0, doneIn(group) - 1);
  double known = group.nadamProduct ? *group.nadamProduct
                                    : nadamProduct(group.group->beta1(),
                                                   group.group->momentum_decay(), before);
  group.nadamProduct = nextNadamProduct(
      group.currentOf("beta1", group.group->beta1()),
      group.currentOf("momentum_decay", group.group->momentum_decay()), before, known);
}

double Session::GroupControls::currentOf(std::string_view name, double otherwise) const {
  for (const HyperControl &control : hyper)
    if (control.name == name)
      return control.current();
  return otherwise;
}

void Session::writeGroupControls(const GroupControls &group) const {
  for (const HyperControl &control : group.hyper)
    control.write();
  int64_t done = doneIn(group);
  double beta1 = group.currentOf("beta1", group.group->beta1());
  double beta2 = group.currentOf("beta2", group.group->beta2());
  auto set = [](float *place, double value) {
    if (place)
      *place = static_cast<float>(value);
  };
  set(group.lr, rateOf(group));
  set(group.active, group.frozen || !group.isTurn ? 0.0 : 1.0);
  if (group.update)
    *group.update = done;
  set(group.bc1, biasCorrection(beta1, done));
  set(group.bc2, biasCorrection(beta2, done));
  if (group.nadamG && group.nadamM) {
    double decay = group.currentOf("momentum_decay", group.group->momentum_decay());
    NadamWeights weights = nadamWeights(beta1, decay, done, nadamProductOf(group));
    set(group.nadamG, weights.gradient);
    set(group.nadamM, weights.moment);
  }
  if (group.radamR)
    set(group.radamR, radamRectification(beta2, done));
}

Session::GroupControls *Session::findGroup(std::string_view name) {
  for (GroupControls &group : controls.groups)
    if (viewOf(group.group->name()) == name)
      return &group;
  return nullptr;
}

const Session::GroupControls *Session::findGroup(std::string_view name) const {
  return const_cast<Session *>(this)->findGroup(name);
}

Status Session::unknownGroup(std::string_view name) const {
  std::string list;
  for (const GroupControls &group : controls.groups)
    list += (list.empty() ? "'" : ", '") + std::string(viewOf(group.group->name())) + "'";
  return Status::usage("the plan has no parameter group '" + std::string(name) +
                       "'; it has " + (list.empty() ? "none" : list));
}

Result<Session::HyperControl *> Session::findHyper(std::string_view groupName,
                                                   std::string_view name) {
  if (groupName.empty()) {
    if (name == clipName && controls.clipMax.value)
      return &controls.clipMax;
    return Status::usage("the plan has no hyper-parameter '" + std::string(name) +
                         "' outside its groups" +
                         (name == clipName ? "; it does not clip" : ""));
  }
  GroupControls *group = findGroup(groupName);
  if (!group)
    return unknownGroup(groupName);
  std::string list = "'lr'";
  for (HyperControl &control : group->hyper) {
    if (control.name == name)
      return &control;
    list += ", '" + std::string(control.name) + "'";
  }
  return Status::usage("group '" + std::string(groupName) + "' has no hyper-parameter '" +
                       std::string(name) + "' that can change; it has " + list);
}

Result<double> Session::hyper(std::string_view group, std::string_view name) const {
  if (name == "lr" && !group.empty())
    return rate(group);
  auto control = const_cast<Session *>(this)->findHyper(group, name);
  return control ? Result<double>((*control)->current()) : control.status();
}

Status Session::setHyper(std::string_view group, std::string_view name, double value) {
  if (Status status = checkHyper(name, value); !status.ok())
    return status;
  if (name == "lr" && !group.empty())
    return setRate(group, value);
  auto control = findHyper(group, name);
  if (!control)
    return control.status();
  (*control)->isFixed = !std::isnan(value);
  (*control)->fixed = value;
  return Status::success();
}

Result<bool> Session::frozen(std::string_view name) const {
  const GroupControls *group = findGroup(name);
  return group ? Result<bool>(group->frozen) : unknownGroup(name);
}

Status Session::setFrozen(std::string_view name, bool frozen) {
  GroupControls *group = findGroup(name);
  if (!group)
    return unknownGroup(name);
  if (!group->active)
    return Status::usage("group '" + std::string(name) +
                         "' cannot be frozen in this plan; compile again");
  group->frozen = frozen;
  return Status::success();
}

std::vector<std::pair<std::string, std::string>> Session::changes() const {
  std::vector<std::pair<std::string, std::string>> lines;
  auto add = [&](std::string_view group, std::string_view name, std::string value) {
    lines.emplace_back("control/" + std::string(group) + (group.empty() ? "" : "/") +
                           std::string(name),
                       std::move(value));
  };
  if (controls.clipMax.isFixed)
    add("", clipName, exactText(controls.clipMax.fixed));
  for (const GroupControls &group : controls.groups) {
    std::string_view name = viewOf(group.group->name());
    if (group.hasFixedRate)
      add(name, "lr", exactText(group.fixedRate));
    for (const HyperControl &control : group.hyper)
      if (control.isFixed)
        add(name, control.name, exactText(control.fixed));
    if (group.frozen)
      add(name, "frozen", "1");
    if (group.skipped > 0)
      add(name, "skipped", std::to_string(group.skipped));
    // The product of unchanged values is computed again.
    if (group.nadamProduct &&
        *group.nadamProduct != nadamProduct(group.group->beta1(),
                                            group.group->momentum_decay(), doneIn(group)))
      add(name, "nadam_product", exactText(*group.nadamProduct));
  }
  return lines;
}

void Session::clearChanges() {
  controls.clipMax.isFixed = false;
  for (GroupControls &group : controls.groups) {
    group.hasFixedRate = group.frozen = false;
    group.skipped = 0;
    group.nadamProduct.reset();
    for (HyperControl &control : group.hyper)
      control.isFixed = false;
  }
}

Status Session::applyChange(std::string_view key, const std::string &text) {
  std::string_view rest = key.substr(std::string_view("control/").size());
  size_t slash = rest.rfind('/');
  std::string_view group =
      slash == std::string_view::npos ? std::string_view() : rest.substr(0, slash);
  std::string_view name = slash == std::string_view::npos ? rest : rest.substr(slash + 1);
  std::optional<double> value = exactNumber(text);
  if (!value)
    return Status::damaged("'" + std::string(key) + "' is '" + text +
                           "', expected a number");
  if (name == "frozen")
    return setFrozen(group, *value != 0);
  if (name != "skipped" && name != "nadam_product")
    return setHyper(group, name, *value);
  GroupControls *found = findGroup(group);
  if (!found)
    return unknownGroup(group);
  if (name == "nadam_product") {
    if (!found->nadamG || !(*value >= 0 && *value <= 1))
      return Status::damaged("'" + std::string(key) + "' is '" + text +
                             "', expected a number from 0 to 1 of a group of nadam");
    found->nadamProduct = *value;
    return Status::success();
  }
  if (!(*value >= 0 && *value <= 0x1p53))
    return Status::damaged("'" + std::string(key) + "' is '" + text +
                           "', expected a count of updates");
  found->skipped = static_cast<int64_t>(*value);
  return Status::success();
}

} // namespace sluice
