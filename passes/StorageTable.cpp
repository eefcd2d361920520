#include "passes/StorageTable.h"

#include "passes/AssignedFormats.h"
#include "passes/NamePatterns.h"

#include "llvm/Support/GlobPattern.h"

#include <algorithm>

using namespace mlir;

namespace sluice {
namespace {

bool isSeparator(char c) { return c == '.' || c == '/'; }

SmallVector<StringRef> elementsOf(StringRef name) {
  SmallVector<StringRef> elements;
  while (!name.empty()) {
    StringRef element = name.take_until(isSeparator);
    elements.push_back(element);
    name = name.drop_front(std::min(name.size(), element.size() + 1));
  }
  return elements;
}

bool matches(const StorageRule &rule, StringRef name) {
  if (!rule.part.empty())
    return llvm::is_contained(elementsOf(name), rule.part);
  auto glob = llvm::GlobPattern::create(rule.match);
  if (glob)
    return glob->match(name);
  llvm::consumeError(glob.takeError());
  return rule.match == name;
}

/// What of a name says which block it belongs to: up to its first number, or all but the
/// last element.
StringRef blockOf(StringRef name) {
  size_t end = 0;
  for (StringRef element : elementsOf(name)) {
    end += element.size();
    unsigned number = 0;
    if (!element.getAsInteger(10, number))
      return name.take_front(end);
    ++end;
  }
  size_t last = name.find_last_of("./");
  return last == StringRef::npos ? name : name.take_front(last);
}

/// Parameters in the order in which the first entry uses them: shallow first.
std::vector<graph::ParameterOp> byDepth(ModuleOp module, const StateSymbols &state) {
  std::vector<graph::ParameterOp> parameters;
  for (graph::ParameterOp parameter : state.parameters())
    if (parameter.getTensorType().getElementType().isF32())
      parameters.push_back(parameter);
  llvm::StringMap<size_t> place;
  auto entries = module.getOps<func::FuncOp>();
  if (!entries.empty())
    for (auto [i, op] : llvm::enumerate((*entries.begin()).getBody().front()))
      for (Value operand : op.getOperands())
        if (auto read = operand.getDefiningOp<graph::ReadOp>())
          place.try_emplace(read.getSymbol(), i);
  auto placeOf = [&](graph::ParameterOp parameter) {
    auto found = place.find(parameter.getSymName());
    return found == place.end() ? ~size_t{0} : found->second;
  };
  llvm::sort(parameters, [&](graph::ParameterOp a, graph::ParameterOp b) {
    return std::pair(placeOf(a), a.getSymName()) < std::pair(placeOf(b), b.getSymName());
  });
  return parameters;
}

std::string textOf(const StorageRule &rule) {
  return rule.part.empty() ? "the rule '" + rule.match + "'"
                           : "the rule for part '" + rule.part + "'";
}

class Resolver {
public:
  Resolver(ModuleOp module, const TrainingSpec &spec)
      : module(module), spec(spec), parameters(byDepth(module, StateSymbols(module))) {}

  FailureOr<llvm::StringMap<StorageChoice>> run() {
    for (graph::ParameterOp parameter : parameters) {
      auto assigned = parameter->getAttrOfType<StringAttr>(assignedFormatAttr);
      if (auto format = assigned ? storedFormat(assigned.str()) : std::nullopt)
        set(parameter, *format, false, "'precision.policy'");
    }
    for (const StorageRule &rule : spec.precision.rules)
      if (failed(apply(rule)))
        return failure();
    return std::move(choices);
  }

private:
  LogicalResult apply(const StorageRule &rule) {
    std::vector<graph::ParameterOp> matched;
    for (graph::ParameterOp parameter : parameters)
      if (matches(rule, modelName(parameter.getSymName())))
        matched.push_back(parameter);
    // Under mixed precision a rule that keeps may name nodes (AssignPrecision checks).
    bool mayBeNode = (rule.isKept && spec.precision.isNarrow()) || !rule.saved.empty();
    if (matched.empty() && !mayBeNode)
      return matchesNothing(rule);
    if (!rule.moments.empty())
      for (graph::ParameterOp parameter : matched)
        choices[parameter.getSymName()].moments = rule.moments;
    if (rule.isKept)
      for (graph::ParameterOp parameter : matched)
        set(parameter, StoredFormat::fp32, false, textOf(rule) + " keeps it");
    if (rule.storage.empty())
      return success();
    std::vector<StringRef> blocks; // shallow first
    for (graph::ParameterOp parameter : matched)
      if (StringRef block = blockOf(modelName(parameter.getSymName()));
          !llvm::is_contained(blocks, block))
        blocks.push_back(block);
    for (graph::ParameterOp parameter : matched) {
      StringRef block = blockOf(modelName(parameter.getSymName()));
      size_t place = llvm::find(blocks, block) - blocks.begin();
      size_t part = place * rule.storage.size() / blocks.size();
      std::string why = textOf(rule);
      if (rule.storage.size() > 1)
        why += ", block " + std::to_string(place + 1) + " of " +
               std::to_string(blocks.size());
      set(parameter, *storedFormat(rule.storage[part]), rule.master == "fp32", why);
      StorageChoice &choice = choices[parameter.getSymName()];
      choice.isDelayed = rule.isDelayed && (choice.format == StoredFormat::e4m3 ||
                                            choice.format == StoredFormat::e5m2);
    }
    return success();
  }

  void set(graph::ParameterOp parameter, StoredFormat format, bool keepsMaster,
           std::string why) {
    StorageChoice &choice = choices[parameter.getSymName()];
    ArrayRef<int64_t> shape = parameter.getTensorType().getShape();
    choice.format = format;
    choice.keepsMaster = keepsMaster && parameter.getTrainable();
    choice.isDelayed = false;
    choice.why = std::move(why);
    if (isWhole(format, {shape.data(), shape.size()}))
      return;
    choice.why += " asks for " + std::string(traitsOf(format).name) + ", but its " +
                  std::to_string(parameter.getTensorType().getNumElements()) +
                  " elements do not divide into whole blocks";
    choice.format = StoredFormat::fp32;
    choice.keepsMaster = false;
  }

  LogicalResult matchesNothing(const StorageRule &rule) {
    std::vector<std::string> names;
    for (graph::ParameterOp parameter : parameters)
      names.push_back(modelName(parameter.getSymName()).str());
    if (!rule.part.empty())
      return module.emitError()
             << "'precision.rules': no parameter has '" << rule.part
             << "' as an element of its name" << nearestNames(rule.part, names);
    return module.emitError() << "'precision.rules': '" << rule.match
                              << "' matches no parameter of the model"
                              << nearestNames(rule.match, names);
  }

  ModuleOp module;
  const TrainingSpec &spec;
  std::vector<graph::ParameterOp> parameters;
  llvm::StringMap<StorageChoice> choices;
};

} // namespace

FailureOr<llvm::StringMap<StorageChoice>> resolveStorage(ModuleOp module,
                                                         const TrainingSpec &spec) {
  return Resolver(module, spec).run();
}

} // namespace sluice
