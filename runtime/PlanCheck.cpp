#include "runtime/PlanCheck.h"

#include "runtime/Adapters.h"
#include "runtime/PlanFile.h"
#include "runtime/SpikeWatch.h"
#include "runtime/StateShard.h"
#include "runtime/StateTransfer.h"
#include "runtime/StoredCodes.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

namespace sluice {

namespace {

constexpr uint64_t maxReservation = uint64_t(1) << 46; // 64 TiB
constexpr int maxThreads = 1024;
constexpr int64_t maxCount = int64_t(1) << 40;
constexpr size_t maxNameBytes = 4096;

Status broken(std::string text) {
  return Status::damaged("plan refused: " + std::move(text));
}

std::string quoted(std::string_view name) { return "'" + std::string(name) + "'"; }

bool isUsableName(std::string_view name) {
  return !name.empty() && name.size() <= maxNameBytes &&
         std::none_of(name.begin(), name.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20; });
}

Status checkHeaderFields(const fbs::Plan &plan) {
  if (plan.threads() < 1 || plan.threads() > maxThreads)
    return broken("threads is " + std::to_string(plan.threads()) + ", expected 1 to " +
                  std::to_string(maxThreads));
  if (plan.accumulate() < 1 || plan.accumulate() > maxCount)
    return broken("accumulate is " + std::to_string(plan.accumulate()) +
                  ", expected at least 1");
  if (plan.as_ranks() < 1 || plan.accumulate() % plan.as_ranks() != 0)
    return broken("as_ranks is " + std::to_string(plan.as_ranks()) +
                  ", expected a divisor of accumulate, " +
                  std::to_string(plan.accumulate()));
  if (plan.batch() < 1 || plan.batch() > maxCount)
    return broken("batch is " + std::to_string(plan.batch()) + ", expected at least 1");
  if (plan.state_bytes() > maxReservation || plan.step_bytes() > maxReservation ||
      plan.host_state_bytes() > maxReservation || plan.host_step_bytes() > maxReservation)
    return broken("a reservation is larger than 64 TiB");
  return Status::success();
}

bool isGroupControl(std::string_view what) {
  for (std::string_view known :
       {"lr", "bc1", "bc2", "nadam_g", "nadam_m", "radam_r", "active", "update"})
    if (what == known)
      return true;
  if (what.ends_with("_rest"))
    what.remove_suffix(5);
  for (std::string_view hyper :
       {"beta1", "beta2", "eps", "weight_decay", "momentum", "dampening", "lr_decay",
        "alpha", "beta2_decay", "eps2", "d", "ewc_lambda", "si_lambda"})
    if (what == hyper)
      return true;
  return false;
}

/// Scalars the runtime writes before a program; one it does not know would stay zero in
/// silence.
Status checkControl(const fbs::Plan &plan, const fbs::StateTensor &tensor) {
  std::string_view name = viewOf(tensor.name());
  fbs::DType expected = fbs::DType::i64;
  if (name.starts_with("control/")) {
    std::string_view rest = name.substr(8);
    size_t slash = rest.rfind('/');
    if (slash != std::string_view::npos) {
      std::string_view group = rest.substr(0, slash), what = rest.substr(slash + 1);
      bool groupKnown = false;
      for (uint32_t i = 0; i < sizeOf(plan.groups()); ++i)
        groupKnown |= viewOf(plan.groups()->Get(i)->name()) == group;
      if (!groupKnown || !isGroupControl(what))
        return broken("control " + quoted(name) + " is not one this runtime writes");
      expected = what == "update" ? fbs::DType::i64 : fbs::DType::f32;
    } else if (rest == "clip_max") {
      expected = fbs::DType::f32;
    } else if (rest != "seed" && rest != "update" && rest != "sample" &&
               rest != "valid" && rest != "rank" && rest != "pending" &&
               rest != "class") {
      return broken("control " + quoted(name) + " is not one this runtime writes");
    }
  } else if (name == "scale/value") {
    expected = fbs::DType::f32;
  } else if (name != "step" && name != "scale/good_steps" && name != "scale/skipped" &&
             name != "scale/norm/outliers" && name != "window/waiting") {
    return Status::success();
  }
  if (tensor.dtype() != expected ||
      tensor.size() != dtypeSize(static_cast<DType>(expected)))
    return broken("state " + quoted(name) + " has to be one " +
                  std::string(dtypeName(static_cast<DType>(expected))));
  return Status::success();
}

Status checkStateTensor(const fbs::Plan &plan, const fbs::StateTensor &tensor) {
  std::string name = quoted(viewOf(tensor.name()));
  if (!isUsableName(viewOf(tensor.name())))
    return broken("a state tensor has no usable name");
  if (tensor.dtype() < fbs::DType::MIN || tensor.dtype() > fbs::DType::MAX)
    return broken("state " + name + " has an unknown element type");
  if (tensor.role() < fbs::Role::MIN || tensor.role() > fbs::Role::MAX ||
      tensor.init() < fbs::InitKind::MIN || tensor.init() > fbs::InitKind::MAX)
    return broken("state " + name + " has an unknown role or initial value");
  DType type = static_cast<DType>(tensor.dtype());
  if (tensor.init() == fbs::InitKind::fill && !isFloat(type) &&
      !(std::abs(tensor.fill()) <= 0x1p53))
    return broken("state " + name + " is filled with no integer");
  std::optional<uint64_t> bytes = tensorBytes(type, tensor.shape());
  if (!bytes || *bytes != tensor.size())
    return broken("state " + name + " has " + std::to_string(tensor.size()) +
                  " bytes, which is not its shape " +
                  (bytes ? shapeText(tensor.shape()) : std::string("(malformed)")));
  bool onHost = tensor.space() == fbs::Space::host_state;
  if (tensor.space() != fbs::Space::state && !onHost)
    return broken("state " + name + " lies in a space it may not be in");
  if (onHost && (tensor.role() == fbs::Role::control || viewOf(tensor.name()) == "step" ||
                 viewOf(tensor.name()).starts_with("scale/") ||
                 viewOf(tensor.name()).starts_with("control/")))
    return broken("state " + name + " is a control in the host's memory");
  uint64_t reservation = onHost ? plan.host_state_bytes() : plan.state_bytes();
  if (tensor.offset() % dtypeSize(type) != 0 ||
      !liesInside(tensor.offset(), tensor.size(), reservation))
    return broken("state " + name + " lies at byte " + std::to_string(tensor.offset()) +
                  ", outside the " + (onHost ? "host " : "") + "state reservation of " +
                  std::to_string(reservation) + " bytes or unaligned");
  if (Status status = checkShard(plan, tensor); !status.ok())
    return status;
  return checkControl(plan, tensor);
}

Status checkState(const fbs::Plan &plan, VisitBudget &budget) {
  uint32_t count = sizeOf(plan.state());
  std::unordered_set<std::string_view> names;
  std::vector<const fbs::StateTensor *> byOffset;
  if (!budget.take(count))
    return broken("its parts are shared");
  for (uint32_t i = 0; i < count; ++i) {
    const fbs::StateTensor *tensor = plan.state()->Get(i);
    if (!budget.take(sizeOf(tensor->shape())) || !isAligned(tensor->shape()) ||
        !budget.take(sizeOf(tensor->whole())) || !isAligned(tensor->whole()))
      return broken("its parts are shared or unaligned");
    if (Status status = checkStateTensor(plan, *tensor); !status.ok())
      return status;
    if (!names.insert(viewOf(tensor->name())).second)
      return broken("two state tensors are named " + quoted(viewOf(tensor->name())));
    if (tensor->size() > 0)
      byOffset.push_back(tensor);
  }
  std::sort(byOffset.begin(), byOffset.end(), [](auto *a, auto *b) {
    return std::pair(a->space(), a->offset()) < std::pair(b->space(), b->offset());
  });
  for (size_t i = 1; i < byOffset.size(); ++i)
    if (byOffset[i - 1]->space() == byOffset[i]->space() &&
        byOffset[i - 1]->offset() + byOffset[i - 1]->size() > byOffset[i]->offset())
      return broken("the state tensors " + quoted(viewOf(byOffset[i - 1]->name())) +
                    " and " + quoted(viewOf(byOffset[i]->name())) + " overlap");
  return Status::success();
}

/// The points of a schedule rise, and its factors are finite.
Status checkSchedule(const fbs::ParamGroup &group, const std::string &name) {
  using K = fbs::ScheduleKind;
  bool isOpenEnded = group.schedule() == K::constant || group.schedule() == K::step ||
                     group.schedule() == K::table;
  auto isFactor = [](double x) { return x >= 0.0 && x <= 1e6; };
  auto isCount = [](int64_t x) { return x >= 0 && x <= maxCount; };
  if (!isCount(group.warmup_steps()) || !isCount(group.total_steps()) ||
      !isCount(group.decay_steps()) || !isCount(group.step_size()) ||
      (!isOpenEnded && group.total_steps() == 0))
    return broken("group " + name + " has a schedule of impossible length");
  if (!isFactor(group.min_ratio()) || !isFactor(group.gamma()) ||
      !(group.pct_start() >= 0.0 && group.pct_start() <= 1.0) ||
      !(group.div_factor() > 0.0 && std::isfinite(group.div_factor())) ||
      !(group.final_div_factor() > 0.0 && std::isfinite(group.final_div_factor())) ||
      !(group.momentum_decay() >= 0.0 && group.momentum_decay() <= 1e6))
    return broken("group " + name + " has a factor out of range");
  uint32_t points = sizeOf(group.points());
  if (group.schedule() == K::table && (points == 0 || points != sizeOf(group.factors())))
    return broken("group " + name + " has a table without a factor for each point");
  for (uint32_t i = 0; i < points; ++i)
    if (!isCount(group.points()->Get(i)) ||
        (i > 0 && group.points()->Get(i) <= group.points()->Get(i - 1)))
      return broken("group " + name + " has points that do not rise");
  for (uint32_t i = 0; i < sizeOf(group.factors()); ++i)
    if (!isFactor(group.factors()->Get(i)))
      return broken("group " + name + " has a factor out of range");
  if (group.decay() < fbs::DecayKind::MIN || group.decay() > fbs::DecayKind::MAX)
    return broken("group " + name + " has an unknown decay");
  return Status::success();
}

/// Values that optimizers are defined for, in the order of the updates they hold from.
Status
checkChanges(const flatbuffers::Vector<flatbuffers::Offset<fbs::HyperChange>> *changes,
             const std::string &where, VisitBudget &budget) {
  int64_t last = 0;
  for (uint32_t i = 0; i < sizeOf(changes); ++i) {
    const fbs::HyperChange &change = *changes->Get(i);
    std::string_view name = viewOf(change.name());
    if (!budget.take(1) || !isUsableName(name))
      return broken(where + " has a change of no usable name");
    bool isBeta = name == "beta1" || name == "beta2" || name == "alpha";
    if (change.update() < last || change.update() > maxCount ||
        !std::isfinite(change.value()) || (name != "beta2_decay" && change.value() < 0) ||
        (isBeta && change.value() >= 1))
      return broken(where + " has an impossible change of " + quoted(name));
    last = change.update();
  }
  return Status::success();
}

/// A rule that can be followed, with state of the form that it is kept in.
Status checkSpikes(const fbs::Plan &plan) {
  const fbs::SpikeRule *rule = plan.spikes();
  if (!rule)
    return Status::success();
  if (!(rule->fluctuation() > 0 && std::isfinite(rule->fluctuation())) ||
      !(rule->scale() > 0 && rule->scale() <= 1) || rule->window() < 2 ||
      rule->window() > maxCount || rule->max_times() < 1 ||
      rule->max_times() > maxCount || rule->cooldown() < 0 || rule->cooldown() > maxCount)
    return broken("the rule for losses that fluctuate is out of range");
  for (uint32_t i = 0; i < sizeOf(plan.state()); ++i) {
    const fbs::StateTensor &tensor = *plan.state()->Get(i);
    if (viewOf(tensor.name()) == "scale/spikes" && tensor.dtype() == fbs::DType::f64 &&
        tensor.space() == fbs::Space::state &&
        tensor.size() == SpikeWatch::stateSize * sizeof(double))
      return Status::success();
  }
  return broken("the rule for losses that fluctuate has no state 'scale/spikes' of " +
                std::to_string(SpikeWatch::stateSize) + " f64");
}

Status checkGroup(const fbs::ParamGroup &group, VisitBudget &budget) {
  std::string name = quoted(viewOf(group.name()));
  if (!isUsableName(viewOf(group.name())))
    return broken("a parameter group has no usable name");
  auto isFraction = [](double beta) { return beta >= 0.0 && beta < 1.0; };
  if (!std::isfinite(group.lr()) || !isFraction(group.beta1()) ||
      !isFraction(group.beta2()))
    return broken("group " + name + " has a rate or beta out of range");
  if (!(group.lr_scale() >= 0.0 && std::isfinite(group.lr_scale())) ||
      !(group.warmup_scale() >= 0.0 && group.warmup_scale() <= 1e6))
    return broken("group " + name + " has a scale out of range");
  if (group.schedule() < fbs::ScheduleKind::MIN ||
      group.schedule() > fbs::ScheduleKind::MAX)
    return broken("group " + name + " has an unknown schedule");
  if (Status status = checkChanges(group.changes(), "group " + name, budget);
      !status.ok())
    return status;
  return checkSchedule(group, name);
}

Status checkGroups(const fbs::Plan &plan, VisitBudget &budget) {
  std::unordered_set<std::string_view> names, parameters, members;
  for (uint32_t i = 0; i < sizeOf(plan.state()); ++i)
    parameters.insert(viewOf(plan.state()->Get(i)->name()));
  for (uint32_t i = 0; i < sizeOf(plan.groups()); ++i) {
    const fbs::ParamGroup *group = plan.groups()->Get(i);
    if (!budget.take(1 + sizeOf(group->members())))
      return broken("its parts are shared");
    if (Status status = checkGroup(*group, budget); !status.ok())
      return status;
    if (!names.insert(viewOf(group->name())).second)
      return broken("two groups are named " + quoted(viewOf(group->name())));
    for (uint32_t m = 0; m < sizeOf(group->members()); ++m) {
      std::string_view member = viewOf(group->members()->Get(m));
      if (!isUsableName(member) || (!parameters.contains(member) &&
                                    !parameters.contains("param/" + std::string(member))))
        return broken(
            "group " + quoted(viewOf(group->name())) +
            " has a member the state does not have: " + quoted(member.substr(0, 200)));
      if (!members.insert(member).second)
        return broken(quoted(member) + " is a member of two groups");
    }
  }
  return Status::success();
}

Status checkKernelsAndImages(const fbs::Plan &plan, SegmentRange range,
                             VisitBudget &budget) {
  bool needsCode = false;
  if (!budget.take(sizeOf(plan.kernels())) || !budget.take(sizeOf(plan.images())))
    return broken("its parts are shared");
  for (uint32_t i = 0; i < sizeOf(plan.kernels()); ++i) {
    const fbs::Kernel *kernel = plan.kernels()->Get(i);
    if (!isUsableName(viewOf(kernel->name())))
      return broken("kernel " + std::to_string(i) + " has no usable name");
    needsCode |= kernel->generated();
  }
  if (needsCode && sizeOf(plan.images()) == 0)
    return broken("it has generated kernels, but no code");
  std::unordered_set<std::string_view> levels;
  for (uint32_t i = 0; i < sizeOf(plan.images()); ++i) {
    const fbs::CodeImage *image = plan.images()->Get(i);
    std::string name = "code for " + quoted(viewOf(image->level()).substr(0, 64));
    if (!levels.insert(viewOf(image->level())).second)
      return broken(name + " is there twice");
    if (image->offset() % planPageBytes != 0 || image->offset() < range.begin ||
        !liesInside(image->offset(), image->size(), range.end))
      return broken(name + " lies at byte " + std::to_string(image->offset()) +
                    ", outside the file or across a page");
  }
  return Status::success();
}

} // namespace

std::optional<uint64_t> tensorBytes(DType type,
                                    const flatbuffers::Vector<int64_t> *shape) {
  if (sizeOf(shape) > maxRank)
    return std::nullopt;
  bool empty = false;
  for (uint32_t i = 0; i < sizeOf(shape); ++i) {
    if (shape->Get(i) < 0)
      return std::nullopt;
    empty |= shape->Get(i) == 0;
  }
  if (empty)
    return 0;
  uint64_t bytes = dtypeSize(type);
  for (uint32_t i = 0; i < sizeOf(shape); ++i)
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(shape->Get(i)), &bytes))
      return std::nullopt;
  return bytes <= maxReservation ? std::optional(bytes) : std::nullopt;
}

Status checkPlan(const fbs::Plan &plan, SegmentRange segments) {
  VisitBudget budget(segments.begin);
  Status status = checkHeaderFields(plan);
  if (status.ok())
    status = checkState(plan, budget);
  if (status.ok())
    status = checkCodes(plan, budget);
  if (status.ok())
    status = checkStoredForms(plan, budget);
  if (status.ok())
    status = checkGroups(plan, budget);
  if (status.ok())
    status = checkUpdates(plan, budget);
  if (status.ok())
    status = checkChanges(plan.changes(), "the plan", budget);
  if (status.ok())
    status = checkSpikes(plan);
  if (status.ok())
    status = checkAdapters(plan, budget);
  if (status.ok())
    status = checkKernelsAndImages(plan, segments, budget);
  if (status.ok())
    status = checkPrograms(plan, budget);
  if (status.ok())
    status = checkVariants(plan, budget);
  if (status.ok())
    status = checkRanks(plan);
  return status;
}

} // namespace sluice
