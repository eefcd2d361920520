#include "passes/ClipGradients.h"

#include "passes/ClipUnits.h"
#include "passes/NarrowState.h"
#include "passes/UpdateGroups.h"

#include <cmath>
#include <limits>

using namespace mlir;

namespace sluice {

using graph::GraphBuilder;

/// What keeps the quotient of a bound and a norm of 0 finite, as PyTorch's.
static constexpr double leastNorm = 1e-6;

GradientClip::GradientClip(const TrainingSpec &spec, std::vector<MeanGradient> gradients,
                           StateSymbols &state, EntryReads &reads, OpBuilder &builder)
    : spec(spec), gradients(std::move(gradients)), state(state), reads(reads),
      builder(builder) {
  findGroups();
}

GraphBuilder GradientClip::at(StringRef name) {
  return {NameLoc::get(builder.getStringAttr(name)), builder};
}

Value GradientClip::control(const std::string &symbol, double value) {
  auto declared =
      state.declare(symbol, RankedTensorType::get({}, builder.getF32Type()), "control");
  declared.setFillAttr(builder.getF64FloatAttr(value));
  return reads.read(declared);
}

Value GradientClip::isActive(GraphBuilder &b, graph::ParameterOp parameter) {
  Value active = control("control/" + parameter.getGroup()->str() + "/active", 1);
  return b.compare(active, "gt", b.splatLike(active, 0));
}

/// Groups that are updated together where the spec has them, else those of parameters
/// under one optimizer.
void GradientClip::findGroups() {
  if (gradients.empty())
    return;
  auto module = gradients.front().parameter->getParentOfType<ModuleOp>();
  std::vector<UpdateGroup> named = updateGroups(module);
  for (auto [i, gradient] : llvm::enumerate(gradients)) {
    auto index = gradient.parameter->getAttrOfType<IntegerAttr>(updateGroupAttr);
    std::string name = index && index.getInt() < int64_t(named.size())
                           ? named[index.getInt()].name
                           : gradient.parameter.getGroup()->str();
    auto found = llvm::find_if(groups, [&](const Group &g) { return g.name == name; });
    if (found == groups.end())
      found = groups.insert(groups.end(), Group{name, {}, 0});
    found->members.push_back(i);
    found->elements += gradient.parameter.getTensorType().getNumElements();
  }
}

// --- norms

/// Squares are summed per tensor. Groups that are frozen while training count for
/// nothing, as parameters without a gradient do.
void GradientClip::measure() {
  for (size_t i = squares.size(); i < gradients.size(); ++i) {
    const MeanGradient &gradient = gradients[i];
    graph::ParameterOp parameter = gradient.parameter;
    GraphBuilder b(parameter.getLoc(), builder);
    std::string name = "norm/" + modelName(parameter.getSymName()).str();
    Value own = gradient.shards.squares(*gradient.value, name, builder);
    squares.push_back(b.select(isActive(b, parameter), own, b.splatLike(own, 0)));
  }
}

Value GradientClip::normOf(GraphBuilder &b, ArrayRef<size_t> members) {
  measure();
  Value sum;
  for (size_t i : members)
    sum = sum ? b.add(sum, squares[i]) : squares[i];
  return b.sqrt(sum);
}

Value GradientClip::norm() {
  if (!total) {
    GraphBuilder b = at("norm");
    total = normOf(b, llvm::to_vector(llvm::seq<size_t>(0, gradients.size())));
  }
  return total;
}

Value GradientClip::largestNorm() {
  measure();
  GraphBuilder b = at("norm");
  Value largest;
  for (Value square : squares)
    largest = largest ? b.make<graph::MaxOp>(largest, square) : square;
  return b.cast(b.sqrt(largest), b.getF32Type());
}

// --- bounds

void GradientClip::scale(size_t index, Value factor) {
  const MeanGradient &gradient = gradients[index];
  graph::ParameterOp parameter = gradient.parameter;
  GraphBuilder b(parameter.getLoc(), builder);
  Type element = graph::tensorType(*gradient.value).getElementType();
  *gradient.value =
      b.mul(*gradient.value, b.broadcastLike(b.cast(factor, element), *gradient.value));
}

/// min(1, limit / (norm + 1e-6)) as f32.
Value GradientClip::shrink(GraphBuilder &b, Value norm, Value limit) {
  Value ratio = b.div(limit, b.shift(norm, leastNorm));
  Value factor = b.make<graph::MinOp>(b.splatLike(norm, 1), ratio);
  return b.cast(factor, b.getF32Type());
}

void GradientClip::clip() {
  const std::string &kind = spec.clip.kind;
  if (kind == "group_norm")
    return clipGroups();
  if (kind == "agc")
    return clipUnits();
  if (kind != "global_norm" && kind != "zclip")
    return;
  GraphBuilder b = at("clip");
  Value factor;
  if (kind == "zclip") {
    factor = clipByHistory(b);
  } else {
    Value most = control("control/clip_max", spec.clip.max);
    factor = shrink(b, norm(), b.cast(most, b.getF64Type()));
  }
  for (size_t i = 0; i < gradients.size(); ++i)
    scale(i, factor);
  factors.push_back({"clip_factor", factor});
}

/// With shares of the elements the norm of all groups together is at most `max`.
void GradientClip::clipGroups() {
  GraphBuilder b = at("clip");
  int64_t all = 0;
  for (const Group &group : groups)
    all += group.elements;
  Value most = b.cast(control("control/clip_max", spec.clip.max), b.getF64Type());
  for (const Group &group : groups) {
    double share = spec.clip.isShared ? double(group.elements) / double(all) : 1;
    Value factor = shrink(b, normOf(b, group.members), b.scale(most, std::sqrt(share)));
    for (size_t i : group.members)
      scale(i, factor);
    factors.push_back({"group_factor/" + group.name, factor});
  }
}

/// Brock et al., 2021: a unit's gradient has at most `ratio` of the norm of its weights.
void GradientClip::clipUnits() {
  measure();
  for (auto [i, gradient] : llvm::enumerate(gradients)) {
    graph::ParameterOp parameter = gradient.parameter;
    std::optional<SmallVector<int64_t>> summed = clipUnitAxes(parameter);
    if (!summed)
      continue;
    GraphBuilder b(parameter.getLoc(), builder);
    Type f64 = b.getF64Type();
    auto norms = [&](Value x) {
      return b.sqrt(b.sum(b.square(b.cast(x, f64)), *summed, /*keep=*/true));
    };
    Value g = norms(*gradient.value);
    Value w = norms(readExact(parameter, state, reads, builder));
    Value limit =
        b.scale(b.make<graph::MaxOp>(w, b.splatLike(w, spec.clip.eps)), spec.clip.ratio);
    Value isAbove = b.compare(g, "gt", limit), one = b.splatLike(g, 1);
    Value factor = b.select(isAbove, b.div(limit, b.select(isAbove, g, one)), one);
    Value left = b.sumAll(b.square(b.mul(g, factor)));
    scale(i, factor);
    Value none = b.compare(squares[i], "gt", b.splatLike(left, 0));
    Value whole = b.select(none, squares[i], b.splatLike(left, 1));
    Value share = b.select(none, b.sqrt(b.div(left, whole)), b.splatLike(left, 1));
    factors.push_back({"tensor_factor/" + modelName(parameter.getSymName()).str(),
                       b.cast(share, b.getF32Type())});
  }
}

// --- the history of the norm

const GradientClip::History &GradientClip::history() {
  if (past)
    return *past;
  auto scalar = [&](const char *name, Type element) {
    return state.declare(name, RankedTensorType::get({}, element), "control");
  };
  past.emplace();
  past->meanState = scalar("scale/norm/mean", builder.getF64Type());
  past->varianceState = scalar("scale/norm/variance", builder.getF64Type());
  past->countState = scalar("scale/norm/count", builder.getI64Type());
  past->mean = reads.read(past->meanState);
  past->variance = reads.read(past->varianceState);
  past->count = reads.read(past->countState);
  GraphBuilder b = at("norm");
  int64_t warmup = spec.clip.kind == "zclip" ? spec.clip.warmup : spec.spikes.warmup;
  past->isWarm = b.compare(past->count, "ge", b.splatLike(past->count, double(warmup)));
  return *past;
}

/// ZClip (Kumar et al., 2025): a norm whose z is above the threshold t is clipped to
/// mean + t * deviation * (t / z). Both are those before this norm.
Value GradientClip::clipByHistory(GraphBuilder &b) {
  const History &h = history();
  double threshold = spec.clip.z;
  Value deviation = b.sqrt(h.variance), one = b.splatLike(norm(), 1);
  Value z = b.div(b.sub(norm(), h.mean), b.shift(deviation, leastNorm));
  Value isSpike =
      b.make<graph::AndOp>(h.isWarm, b.compare(z, "gt", b.splatLike(z, threshold)));
  Value shrunk = b.div(b.splatLike(z, threshold), b.select(isSpike, z, one));
  Value limit = b.add(h.mean, b.mul(b.scale(deviation, threshold), shrunk));
  clipped = b.select(isSpike, limit, norm());
  if (spec.clip.max > 0) {
    Value most = b.cast(control("control/clip_max", spec.clip.max), b.getF64Type());
    clipped = b.select(b.compare(clipped, "gt", most), most, clipped);
  }
  Value isClipped = b.compare(clipped, "lt", norm());
  Value factor = b.select(isClipped, b.div(clipped, b.shift(norm(), leastNorm)), one);
  return b.cast(factor, b.getF32Type());
}

Value GradientClip::outlierLimit(GraphBuilder &b) {
  return b.scale(history().mean, spec.spikes.factor);
}

Value GradientClip::isUsual(Value finite) {
  GraphBuilder b = at("outliers");
  const History &h = history();
  double infinity = std::numeric_limits<double>::infinity();
  Value isFinite = b.compare(norm(), "lt", b.splatLike(norm(), infinity));
  Value isLarge =
      b.make<graph::AndOp>(h.isWarm, b.compare(norm(), "gt", outlierLimit(b)));
  Value usual = b.make<graph::AndOp>(isFinite, b.make<graph::NotOp>(isLarge));
  outlier = b.make<graph::NotOp>(usual);
  if (finite)
    outlier = b.make<graph::AndOp>(outlier, finite);
  auto skipped = state.declare(
      "scale/norm/outliers", RankedTensorType::get({}, builder.getI64Type()), "control");
  Value count = reads.read(skipped);
  b.create<graph::WriteOp>(skipped.getSymName(),
                           b.add(count, b.cast(outlier, builder.getI64Type())));
  return usual;
}

/// What was clipped, or judged an outlier, counts as the bound it was held against, so
/// that a norm that stays larger is soon no outlier. Of norms that are infinite or NaN
/// nothing is kept. The first ones have equal weight.
void GradientClip::remember(Value finite) {
  if (!past)
    return;
  GraphBuilder b = at("norm");
  const History &h = *past;
  Value value = clipped ? clipped : norm();
  if (outlier) {
    Value limit = outlierLimit(b);
    value = b.select(b.make<graph::AndOp>(h.isWarm, b.compare(value, "gt", limit)), limit,
                     value);
  }
  double infinity = std::numeric_limits<double>::infinity();
  Value counts = b.compare(norm(), "lt", b.splatLike(norm(), infinity));
  if (finite)
    counts = b.make<graph::AndOp>(counts, finite);
  double alpha = spec.clip.kind == "zclip" ? spec.clip.alpha : spec.spikes.alpha;
  Value next = b.add(h.count, b.splatLike(h.count, 1));
  Value d = b.sub(value, h.mean), n = b.cast(next, b.getF64Type());
  Value firstMean = b.add(h.mean, b.div(d, n));
  Value firstVariance =
      b.add(h.variance, b.div(b.sub(b.mul(d, b.sub(value, firstMean)), h.variance), n));
  Value mean = b.add(h.mean, b.scale(d, 1 - alpha));
  Value variance = b.scale(b.add(h.variance, b.scale(b.square(d), 1 - alpha)), alpha);
  auto write = [&](graph::ParameterOp target, Value wanted, Value old) {
    b.create<graph::WriteOp>(target.getSymName(), b.select(counts, wanted, old));
  };
  write(h.meanState, b.select(h.isWarm, mean, firstMean), h.mean);
  write(h.varianceState, b.select(h.isWarm, variance, firstVariance), h.variance);
  write(h.countState, next, h.count);
}

// --- results

/// Positions of parameters by their first use in the forward part.
static llvm::StringMap<int64_t> depths(func::FuncOp entry) {
  auto module = entry->getParentOfType<ModuleOp>();
  if (auto micro = module.lookupSymbol<func::FuncOp>("micro"))
    entry = micro;
  llvm::DenseMap<Operation *, int64_t> numbers;
  entry.walk([&](Operation *op) { numbers[op] = int64_t(numbers.size()); });
  llvm::StringMap<int64_t> result;
  entry.walk([&](graph::ReadOp read) {
    int64_t first = std::numeric_limits<int64_t>::max();
    for (Operation *user : read->getUsers())
      first = std::min(first, numbers.lookup(user));
    result[read.getSymbol()] = first;
  });
  return result;
}

std::vector<NamedValue> GradientClip::results(func::FuncOp entry) {
  GraphBuilder b = at("norm");
  auto f32 = [&](Value x) { return b.cast(x, b.getF32Type()); };
  std::vector<NamedValue> named{{"grad_norm", f32(norm())}};
  if (outlier)
    named.push_back({"outlier", b.cast(outlier, b.getI64Type())});
  if (groups.size() > 1)
    for (const Group &group : groups)
      named.push_back({"group_norm/" + group.name, f32(normOf(b, group.members))});
  llvm::StringMap<int64_t> depth = depths(entry);
  std::vector<std::pair<int64_t, size_t>> order; // depth, index
  for (size_t i = 0; i < gradients.size(); ++i) {
    auto found = depth.find(gradients[i].parameter.getSymName());
    order.push_back({found == depth.end() ? -1 : found->second, i});
  }
  llvm::sort(order);
  for (auto [unused, i] : order) {
    graph::ParameterOp parameter = gradients[i].parameter;
    named.push_back(
        {"grad_squares/" + modelName(parameter.getSymName()).str(), squares[i]});
  }
  llvm::append_range(named, factors);
  return named;
}

} // namespace sluice
