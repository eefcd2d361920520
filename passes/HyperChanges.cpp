#include "passes/HyperChanges.h"

#include "ir/TrainingSpec.h"
#include "passes/StateSymbols.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace sluice {
namespace {

class ChangeNotes {
public:
  ChangeNotes(ModuleOp module, const TrainingSpec &spec)
      : module(module), spec(spec), builder(module.getContext()) {}

  LogicalResult run() {
    groups = llvm::to_vector(
        module->getAttrOfType<ArrayAttr>("graph.groups").getAsRange<DictionaryAttr>());
    changesOf.resize(groups.size());
    for (const ChangeSpec &change : spec.changes)
      for (const auto &[name, value] : change.values)
        if (failed(note(change, name, value)))
          return failure();
    for (auto [group, changes] : llvm::zip(groups, changesOf)) {
      NamedAttrList attributes(group);
      attributes.set("changes", builder.getArrayAttr(changes));
      group = attributes.getDictionary(module.getContext());
    }
    module->setAttr("graph.groups",
                    builder.getArrayAttr(llvm::to_vector_of<Attribute>(groups)));
    module->setAttr("graph.changes", builder.getArrayAttr(outside));
    return success();
  }

private:
  LogicalResult note(const ChangeSpec &change, const std::string &name, double value) {
    Attribute entry = builder.getDictionaryAttr({
        builder.getNamedAttr("at", builder.getI64IntegerAttr(change.at)),
        builder.getNamedAttr("name", builder.getStringAttr(name)),
        builder.getNamedAttr("value", builder.getF64FloatAttr(value)),
    });
    bool isNoted = false, isGroup = false;
    std::string list;
    if (name == "clip_max") {
      if ((isNoted = hasControl(name)))
        outside.push_back(entry);
      isGroup = true;
    }
    for (auto [i, group] : llvm::enumerate(groups)) {
      std::string groupName = group.getAs<StringAttr>("name").str();
      list += (list.empty() ? "'" : ", '") + groupName + "'";
      // A group that is updated in parts (UpdateModes.h) is meant by its name as well.
      auto whole = group.getAs<StringAttr>("part_of");
      bool isMeant = change.group.empty() || change.group == groupName ||
                     (whole && whole.getValue() == change.group);
      if (name == "clip_max" || !isMeant)
        continue;
      isGroup = true;
      if (!canChange(group, name))
        continue;
      changesOf[i].push_back(entry);
      isNoted = true;
    }
    if (!isGroup)
      return refuse() << "'changes' names the group '" << change.group
                      << "', expected one of " << list;
    if (!isNoted)
      return refuse() << "'changes' has '" << name << "' at update " << change.at
                      << ", which "
                      << (name == "clip_max"     ? std::string("needs 'clip'")
                          : change.group.empty() ? std::string("no group has")
                                                 : "group '" + change.group + "' has not")
                      << "; what is 0 from the start may not be part of the plan";
    say(change, name, value);
    return success();
  }

  bool hasControl(const std::string &name) {
    return module.lookupSymbol("control/" + name) != nullptr;
  }
  bool canChange(DictionaryAttr group, const std::string &name) {
    std::string prefix = group.getAs<StringAttr>("name").str() + "/";
    if (name == "frozen")
      return hasControl(prefix + "active");
    if (name == "momentum_decay") // computed from, and nowhere stored
      return hasControl(prefix + "nadam_g");
    return hasControl(prefix + name);
  }

  InFlightDiagnostic refuse() { return emitError(UnknownLoc::get(module.getContext())); }

  void say(const ChangeSpec &change, const std::string &name, double value) {
    std::string text;
    llvm::raw_string_ostream line(text);
    line << "changes: " << name << " is " << llvm::format("%g", value) << " from update "
         << change.at << " on";
    if (!change.group.empty())
      line << " in '" << change.group << "'";
    report(module, text);
  }

  ModuleOp module;
  const TrainingSpec &spec;
  Builder builder;
  SmallVector<DictionaryAttr> groups;
  std::vector<SmallVector<Attribute>> changesOf; // by group
  SmallVector<Attribute> outside;
};

} // namespace

LogicalResult noteHyperChanges(ModuleOp module, const TrainingSpec &spec) {
  return spec.changes.empty() ? success() : ChangeNotes(module, spec).run();
}

} // namespace sluice
