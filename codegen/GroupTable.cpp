#include "codegen/GroupTable.h"

#include "passes/SpikeRule.h"

#include "llvm/ADT/StringSwitch.h"

using namespace mlir;

namespace sluice {

/// What only some kinds of schedules have.
static void addSchedule(DictionaryAttr group, fbs::ParamGroupT &entry) {
  auto options = group.getAs<DictionaryAttr>("schedule_options");
  if (!options)
    return;
  auto real = [&](StringRef key) {
    return options.getAs<FloatAttr>(key).getValueAsDouble();
  };
  auto integer = [&](StringRef key) { return options.getAs<IntegerAttr>(key).getInt(); };
  entry.min_ratio = real("min_ratio");
  entry.decay_steps = integer("decay_steps");
  entry.decay =
      llvm::StringSwitch<fbs::DecayKind>(options.getAs<StringAttr>("decay").getValue())
          .Case("cosine", fbs::DecayKind::cosine)
          .Case("1-sqrt", fbs::DecayKind::one_minus_sqrt)
          .Default(fbs::DecayKind::linear);
  entry.step_size = integer("step_size");
  entry.gamma = real("gamma");
  entry.pct_start = real("pct_start");
  entry.div_factor = real("div_factor");
  entry.final_div_factor = real("final_div_factor");
  ArrayRef<int64_t> points = options.getAs<DenseI64ArrayAttr>("points").asArrayRef();
  entry.points.assign(points.begin(), points.end());
  ArrayRef<double> factors = options.getAs<DenseF64ArrayAttr>("factors").asArrayRef();
  entry.factors.assign(factors.begin(), factors.end());
}

std::vector<std::unique_ptr<fbs::HyperChangeT>> changesOf(ArrayAttr changes) {
  std::vector<std::unique_ptr<fbs::HyperChangeT>> list;
  if (!changes)
    return list;
  for (auto change : changes.getAsRange<DictionaryAttr>()) {
    auto entry = std::make_unique<fbs::HyperChangeT>();
    entry->update = change.getAs<IntegerAttr>("at").getInt();
    entry->name = change.getAs<StringAttr>("name").str();
    entry->value = change.getAs<FloatAttr>("value").getValueAsDouble();
    list.push_back(std::move(entry));
  }
  return list;
}

std::unique_ptr<fbs::SpikeRuleT> spikesOf(ModuleOp module) {
  auto rule = module->getAttrOfType<DictionaryAttr>(spikesAttr);
  if (!rule)
    return nullptr;
  auto entry = std::make_unique<fbs::SpikeRuleT>();
  auto real = [&](StringRef key) {
    return rule.getAs<FloatAttr>(key).getValueAsDouble();
  };
  auto integer = [&](StringRef key) { return rule.getAs<IntegerAttr>(key).getInt(); };
  entry->fluctuation = real("fluctuation"), entry->scale = real("scale");
  entry->window = integer("window"), entry->max_times = integer("max_times");
  entry->cooldown = integer("cooldown");
  return entry;
}

std::vector<std::unique_ptr<fbs::ParamGroupT>> groupsOf(ModuleOp module) {
  std::vector<std::unique_ptr<fbs::ParamGroupT>> list;
  auto groups = module->getAttrOfType<ArrayAttr>("graph.groups");
  if (!groups)
    return list;
  for (auto group : groups.getAsRange<DictionaryAttr>()) {
    auto entry = std::make_unique<fbs::ParamGroupT>();
    auto real = [&](StringRef key, double otherwise) {
      auto attr = group.getAs<FloatAttr>(key);
      return attr ? attr.getValueAsDouble() : otherwise;
    };
    auto integer = [&](StringRef key) {
      auto attr = group.getAs<IntegerAttr>(key);
      return attr ? attr.getInt() : 0;
    };
    entry->name = group.getAs<StringAttr>("name").str();
    entry->lr = real("lr", 0), entry->beta1 = real("beta1", 0);
    entry->beta2 = real("beta2", 0);
    auto schedule = group.getAs<StringAttr>("schedule");
    entry->schedule =
        llvm::StringSwitch<fbs::ScheduleKind>(schedule ? schedule.getValue() : "constant")
            .Case("linear", fbs::ScheduleKind::linear)
            .Case("cosine", fbs::ScheduleKind::cosine)
            .Case("wsd", fbs::ScheduleKind::wsd)
            .Case("one_cycle", fbs::ScheduleKind::one_cycle)
            .Case("step", fbs::ScheduleKind::step)
            .Case("table", fbs::ScheduleKind::table)
            .Default(fbs::ScheduleKind::constant);
    entry->warmup_steps = integer("warmup_steps");
    entry->total_steps = integer("total_steps");
    entry->lr_scale = real("lr_scale", 1), entry->warmup_scale = real("warmup_scale", 1);
    entry->momentum_decay = real("momentum_decay", 0);
    addSchedule(group, *entry);
    if (auto every = group.getAs<IntegerAttr>("every")) {
      entry->every = every.getInt(), entry->phase = integer("phase");
      entry->delay = integer("delay");
    }
    entry->changes = changesOf(group.getAs<ArrayAttr>("changes"));
    for (auto member : group.getAs<ArrayAttr>("members").getAsRange<StringAttr>())
      entry->members.push_back(member.str());
    list.push_back(std::move(entry));
  }
  return list;
}

} // namespace sluice
