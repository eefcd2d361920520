#include "passes/Penalty.h"

#include "ir/graph/GraphBuilder.h"
#include "passes/StoredState.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace sluice {

using graph::GraphBuilder;

namespace {

constexpr int64_t fullBlock = 256, leastBlock = 32;

/// Elements under one scale: the largest divisor up to 256; 0 where none is large enough
/// to save bytes.
int64_t blockOf(int64_t elements) {
  for (int64_t block = fullBlock; block >= leastBlock; --block)
    if (elements % block == 0)
      return block;
  return 0;
}

/// "anchor", "anchor.2", ...
std::string numbered(StringRef name, int64_t task) {
  return task == 0 ? name.str() : name.str() + "." + std::to_string(task + 1);
}

StringRef importanceName(const PenaltySpec &spec) {
  return spec.kind == "si" ? "omega" : "fisher";
}

} // namespace

Penalty::Penalty(const PenaltySpec &spec, graph::ParameterOp parameter,
                 StateSymbols &state, EntryReads &reads, OpBuilder &builder)
    : spec(spec), parameter(parameter), state(state), reads(reads), builder(builder) {}

Value Penalty::control(StringRef name, double fill) {
  StringRef group = *parameter.getGroup();
  auto declared =
      state.declare(("control/" + group + "/" + name).str(),
                    RankedTensorType::get({}, builder.getF32Type()), "control", group);
  if (fill != 0)
    declared.setFillAttr(builder.getF64FloatAttr(fill));
  return reads.read(declared);
}

graph::ParameterOp Penalty::declareState(const std::string &symbol,
                                         ArrayRef<int64_t> shape, Type element) {
  return state.declare(symbol, RankedTensorType::get(shape, element), "continual",
                       *parameter.getGroup());
}

/// bf16 has the range of f32, so that nothing is lost but bits; the others have a scale
/// for each block: fp16 a power of two, int8 the largest entry, of which the dynamic map
/// keeps seven decades.
Value Penalty::declareImportance(const std::string &symbol, ArrayRef<int64_t> shape) {
  GraphBuilder b(parameter.getLoc(), builder);
  int64_t elements = ShapedType::getNumElements(shape);
  int64_t block = blockOf(elements);
  bool hasScales = (spec.storage == "int8" || spec.storage == "fp16") && block > 0;
  Type element = spec.storage == "fp32"                ? Type(b.getF32Type())
                 : hasScales && spec.storage == "int8" ? Type(b.getI8Type())
                 : hasScales                           ? Type(b.getF16Type())
                                                       : Type(b.getBF16Type());
  Value stored = reads.read(declareState(symbol, shape, element));
  if (!hasScales)
    return b.cast(stored, b.getF32Type());
  SmallVector<int64_t> blocked = {elements / block, block};
  Value scales =
      reads.read(declareState(symbol + "/scale", {elements / block}, b.getF32Type()));
  Value codes = b.reshape(stored, blocked);
  Value values = spec.storage == "int8"
                     ? b.make<graph::DynamicDecodeOp>(codes, /*positive=*/true)
                     : b.cast(codes, b.getF32Type());
  scales = b.broadcast(b.reshape(scales, {elements / block, 1}), blocked);
  return b.mul(values, scales);
}

Penalty::Anchor Penalty::declare(int64_t task, ArrayRef<int64_t> shape) {
  GraphBuilder b(parameter.getLoc(), builder);
  ArrayRef<int64_t> own = valueTypeOf(parameter).getShape();
  std::string folder = spec.kind + "/" + modelName(parameter.getSymName()).str() + "/";
  Anchor anchor;
  anchor.value = b.reshape(
      reads.read(declareState(folder + numbered("anchor", task), own, b.getF32Type())),
      shape);
  anchor.importance = b.reshape(
      declareImportance(folder + numbered(importanceName(spec), task), own), shape);
  return anchor;
}

Value Penalty::addTo(Value gradient, Value w) {
  GraphBuilder b(parameter.getLoc(), builder);
  Value lambda = control(spec.kind + "_lambda", spec.lambda);
  ArrayRef<int64_t> shape = graph::tensorType(gradient).getShape();
  for (int64_t task = 0; task < spec.tasks; ++task) {
    Anchor anchor = declare(task, shape);
    Value weight = b.mul(anchor.importance, b.broadcastLike(lambda, anchor.importance));
    Value part = b.mul(weight, b.sub(b.reshape(w, shape), anchor.value));
    gradient =
        b.add(gradient, b.cast(part, graph::tensorType(gradient).getElementType()));
  }
  return gradient;
}

Value Penalty::pull(Value next) {
  GraphBuilder b(parameter.getLoc(), builder);
  Value rate = b.mul(control("lr", 0), control(spec.kind + "_lambda", spec.lambda));
  Value weights, way;
  for (int64_t task = 0; task < spec.tasks; ++task) {
    Anchor anchor = declare(task, graph::tensorType(next).getShape());
    Value weight = b.mul(anchor.importance, b.broadcastLike(rate, anchor.importance));
    Value part = b.mul(weight, b.sub(anchor.value, next));
    weights = weights ? b.add(weights, weight) : weight;
    way = way ? b.add(way, part) : part;
  }
  return b.add(next, b.div(way, b.shift(weights, 1)));
}

void Penalty::walk(Value gradient, Value before, Value after, Value moves) {
  if (spec.kind != "si")
    return;
  GraphBuilder b(parameter.getLoc(), builder);
  auto path = declareState("si/" + modelName(parameter.getSymName()).str() + "/path",
                           valueTypeOf(parameter).getShape(), b.getF32Type());
  Value old = b.reshape(reads.read(path), graph::tensorType(after).getShape());
  Value step = b.mul(b.reshape(gradient, graph::tensorType(after).getShape()),
                     b.sub(after, before));
  Value next = b.select(b.broadcastLike(moves, old), b.sub(old, step), old);
  b.create<graph::WriteOp>(path.getSymName(),
                           b.reshape(next, path.getTensorType().getShape()));
}

namespace {

/// Parameters and bytes of what a penalty keeps.
struct Sizes {
  int64_t parameters = 0, elements = 0, anchors = 0, importances = 0, paths = 0;
  int64_t unscaled = 0; // importances that are no blocks, and stay bf16
};

Sizes sizesOf(ModuleOp module, const PenaltySpec &spec) {
  Sizes sizes;
  for (auto parameter : module.getOps<graph::ParameterOp>()) {
    if (parameter.getRole() != "continual")
      continue;
    StringRef symbol = parameter.getSymName();
    RankedTensorType type = parameter.getTensorType();
    int64_t bytes = (type.getNumElements() * type.getElementTypeBitWidth() + 7) / 8;
    StringRef name = symbol.rsplit('/').second;
    if (name == "path") {
      sizes.paths += bytes;
    } else if (name.starts_with("anchor")) {
      sizes.anchors += bytes;
      sizes.parameters += name == "anchor";
      sizes.elements += name == "anchor" ? type.getNumElements() : 0;
    } else {
      sizes.importances += bytes;
      sizes.unscaled += type.getElementType().isBF16() && spec.storage != "bf16";
    }
  }
  return sizes;
}

std::string describe(const PenaltySpec &spec, const Sizes &sizes) {
  std::string name = spec.kind == "si" ? "Omega" : "Fisher";
  double each =
      double(sizes.anchors + sizes.importances + sizes.paths) / double(sizes.elements);
  std::string text =
      llvm::formatv("{0}: {1} parameters are held by lambda = {2}, {3}; anchors take {4} "
                    "bytes, {5} in {6} {7}",
                    spec.kind, sizes.parameters, spec.lambda,
                    spec.coupled ? "coupled: the penalty's gradient is clipped and "
                                   "preconditioned with the loss's"
                                 : "not coupled: a proximal step beside the optimizer's",
                    sizes.anchors, name, spec.storage, sizes.importances);
  if (sizes.paths > 0)
    text += ", paths " + std::to_string(sizes.paths);
  text += llvm::formatv(": {0:f2} bytes per element", each);
  if (sizes.unscaled > 0)
    text += "; " + std::to_string(sizes.unscaled) +
            " of them do not divide into blocks and stay bf16";
  return text;
}

} // namespace

void describePenalty(ModuleOp module, const PenaltySpec &spec, StateSymbols &state) {
  Builder b(module.getContext());
  state.declare(spec.kind + "/tasks", RankedTensorType::get({}, b.getI64Type()),
                "control");
  report(module, describe(spec, sizesOf(module, spec)));
  if (spec.kind == "ewc")
    report(module,
           "ewc: the Fisher is the mean over up to " + std::to_string(spec.samples) +
               " samples of squared gradients of single samples, with " +
               (spec.labels == "true"      ? "true labels: the empirical Fisher"
                : spec.labels == "sampled" ? "labels sampled from the model"
                                           : "all classes by their probabilities: the "
                                             "exact Fisher"));
  if (spec.refresh > 0)
    report(module, llvm::formatv("ewc: consolidated whenever {0} of an epoch has been "
                                 "new, on the samples trained last",
                                 spec.refresh));
  auto number = [&](StringRef name, double value) {
    return b.getNamedAttr(name, b.getF64FloatAttr(value));
  };
  auto count = [&](StringRef name, int64_t value) {
    return b.getNamedAttr(name, b.getI64IntegerAttr(value));
  };
  module->setAttr("graph.continual",
                  b.getDictionaryAttr({
                      b.getNamedAttr("kind", b.getStringAttr(spec.kind)),
                      b.getNamedAttr("labels", b.getStringAttr(spec.labels)),
                      number("lambda", spec.lambda),
                      number("gamma", spec.gamma.value_or(-1)),
                      number("refresh", spec.refresh),
                      number("xi", spec.xi),
                      count("samples", spec.samples),
                      count("tasks", spec.tasks),
                  }));
}

} // namespace sluice
