#include "passes/OptimizerUpdate.h"

#include "ir/graph/GraphBuilder.h"
#include "passes/NarrowState.h"
#include "passes/StoredState.h"
#include "passes/TaskMasks.h"

using namespace mlir;

namespace sluice {

static DictionaryAttr optionsOf(graph::ParameterOp parameter) {
  auto module = parameter->getParentOfType<ModuleOp>();
  if (auto groups = module->getAttrOfType<ArrayAttr>("graph.groups"))
    for (auto group : groups.getAsRange<DictionaryAttr>())
      if (group.getAs<StringAttr>("name").getValue() == parameter.getGroup())
        return group;
  return DictionaryAttr::get(parameter.getContext());
}

OptimizerUpdate::OptimizerUpdate(OpBuilder &builder, StateSymbols &state,
                                 EntryReads &reads, graph::ParameterOp parameter,
                                 StringRef momentFormat, Value finite)
    : builder(builder), state(state), reads(reads), parameter(parameter), finite(finite),
      options(optionsOf(parameter)) {
  auto own = parameter->getAttrOfType<StringAttr>(momentsAttr);
  form = MomentForm::choose(own ? own.getValue() : momentFormat, kind(), parameter,
                            wideReason);
  if (form.kind == MomentForm::Stored && kind() == "rmsprop" && flag("centered")) {
    wideReason = "a centred variance is the difference of two of them";
    form = {};
  }
}

APFloat OptimizerUpdate::number(StringRef key) const {
  return options.getAs<FloatAttr>(key).getValue();
}

bool OptimizerUpdate::flag(StringRef key) const {
  auto attr = options.getAs<BoolAttr>(key);
  return attr && attr.getValue();
}

StringRef OptimizerUpdate::kind() const {
  return options.getAs<StringAttr>("kind").getValue();
}

Value OptimizerUpdate::control(StringRef name) {
  StringRef group = *parameter.getGroup();
  return reads.control(("control/" + group + "/" + name).str(), builder.getF32Type(),
                       group);
}

Value OptimizerUpdate::updatesDone() {
  StringRef group = *parameter.getGroup();
  return reads.control(("control/" + group + "/update").str(), builder.getI64Type(),
                       group);
}

Value OptimizerUpdate::constantControl(StringRef name, double value) {
  StringRef group = *parameter.getGroup();
  auto declared =
      state.declare(("control/" + group + "/" + name).str(),
                    RankedTensorType::get({}, builder.getF32Type()), "control", group);
  declared.setFillAttr(builder.getF64FloatAttr(value));
  return reads.read(declared);
}

/// What the operations call an option of the group.
static StringRef attributeOf(StringRef kind, StringRef option) {
  if (option == "eps")
    return kind == "adafactor" ? "eps1" : "epsilon";
  return option;
}

void OptimizerUpdate::hyper(ArrayRef<StringRef> names) {
  // Averages need 1 - x rounded once: in f32 the difference would lose what is small.
  constexpr StringRef averages[] = {"beta1", "beta2", "alpha", "momentum", "dampening"};
  for (StringRef name : names) {
    double value = number(name).convertToDouble();
    StringRef attribute = attributeOf(kind(), name);
    hyperNames.push_back(attribute);
    hyperValues.push_back(constantControl(name, value));
    if (!llvm::is_contained(averages, name))
      continue;
    hyperNames.push_back(builder.getStringAttr(attribute + "_rest").getValue());
    hyperValues.push_back(constantControl((name + "_rest").str(), 1 - value));
  }
}

Value OptimizerUpdate::keep(StringRef name, double fill) {
  return keep(name, valueTypeOf(parameter), fill);
}

Value OptimizerUpdate::keep(StringRef name, RankedTensorType type, double fill) {
  std::string symbol = ("opt/" + modelName(parameter.getSymName()) + "/" + name).str();
  return kept
      .emplace_back(form.ofMoment(name, wideReason), symbol,
                    type.clone(builder.getF32Type()), fill, *parameter.getGroup(), state,
                    reads, builder, shards)
      .value();
}

void OptimizerUpdate::build(Value gradient) {
  graph::GraphBuilder b(parameter.getLoc(), builder);
  Value exact = readExact(parameter, shards, state, reads, builder), w = exact;
  ArrayRef<int64_t> shape = graph::tensorType(exact).getShape();
  if (shards.computesInRows())
    gradient = b.reshape(gradient, shape);
  if (form.hasBlocks()) { // all in the shape of the blocks
    int64_t elements = graph::tensorType(exact).getNumElements();
    w = b.reshape(w, {elements / form.block, form.block});
    gradient = b.reshape(gradient, {elements / form.block, form.block});
  }
  bool isAdamLike =
      llvm::is_contained({"adam", "adamw", "nadam", "radam", "lamb"}, kind());
  Operation *op = isAdamLike ? adamLike(w, gradient) : other(w, gradient);
  Value moves = applies();
  Value next = b.reshape(op->getResult(0), shape);
  if (penalty) {
    Penalty held(*penalty, parameter, state, reads, builder);
    if (!penalty->coupled)
      next = held.pull(next);
    held.walk(taskGradient, exact, next, moves);
  }
  next = onlyWhereTrains(next, exact, parameter, state, reads, builder);
  next = b.select(b.broadcastLike(moves, next), next, exact);
  if (shards.computesInRows())
    writeExact(parameter, next, shards, state, reads, builder);
  else
    writeExact(parameter, next, moves, state, reads, builder);
  for (auto [moment, value] : llvm::zip_equal(kept, op->getResults().drop_front()))
    moment.write(onlyWhereTrains(value, moment.value(), parameter, state, reads, builder),
                 moves);
}

/// A group that is frozen while training, or an update that is skipped, keeps every bit:
/// no update, no momentum, no decay.
Value OptimizerUpdate::applies() {
  graph::GraphBuilder b(parameter.getLoc(), builder);
  Value active = constantControl("active", 1);
  Value moves = b.compare(active, "gt", b.splatLike(active, 0));
  return finite ? b.make<graph::AndOp>(moves, finite) : moves;
}

Operation *OptimizerUpdate::adamLike(Value w, Value g) {
  Value m = keep("m"), v = keep("v"), lr = control("lr"), bc2 = control("bc2");
  APFloat beta1 = number("beta1"), beta2 = number("beta2"), eps = number("eps");
  APFloat decay = number("weight_decay");
  hyper({"beta1", "beta2", "eps", "weight_decay"});
  if (kind() == "nadam")
    return make<graph::NadamOp>(w, g, m, v, lr, bc2, control("nadam_g"),
                                control("nadam_m"), beta1, beta2, eps, decay,
                                flag("decoupled"));
  Value bc1 = control("bc1");
  if (kind() == "radam")
    return make<graph::RadamOp>(w, g, m, v, lr, bc1, bc2, control("radam_r"), beta1,
                                beta2, eps, decay, flag("decoupled"));
  if (kind() == "lamb")
    return make<graph::LambOp>(w, g, m, v, lr, bc1, bc2, beta1, beta2, eps, decay);
  Value largest = flag("amsgrad") ? keep("max_v") : Value();
  return make<graph::AdamOp>(w, g, m, v, lr, bc1, bc2, largest, beta1, beta2, eps, decay,
                             /*decoupled=*/kind() == "adamw", flag("eps_before"));
}

Operation *OptimizerUpdate::other(Value w, Value g) {
  APFloat decay = number("weight_decay");
  if (kind() == "sgd") {
    APFloat momentum = number("momentum");
    Value velocity = momentum.isZero() ? Value() : keep("velocity");
    hyper({"weight_decay"});
    if (velocity)
      hyper({"momentum", "dampening"});
    return make<graph::SgdOp>(w, g, velocity, control("lr"), updatesDone(), momentum,
                              number("dampening"), decay, flag("nesterov"));
  }
  if (kind() == "lion") {
    hyper({"beta1", "beta2", "weight_decay"});
    return make<graph::LionOp>(w, g, keep("m"), control("lr"), number("beta1"),
                               number("beta2"), decay);
  }
  if (kind() == "adagrad") {
    hyper({"lr_decay", "eps", "weight_decay"});
    Value sum = keep("sum", number("initial_accumulator").convertToDouble());
    return make<graph::AdagradOp>(w, g, sum, control("lr"), updatesDone(),
                                  number("lr_decay"), number("eps"), decay);
  }
  if (kind() == "rmsprop")
    return rmsprop(w, g);
  if (kind() == "adafactor")
    return adafactor(w, g);
  assert(kind() == "muon");
  hyper({"momentum", "weight_decay"});
  // The norm's least value is PyTorch's default; `eps` is that of the vectors' AdamW.
  return make<graph::MuonOp>(w, g, keep("momentum_buffer"), control("lr"),
                             number("momentum"), APFloat(1e-7), decay,
                             options.getAs<IntegerAttr>("ns_steps").getInt(),
                             flag("nesterov"), flag("match_rms_adamw"));
}

Operation *OptimizerUpdate::rmsprop(Value w, Value g) {
  Value squares = keep("square_avg");
  SmallVector<Value> more;
  if (!number("momentum").isZero())
    more.push_back(keep("momentum_buffer"));
  if (flag("centered"))
    more.push_back(keep("grad_avg"));
  hyper({"alpha", "eps", "weight_decay"});
  if (!number("momentum").isZero())
    hyper({"momentum"});
  return make<graph::RmspropOp>(w, g, squares, control("lr"), more, number("alpha"),
                                number("eps"), number("momentum"), number("weight_decay"),
                                flag("centered"));
}

Operation *OptimizerUpdate::adafactor(Value w, Value g) {
  SmallVector<Value> moments;
  hyper({"beta2_decay", "eps", "eps2", "d", "weight_decay"});
  RankedTensorType type = valueTypeOf(parameter);
  if (type.getRank() < 2) {
    moments.push_back(keep("variance"));
  } else {
    SmallVector<int64_t> rows(type.getShape()), columns(type.getShape());
    rows[type.getRank() - 1] = 1;
    columns[type.getRank() - 2] = 1;
    moments.push_back(keep("row_var", type.clone(rows)));
    moments.push_back(keep("col_var", type.clone(columns)));
  }
  return make<graph::AdafactorOp>(w, g, control("lr"), updatesDone(), moments,
                                  number("beta2_decay"), number("eps"), number("eps2"),
                                  number("d"), number("weight_decay"));
}

} // namespace sluice
