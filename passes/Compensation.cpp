#include "passes/Compensation.h"

#include "ir/TrainingSpec.h"
#include "passes/NarrowState.h"
#include "passes/PendingGradients.h"
#include "passes/StoredState.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace sluice {

using graph::GraphBuilder;

namespace {

DictionaryAttr optionsOf(graph::ParameterOp parameter) {
  auto module = parameter->getParentOfType<ModuleOp>();
  for (auto group :
       module->getAttrOfType<ArrayAttr>("graph.groups").getAsRange<DictionaryAttr>())
    if (group.getAs<StringAttr>("name").getValue() == parameter.getGroup())
      return group;
  return DictionaryAttr::get(parameter.getContext());
}

StringRef kindOf(graph::ParameterOp parameter) {
  return optionsOf(parameter).getAs<StringAttr>("kind").getValue();
}

bool hasMomentum(graph::ParameterOp parameter) {
  DictionaryAttr options = optionsOf(parameter);
  return kindOf(parameter) == "sgd" &&
         !options.getAs<FloatAttr>("momentum").getValue().isZero() &&
         !options.getAs<BoolAttr>("nesterov").getValue();
}

bool isPlain(graph::ParameterOp parameter, const TrainingSpec &spec) {
  return spec.precision.optimizerState == "fp32" && !parameter->hasAttr(momentsAttr);
}

/// Why it cannot be had; empty where it can.
std::string reasonAgainst(graph::ParameterOp parameter, const TrainingSpec &spec) {
  const CompensationSpec &how = spec.update.compensation;
  bool isAdam = kindOf(parameter) == "adam" || kindOf(parameter) == "adamw";
  if (how.kind == "momentum") {
    if (!hasMomentum(parameter) && !isAdam)
      return "it needs the momentum of sgd, adam or adamw; its optimizer is '" +
             kindOf(parameter).str() + "'";
    if (!isPlain(parameter, spec))
      return "its moments are not stored as f32";
    if (!parameter.getTensorType().getElementType().isF32() || isStoredInCodes(parameter))
      return "its weights are not stored as f32";
  }
  if (how.kind == "dc_asgd" && how.versions == "reconstructed") {
    if (!hasMomentum(parameter) || !isPlain(parameter, spec))
      return "old weights are reconstructed from the f32 momentum of sgd without "
             "nesterov; store them";
    if (delayOf(parameter) != 1)
      return "old weights are reconstructed for 'defer: 1' only, not for " +
             std::to_string(delayOf(parameter)) + "; store them";
  }
  return "";
}

/// Where the last update would lead if it were made once more, per unit of rate.
Value direction(graph::ParameterOp parameter, StateSymbols &state, EntryReads &reads,
                GraphBuilder &b) {
  std::string name = "opt/" + modelName(parameter.getSymName()).str() + "/";
  StringRef group = *parameter.getGroup();
  RankedTensorType type = parameter.getTensorType();
  auto moment = [&](const char *which) {
    return reads.read(state.declare(name + which, type, "moment", group));
  };
  if (kindOf(parameter) == "sgd")
    return moment("velocity");
  auto control = [&](const char *which, Value like) {
    Value scalar =
        reads.control(("control/" + group + "/" + which).str(), b.getF32Type(), group);
    return b.broadcastLike(scalar, like);
  };
  double eps = optionsOf(parameter).getAs<FloatAttr>("eps").getValueAsDouble();
  Value m = moment("m"), v = moment("v");
  Value root = b.sqrt(b.div(v, control("bc2", v)));
  return b.div(b.div(m, control("bc1", m)), b.shift(root, eps));
}

} // namespace

LogicalResult checkCompensation(ModuleOp module, const TrainingSpec &spec,
                                StateSymbols &state) {
  for (graph::ParameterOp parameter : state.parameters()) {
    if (!parameter.getTrainable() || delayOf(parameter) == 0)
      continue;
    if (std::string why = reasonAgainst(parameter, spec); !why.empty())
      return module.emitError("'update.compensation: ")
             << spec.update.compensation.kind << "' cannot be had for '"
             << modelName(parameter.getSymName()) << "': " << why;
  }
  return success();
}

Value compensate(graph::ParameterOp parameter, Value g, Value old,
                 const TrainingSpec &spec, StateSymbols &state, EntryReads &reads,
                 OpBuilder &builder) {
  const CompensationSpec &how = spec.update.compensation;
  GraphBuilder b(parameter.getLoc(), builder);
  Value now = readExact(parameter, state, reads, builder);
  Value squares = b.square(g);
  Value term = b.mul(squares, b.sub(now, old));
  if (!how.adaptive)
    return b.add(g, b.scale(term, how.lambda));
  StringRef group = *parameter.getGroup();
  graph::ParameterOp kept = state.declare(
      ("opt/" + modelName(parameter.getSymName()) + "/dc_mean_square").str(),
      graph::tensorType(g), "moment", group);
  Value before = reads.read(kept);
  Value mean = b.add(b.scale(before, how.decay), b.scale(squares, 1 - how.decay));
  graph::ParameterOp active =
      state.declare(("control/" + group + "/active").str(),
                    RankedTensorType::get({}, builder.getF32Type()), "control", group);
  active.setFillAttr(builder.getF64FloatAttr(1));
  Value flag = reads.read(active);
  Value moves = b.broadcastLike(b.compare(flag, "gt", b.splatLike(flag, 0)), mean);
  b.create<graph::WriteOp>(kept.getSymName(), b.select(moves, mean, before));
  constexpr double epsilon = 1e-7; // of the paper
  return b.add(g, b.div(b.scale(term, how.lambda), b.sqrt(b.shift(mean, epsilon))));
}

void predictWeights(func::FuncOp entry, StateSymbols &state) {
  EntryReads reads(entry, state);
  Block &block = entry.getBody().front();
  // Reads first: more of them are made at the front, and what is predicted comes behind.
  Operation *first = &block.front();
  while (isa<graph::ReadOp>(first))
    first = first->getNextNode();
  for (graph::ReadOp read : llvm::to_vector(block.getOps<graph::ReadOp>()))
    read->moveBefore(first);
  OpBuilder builder(first);
  for (graph::ParameterOp parameter : state.parameters()) {
    if (!parameter.getTrainable() || delayOf(parameter) == 0)
      continue;
    Value now = reads.read(parameter);
    GraphBuilder b(parameter.getLoc(), builder);
    Value lr = reads.control(("control/" + *parameter.getGroup() + "/lr").str(),
                             b.getF32Type(), *parameter.getGroup());
    Value towards = direction(parameter, state, reads, b);
    Value steps = b.broadcastLike(b.scale(lr, double(delayOf(parameter))), towards);
    Value product = b.mul(steps, towards);
    Value ahead = b.sub(now, product);
    now.replaceAllUsesExcept(ahead, ahead.getDefiningOp());
  }
}

} // namespace sluice
