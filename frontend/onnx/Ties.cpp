// What the spec says about weights against the file: tied, taken out of Constant nodes,
// one slice for all copies; and statistics that the file has merged with weights.
#include "frontend/onnx/GraphImporter.h"

#include "llvm/Support/GlobPattern.h"

namespace sluice::frontend {

using namespace mlir;

bool GraphImporter::isPromoted(const std::string &name) {
  for (const std::string &pattern : options.promote) {
    auto glob = llvm::GlobPattern::create(pattern);
    if (!glob) {
      llvm::consumeError(glob.takeError());
      continue;
    }
    if (glob->match(name)) {
      promotions.insert(pattern);
      return true;
    }
  }
  return false;
}
Value GraphImporter::promoted(const Scope &scope, const std::string &name,
                              const onnx::TensorProto &tensor, ElementsAttr init) {
  Value &cached = reads[&tensor]; // a loop's body is emitted once per iteration
  if (cached)
    return cached;
  auto type = cast<RankedTensorType>(init.getType());
  note("promote", "'" + name + "' (" + shapeText(type.getShape()) +
                      "), a Constant node, is a parameter");
  return cached = parameter(scope, name, type, Role::Parameter, init, 0);
}
void GraphImporter::checkPromoted() {
  for (const std::string &pattern : options.promote)
    if (!promotions.contains(pattern))
      report.errors.push_back("`promote` names '" + pattern +
                              "', which is the result of no Constant node of floats "
                              "and no input");
}

bool GraphImporter::copiesOf(const std::string &name) const {
  return llvm::any_of(
      options.tie, [&](const TieSpec &tie) { return tie.copies && tie.first == name; });
}

/// One slice along dimension 0, repeated.
Value GraphImporter::emitCopies(Scope &scope, const std::string &name,
                                onnx::TensorProto &tensor, const std::string &as) {
  std::string error;
  auto all = reader.host(tensor, error);
  if (!all || all->shape.empty() || all->shape[0] < 1 || !all->isReal())
    return e.fail("`tie`: '" + name + "' has no slices: " + error);
  graph::HostTensor slice = *all;
  slice.shape[0] = 1;
  slice.reals.resize(all->reals.size() / size_t(all->shape[0]));
  for (size_t i = 0; i < all->reals.size(); ++i)
    if (all->reals[i] != slice.reals[i % slice.reals.size()])
      return e.fail("`tie` joins the slices of '" + name + "', which are not equal");
  auto type = RankedTensorType::get(slice.shape, slice.elementType);
  Value value = parameter(scope, as, type, Role::Parameter, toAttribute(slice), 0);
  note("tie", "the " + std::to_string(all->shape[0]) + " slices of '" + name +
                  "' are one parameter");
  return e.broadcast(value, all->shape);
}

/// PyTorch merges running statistics with weights that are equal at first and leaves an
/// Identity node with their name: never one with the weight. Null for other uses.
Value GraphImporter::mergedStatistic(Scope &scope, const std::string &name, Entry &entry,
                                     Use use) {
  if (!use.node || use.node->op_type() != "Identity" || !scope.uses ||
      use.node->output_size() != 1)
    return {};
  auto readers = scope.uses->find(use.node->output(0));
  if (readers == scope.uses->end() ||
      !llvm::any_of(readers->second, isRunningStatistic) ||
      roleOf(scope, name, entry.initializer->dims_size()) != Role::Parameter)
    return {};
  std::string error;
  RankedTensorType type = reader.type(*entry.initializer, error);
  ElementsAttr init = type ? reader.attribute(*entry.initializer, error) : ElementsAttr();
  if (!init)
    return e.fail("initializer '" + name + "': " + error);
  note("tied", "the running statistic '" + use.node->output(0) +
                   "' was merged with the weight '" + name + "'; it is kept apart");
  return parameter(scope, use.node->output(0), type, Role::Buffer, init, 0);
}

void GraphImporter::checkTies(Scope &scope) {
  auto shape = [&](const std::string &name) -> std::optional<Ints> {
    auto found = scope.entries.find(name);
    if (found == scope.entries.end() || !found->second.initializer)
      return std::nullopt;
    auto &dims = found->second.initializer->dims();
    return Ints(dims.begin(), dims.end());
  };
  for (const std::string &name : options.untie)
    if (!shape(name))
      report.errors.push_back("`untie` names '" + name + "', which is no initializer");
  for (const TieSpec &tie : options.tie) {
    auto first = shape(tie.first), second = shape(tie.second);
    if (!first || !second) {
      report.errors.push_back("`tie` names '" + (first ? tie.second : tie.first) +
                              "', which is no initializer");
      continue;
    }
    if (tie.copies)
      continue;
    for (const TieSpec &other : options.tie)
      if (other.second == tie.first && !other.copies)
        report.errors.push_back("`tie` joins '" + tie.first + "' to '" + other.first +
                                "' and others to it; name one weight first in all pairs");
    if (tie.transpose)
      std::reverse(second->begin(), second->end());
    if (*first != *second || (tie.transpose && first->size() != 2))
      report.errors.push_back("`tie` joins '" + tie.first + "' and '" + tie.second +
                              "', whose shapes differ: " + shapeText(*first) + " and " +
                              shapeText(*second));
  }
}

} // namespace sluice::frontend
