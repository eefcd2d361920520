// Makes planned modules one plan. They come from the same model and spec, so their state
// differs only in constants (position tables, masks), and most of their kernels are the
// same.

#include "codegen/StateFile.h"
#include "codegen/Variants.h"
#include "ir/graph/Graph.h"
#include "ir/plan/Plan.h"
#include "passes/lowering/ProgramBuilder.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace sluice {
namespace {

constexpr int64_t lineBytes = 64;

std::string typeText(Type type) {
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return text;
}

/// Renames symbols of one kind and their users; names may change places.
class Renaming {
public:
  void add(Operation *symbol, StringRef name) {
    auto old = symbol->getAttrOfType<StringAttr>(SymbolTable::getSymbolAttrName());
    if (old.getValue() == name)
      return;
    renamed[old.getValue()] = name.str();
    symbols.push_back({symbol, name.str()});
  }
  template <typename User> void run(ModuleOp module, StringRef attribute) {
    if (symbols.empty())
      return;
    Builder builder(module.getContext());
    for (auto &[symbol, name] : symbols)
      symbol->setAttr(SymbolTable::getSymbolAttrName(), builder.getStringAttr(name));
    module.walk([&](User user) {
      auto symbol = user->template getAttrOfType<FlatSymbolRefAttr>(attribute);
      auto found = renamed.find(symbol.getValue());
      if (found != renamed.end())
        user->setAttr(attribute,
                      FlatSymbolRefAttr::get(module.getContext(), found->second));
    });
  }

private:
  llvm::StringMap<std::string> renamed;
  std::vector<std::pair<Operation *, std::string>> symbols;
};

/// One state of all modules.
class StateMerge {
public:
  Status add(const PlannedVariant &variant) {
    Renaming renaming;
    llvm::StringSet<> own;
    std::vector<plan::StateOp> twice;
    size_t shared = 0; // tensors that are no constants, so far
    for (auto state : ModuleOp(variant.module).getOps<plan::StateOp>()) {
      if (state.getRole() == "constant") {
        std::string name = constantName(state);
        renaming.add(state, name);
        if (!own.insert(name).second)
          twice.push_back(state);
        continue;
      }
      if (isFirst) {
        common.push_back(state);
        if (!state.isOnHost())
          end = std::max<int64_t>(end, state.getOffset() + state.getSize());
      } else if (Status same = compare(shared, state, variant); !same.ok()) {
        return same;
      }
      ++shared;
    }
    if (shared != common.size())
      return Status::refused("state '" + common[shared].getSymName().str() +
                             "' is not there with the shapes '" + variant.bucketName +
                             "'");
    renaming.run<plan::StateBufferOp>(variant.module, "symbol");
    for (plan::StateOp state : twice)
      state.erase();
    isFirst = false;
    return Status::success();
  }

  /// Constants lie behind the state that all modules have; those of the first module
  /// where they were.
  void place(ArrayRef<PlannedVariant> variants) {
    llvm::StringMap<int64_t> offsets;
    for (const PlannedVariant &variant : variants)
      for (auto state : ModuleOp(variant.module).getOps<plan::StateOp>()) {
        if (state.getRole() != "constant")
          continue;
        bool isOfFirst = &variant == variants.begin();
        auto [entry, isNew] = offsets.try_emplace(
            state.getSymName(),
            isOfFirst ? int64_t(state.getOffset()) : llvm::alignTo(end, lineBytes));
        state.setOffset(entry->second);
        if (isNew)
          end = std::max<int64_t>(end, entry->second + int64_t(state.getSize()));
      }
  }

private:
  Status compare(size_t index, plan::StateOp state, const PlannedVariant &variant) {
    if (index < common.size() && common[index].getSymName() == state.getSymName() &&
        common[index].isOnHost() != state.isOnHost())
      return Status::refused("state '" + state.getSymName().str() +
                             "' would lie in the host's memory in some variants only: "
                             "'memory.offload' of state with several variants is not "
                             "yet supported; leave it out");
    bool isThere = index < common.size() &&
                   common[index].getSymName() == state.getSymName() &&
                   common[index].getOffset() == state.getOffset();
    bool isSameType = isThere && common[index].getType() == state.getType();
    if (isSameType && !haveSameInitialValue(common[index], state))
      return Status::refused("the initial value of '" + state.getSymName().str() +
                             "' depends on the shapes: it differs with '" +
                             variant.bucketName + "'");
    if (isSameType)
      return Status::success();
    return Status::refused("state '" + state.getSymName().str() + "' is " +
                           typeText(state.getType()) + " with the shapes '" +
                           variant.bucketName + "', expected " +
                           (isThere ? typeText(common[index].getType())
                                    : std::string("the state of the first shapes")));
  }

  /// Equal constants have the same name.
  std::string constantName(plan::StateOp state) {
    std::string key = typeText(state.getType());
    llvm::raw_string_ostream(key) << ':' << initialBytes(state);
    auto [entry, isNew] = constants.try_emplace(key);
    if (isNew)
      entry->second = "const/" + std::to_string(constants.size() - 1);
    return entry->second;
  }

  bool isFirst = true;
  std::vector<plan::StateOp> common; // of the first module
  llvm::StringMap<std::string> constants;
  int64_t end = 0;
};

/// One list of kernels of all modules.
class KernelMerge {
public:
  void add(ModuleOp module) {
    Renaming renaming;
    for (auto kernel : module.getOps<plan::KernelOp>()) {
      if (!kernel.isGenerated())
        continue;
      auto region = cast<graph::RegionOp>(kernel.getBody().front().front());
      auto [entry, isNew] = names.try_emplace(kernelText(region));
      if (isNew)
        entry->second = "kernel_" + std::to_string(names.size() - 1);
      renaming.add(kernel, entry->second);
    }
    renaming.run<plan::StageOp>(module, "kernel");
  }

private:
  llvm::StringMap<std::string> names;
};

template <typename Line, typename Lines>
std::vector<Line> joined(ArrayRef<PlannedVariant> variants, Lines linesOf,
                         Line (*mark)(const Line &, const std::string &)) {
  std::vector<Line> result;
  for (const PlannedVariant &variant : variants)
    for (const Line &line : linesOf(variant)) {
      bool isInAll = llvm::all_of(variants, [&](const PlannedVariant &other) {
        return llvm::is_contained(linesOf(other), line);
      });
      if (!isInAll)
        result.push_back(mark(line, variant.name()));
      else if (&variant == variants.begin())
        result.push_back(line);
    }
  return result;
}

std::string markNote(const std::string &line, const std::string &name) {
  auto [topic, text] = StringRef(line).split(": ");
  return (topic + ": [" + name + "] " + text).str();
}

using Decision = std::pair<std::string, std::string>;
Decision markDecision(const Decision &decision, const std::string &name) {
  return {decision.first, "[" + name + "] " + decision.second};
}

} // namespace

std::string PlannedVariant::name() const {
  std::string text = bucketName;
  if (memoryFraction != 1) {
    char fraction[32];
    std::snprintf(fraction, sizeof fraction, "@%g", memoryFraction);
    text += fraction;
  }
  return text.empty() ? "plan" : text;
}

Status checkSameState(ArrayRef<CompileBucket> buckets) {
  llvm::StringMap<graph::ParameterOp> first;
  auto refuse = [&](graph::ParameterOp parameter, const CompileBucket &bucket,
                    const std::string &what) {
    return Status::refused("parameter '" +
                           parameter.getSymName().split('/').second.str() +
                           "' depends on the shapes: " + what + " with '" + bucket.name +
                           "'; all elements of 'shapes' train the same parameters");
  };
  for (const CompileBucket &bucket : buckets) {
    bool isFirst = &bucket == buckets.begin();
    llvm::StringSet<> seen;
    for (auto parameter : ModuleOp(bucket.module).getOps<graph::ParameterOp>()) {
      seen.insert(parameter.getSymName());
      auto [entry, isNew] = first.try_emplace(parameter.getSymName(), parameter);
      if (isNew && !isFirst)
        return refuse(parameter, bucket, "it is there only");
      if (entry->second.getType() != parameter.getType())
        return refuse(parameter, bucket,
                      "it is " + typeText(entry->second.getType()) + " with '" +
                          buckets.front().name + "' and " +
                          typeText(parameter.getType()));
    }
    for (auto &entry : first)
      if (!seen.contains(entry.first()))
        return refuse(entry.second, bucket, "it is not there");
  }
  return Status::success();
}

Status mergeVariants(MutableArrayRef<PlannedVariant> variants) {
  if (variants.size() == 1)
    return Status::success();
  StateMerge states;
  KernelMerge kernels;
  for (PlannedVariant &variant : variants) {
    if (Status status = states.add(variant); !status.ok())
      return status;
    kernels.add(variant.module);
  }
  states.place(variants);
  return Status::success();
}

int64_t stateBytesOf(ArrayRef<PlannedVariant> variants) {
  int64_t end = 0;
  for (const PlannedVariant &variant : variants)
    for (auto state : ModuleOp(variant.module).getOps<plan::StateOp>())
      if (!state.isOnHost())
        end = std::max<int64_t>(
            end, llvm::alignTo(state.getOffset() + state.getSize(), lineBytes));
  return end;
}

std::vector<std::string> joinedNotes(ArrayRef<PlannedVariant> variants) {
  auto notes = [](const PlannedVariant &variant) -> const std::vector<std::string> & {
    return variant.report.notes;
  };
  return joined<std::string>(variants, notes, markNote);
}

std::vector<Decision> joinedDecisions(ArrayRef<PlannedVariant> variants) {
  auto decisions = [](const PlannedVariant &variant) -> const std::vector<Decision> & {
    return variant.report.decisions;
  };
  return joined<Decision>(variants, decisions, markDecision);
}

} // namespace sluice
