// Gives each task weights of its own inside one model (TaskMasks.h).
//
// Behind the gradients: a gradient with respect to what the model reads is that of a
// masked weight, whose part for the score is the product with the weight; so no operation
// needs a gradient that passes straight through. Behind the entries, since packnet masks
// only those that evaluate. Before the update, which sees scores as other parameters.

#include "ir/TrainingSpec.h"
#include "ir/graph/GraphBuilder.h"
#include "passes/EntryFunctions.h"
#include "passes/InitialDraws.h"
#include "passes/Passes.h"
#include "passes/TaskMasks.h"

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_APPLYMASKS
#include "passes/Passes.h.inc"

using graph::GraphBuilder;

namespace {

constexpr double scoreDeviation = 0.01;

/// f32: the task of each element.
Value taskOf(graph::ParameterOp mask, EntryReads &reads, GraphBuilder &b) {
  return b.cast(reads.read(mask), b.getF32Type());
}

class ApplyMasks : public impl::ApplyMasksBase<ApplyMasks> {
public:
  explicit ApplyMasks(const TrainingSpec &spec) : spec(spec) {}

  void runOnOperation() override {
    if (!spec.masks.isOn())
      return;
    StateSymbols symbols(getOperation());
    state = &symbols;
    bool isPacked = spec.masks.kind == "packnet";
    for (graph::ParameterOp parameter : symbols.parameters())
      if (parameter.getTrainable())
        add(parameter, isPacked);
    for (auto parameter : getOperation().getOps<graph::ParameterOp>())
      if (parameter.getRole() == "buffer")
        buffers.push_back(parameter);
    for (graph::ParameterOp buffer : buffers)
      keepOwn(buffer);
    if (weights.empty()) {
      emitError(UnknownLoc::get(&getContext()))
          << "'continual.masks' has nothing to mask: no f32 parameter of two or more "
             "dimensions trains";
      return signalPassFailure();
    }
    declareCursor(isPacked);
    describe(isPacked);
  }

private:
  int64_t tasks() const { return static_cast<int64_t>(spec.masks.tasks.size()); }

  void add(graph::ParameterOp parameter, bool isPacked) {
    RankedTensorType type = parameter.getTensorType();
    if (type.getRank() < 2 || !type.getElementType().isF32())
      return keepOwn(parameter);
    elements += type.getNumElements();
    weights.push_back(modelName(parameter.getSymName()).str());
    isPacked ? pack(parameter) : score(parameter);
  }

  /// What each task has a copy of.
  void keepOwn(graph::ParameterOp parameter) {
    SmallVector<int64_t> shape = {tasks()};
    llvm::append_range(shape, parameter.getTensorType().getShape());
    std::string name = modelName(parameter.getSymName()).str();
    state->declare("task/own/" + name, parameter.getTensorType().clone(shape),
                   "continual");
    own.push_back(name);
    ownElements += parameter.getTensorType().getNumElements() * tasks();
  }

  void pack(graph::ParameterOp parameter) {
    Builder b(&getContext());
    auto mask =
        state->declare(("mask/" + modelName(parameter.getSymName())).str(),
                       parameter.getTensorType().clone(b.getI8Type()), "continual");
    mask.setFillAttr(b.getF64FloatAttr(double(freeTask)));
    for (StringRef name : {"eval", "infer"})
      if (auto entry = getOperation().lookupSymbol<func::FuncOp>(name))
        replaceReads(entry, parameter, [&](GraphBuilder &g, Value w, EntryReads &reads) {
          Value limit = reads.read(scalarState("task/limit"));
          Value task = taskOf(mask, reads, g);
          Value counts = g.compare(task, "le", g.broadcastLike(limit, task));
          return g.select(counts, w, g.splatLike(w, 0));
        });
  }

  void score(graph::ParameterOp parameter) {
    Builder b(&getContext());
    std::string name = modelName(parameter.getSymName()).str();
    auto scores = state->declare("param/" + name + ".score", parameter.getTensorType(),
                                 "parameter", *parameter.getGroup());
    scores.setTrainable(true);
    parameter.setTrainable(false);
    InitialDraws draws(spec.seed, name + ".score");
    std::vector<float> values(parameter.getTensorType().getNumElements());
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(scoreDeviation * draws.normal(i));
    setInitialValues(scores, values);
    int64_t bytes = (parameter.getTensorType().getNumElements() + 7) / 8;
    for (const std::string &task : spec.masks.tasks)
      state->declare("mask/" + task + "/" + name,
                     RankedTensorType::get({bytes}, b.getI8Type()), "continual");
    for (auto entry : getOperation().getOps<func::FuncOp>()) {
      replaceReads(entry, parameter, [&](GraphBuilder &g, Value w, EntryReads &reads) {
        Value s = reads.read(scores);
        return g.select(g.compare(s, "gt", g.splatLike(s, 0)), w, g.splatLike(w, 0));
      });
      giveToScores(entry, parameter, name);
    }
    joinGroup(parameter, scores);
    parameter.removeGroupAttr();
  }

  template <class Fn>
  void replaceReads(func::FuncOp entry, graph::ParameterOp parameter, Fn mask) {
    graph::ReadOp read;
    for (auto op : entry.getBody().front().getOps<graph::ReadOp>())
      if (op.getSymbol() == parameter.getSymName())
        read = op;
    if (!read)
      return;
    EntryReads reads(entry, *state);
    Value w = read.getValue();
    SmallVector<Operation *> users(w.getUsers());
    OpBuilder builder(&getContext());
    builder.setInsertionPointAfter(read); // other reads go to the front of the block
    GraphBuilder g(parameter.getLoc(), builder);
    Value masked = mask(g, w, reads);
    for (Operation *user : users)
      user->replaceUsesOfWith(w, masked);
  }

  /// The gradient's name and value become those of the scores.
  void giveToScores(func::FuncOp entry, graph::ParameterOp parameter,
                    const std::string &name) {
    std::vector<NamedValue> values = results(entry);
    bool changes = false;
    for (NamedValue &result : values)
      if (result.name == "grad/" + name) {
        OpBuilder builder(returnOf(entry));
        GraphBuilder g(parameter.getLoc(), builder);
        EntryReads reads(entry, *state);
        result.value = g.mul(result.value, reads.read(parameter));
        result.name += ".score";
        changes = true;
      }
    if (changes)
      setResults(entry, values);
  }

  void joinGroup(graph::ParameterOp parameter, graph::ParameterOp scores) {
    Builder b(&getContext());
    auto groups = getOperation()->getAttrOfType<ArrayAttr>("graph.groups");
    SmallVector<Attribute> changed;
    for (auto group : groups.getAsRange<DictionaryAttr>()) {
      NamedAttrList entries(group);
      SmallVector<Attribute> members;
      for (auto member : group.getAs<ArrayAttr>("members").getAsRange<StringAttr>())
        members.push_back(member.getValue() == parameter.getSymName()
                              ? scores.getSymNameAttr()
                              : member);
      entries.set("members", b.getArrayAttr(members));
      changed.push_back(entries.getDictionary(&getContext()));
    }
    getOperation()->setAttr("graph.groups", b.getArrayAttr(changed));
  }

  /// The task that trains, its phase, the update it has begun with, and those learned.
  void declareCursor(bool isPacked) {
    Builder b(&getContext());
    state->declare("task/cursor", RankedTensorType::get({4}, b.getI64Type()),
                   "continual");
    if (isPacked) {
      scalarState("task/trains");
      scalarState("task/limit");
    }
  }

  graph::ParameterOp scalarState(StringRef symbol) {
    Builder b(&getContext());
    auto declared =
        state->declare(symbol, RankedTensorType::get({}, b.getF32Type()), "continual");
    declared.setFillAttr(b.getF64FloatAttr(double(freeTask)));
    return declared;
  }

  void describe(bool isPacked) {
    Builder b(&getContext());
    int64_t bytes = isPacked ? elements : 0;
    for (const std::string &name : isPacked ? std::vector<std::string>() : weights)
      bytes += tasks() * state->lookup("mask/" + spec.masks.tasks.front() + "/" + name)
                             .getTensorType()
                             .getNumElements();
    report(getOperation(),
           "masks: " + spec.masks.kind + " for " + std::to_string(tasks()) +
               " tasks: " + std::to_string(weights.size()) + " weights of " +
               std::to_string(elements) + " elements, masks take " +
               std::to_string(bytes) + " bytes; " + std::to_string(own.size()) +
               " vectors and statistics are each task's own, in " +
               std::to_string(4 * ownElements) + " bytes" +
               (isPacked ? "" : "; the weights stay as they are, and scores train"));
    auto names = [&](const std::vector<std::string> &texts) {
      SmallVector<StringRef> refs(texts.begin(), texts.end());
      return b.getStrArrayAttr(refs);
    };
    getOperation()->setAttr(
        "graph.masks",
        b.getDictionaryAttr({
            b.getNamedAttr("kind", b.getStringAttr(spec.masks.kind)),
            b.getNamedAttr("tasks", names(spec.masks.tasks)),
            b.getNamedAttr("weights", names(weights)),
            b.getNamedAttr("own", names(own)),
            b.getNamedAttr("share", b.getF64FloatAttr(spec.masks.share)),
            b.getNamedAttr("retrain", b.getF64FloatAttr(spec.masks.retrain)),
        }));
  }

  const TrainingSpec &spec;
  StateSymbols *state = nullptr;
  std::vector<std::string> weights, own; // the model's names
  std::vector<graph::ParameterOp> buffers;
  int64_t elements = 0, ownElements = 0;
};

} // namespace

Value trainsWhere(graph::ParameterOp parameter, StateSymbols &state, EntryReads &reads,
                  OpBuilder &builder) {
  auto mask = state.lookup(("mask/" + modelName(parameter.getSymName())).str());
  if (!mask)
    return nullptr;
  GraphBuilder b(parameter.getLoc(), builder);
  Value trains = reads.read(state.lookup("task/trains"));
  Value task = taskOf(mask, reads, b);
  return b.compare(task, "eq", b.broadcastLike(trains, task));
}

Value onlyWhereTrains(Value next, Value old, graph::ParameterOp parameter,
                      StateSymbols &state, EntryReads &reads, OpBuilder &builder) {
  Value trains = trainsWhere(parameter, state, reads, builder);
  if (!trains)
    return next;
  GraphBuilder b(parameter.getLoc(), builder);
  return b.select(trains, next, old ? old : b.splatLike(next, 0));
}

std::unique_ptr<Pass> createApplyMasks(const TrainingSpec &spec) {
  return std::make_unique<ApplyMasks>(spec);
}

} // namespace sluice
