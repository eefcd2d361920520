// Operators whose result follows from shapes and attributes alone.
#include "frontend/onnx/Limits.h"
#include "frontend/onnx/OpTable.h"

#include <cmath>

namespace sluice::frontend {

namespace {

Value scalarReal(Emitter &e, double value) { return e.splat({}, e.f32(), value); }

Value realList(Emitter &e, llvm::ArrayRef<float> values) {
  auto type = mlir::RankedTensorType::get({static_cast<int64_t>(values.size())}, e.f32());
  return e.constant(mlir::ElementsAttr(mlir::DenseElementsAttr::get(type, values)));
}

LogicalResult importConstant(Node &n) {
  Emitter &e = n.e;
  if (n.hasAttr("value_int")) {
    auto type = mlir::RankedTensorType::get({}, e.i64Type());
    return n.out(e.constant(
        mlir::ElementsAttr(mlir::DenseElementsAttr::get(type, {n.i("value_int", 0)}))));
  }
  if (auto list = n.is("value_ints"))
    return n.out(e.ints(*list));
  if (n.hasAttr("value_float"))
    return n.out(scalarReal(e, n.f("value_float", 0)));
  if (auto *list = n.attribute("value_floats"))
    return n.out(
        realList(e, llvm::ArrayRef<float>(list->floats().data(), list->floats_size())));
  if (!n.wants(0))
    return n.fail("has no result");
  for (auto &attribute : *n.proto.mutable_attribute()) {
    if (attribute.name() != "value" || !attribute.has_t())
      continue;
    std::string error;
    auto value = n.importer.reader.attribute(*attribute.mutable_t(), error);
    if (!value)
      return n.fail(error);
    const std::string &name = n.proto.output(0);
    bool real = mlir::isa<mlir::FloatType>(value.getElementType());
    if (real && n.importer.isPromoted(name))
      return n.out(n.importer.promoted(n.scope, name, attribute.t(), value));
    if (real && value.size() > 1 && n.importer.isWeight(n.scope, name))
      n.importer.note("constants",
                      "'" + name + "' (" + shapeText(value.getShapedType().getShape()) +
                          ") is a weight inside a Constant node and is not trained; "
                          "`promote: [" +
                          name + "]` in the spec (globs) trains it");
    return n.out(0, e.constant(value), attribute.t().data_type());
  }
  return n.fail("has no value of a supported kind");
}

LogicalResult importConstantOfShape(Node &n) {
  auto shape = n.ints(0);
  if (!shape)
    return failure();
  graph::HostTensor value =
      graph::HostTensor::zeros(mlir::RankedTensorType::get({1}, n.e.f32()));
  for (auto &attribute : *n.proto.mutable_attribute()) {
    if (attribute.name() != "value" || !attribute.has_t())
      continue;
    std::string error;
    auto tensor = n.importer.reader.host(*attribute.mutable_t(), error);
    if (!tensor || tensor->size() != 1)
      return n.fail(tensor ? "attribute 'value' does not have one element" : error);
    value = *tensor;
  }
  if (llvm::any_of(*shape, [](int64_t d) { return d < 0; }) ||
      elementCount(*shape) > maxElements || static_cast<int64_t>(shape->size()) > maxRank)
    return n.fail("the shape " + shapeText(*shape) + " is not valid");
  auto type = mlir::RankedTensorType::get(*shape, value.elementType);
  double number = value.isReal() ? value.reals[0] : double(value.integers[0]);
  const std::string &name = n.proto.output(0);
  if (value.isReal() && n.importer.isWeight(n.scope, name)) {
    Role role = n.importer.roleOf(n.scope, name, type.getRank());
    n.importer.note("ConstantOfShape",
                    "weights made by ConstantOfShape are parameters named "
                    "by its output");
    if (role != Role::Constant)
      return n.out(n.importer.parameter(n.scope, name, type, role, {}, number));
  }
  if (!value.isReal()) { // all 64 bits
    auto attribute = n.e.builder.getIntegerAttr(value.elementType, value.integers[0]);
    return n.out(n.e.constant(mlir::ElementsAttr(
        mlir::DenseElementsAttr::get(type, llvm::ArrayRef<mlir::Attribute>(attribute)))));
  }
  return n.out(n.e.splat(*shape, value.elementType, number));
}

LogicalResult importShape(Node &n) {
  Value x = n.in(0);
  if (!x)
    return failure();
  int64_t rank = rankOf(x), start = n.i("start", 0), end = n.i("end", rank);
  auto limit = [rank](int64_t i) {
    return std::clamp<int64_t>(i < 0 ? i + rank : i, 0, rank);
  };
  start = limit(start), end = limit(end);
  return n.out(n.e.ints(shapeOf(x).slice(start, std::max<int64_t>(end - start, 0))));
}
LogicalResult importSize(Node &n) {
  Value x = n.in(0);
  return x ? n.out(n.e.splat({}, n.e.i64Type(), double(elementCount(shapeOf(x)))))
           : failure();
}

LogicalResult importRange(Node &n) {
  Emitter &e = n.e;
  auto start = n.constant(0), limit = n.constant(1), delta = n.constant(2);
  if (!start || !limit || !delta || start->size() != 1 || limit->size() != 1 ||
      delta->size() != 1)
    return failure();
  auto number = [](const graph::HostTensor &t) {
    return t.isReal() ? t.reals[0] : double(t.integers[0]);
  };
  double from = number(*start), by = number(*delta);
  double count = by == 0 ? NAN : std::max(0.0, std::ceil((number(*limit) - from) / by));
  if (!(count <= double(maxElements)))
    return n.fail("the range is not finite");
  int64_t size = static_cast<int64_t>(count);
  Value steps = e.cast(e.iota({size}, 0), start->elementType);
  return n.out(e.add(e.mul(steps, by), from));
}

LogicalResult importEyeLike(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  if (!x || rankOf(x) != 2)
    return n.fail("the operand is no matrix");
  Type type = n.hasAttr("dtype") ? elementType(e.context(), int32_t(n.i("dtype", 1)))
                                 : elementOf(x);
  if (!type)
    return n.fail("attribute 'dtype' is not supported");
  Value row = e.iota(shapeOf(x), 0), column = e.iota(shapeOf(x), 1);
  return n.out(e.cast(e.cmp(e.sub(column, row), double(n.i("k", 0)), "eq"), type));
}

LogicalResult importTrilu(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  int64_t k = 0;
  if (n.has(1)) {
    auto given = n.ints(1);
    if (!given || given->size() != 1)
      return failure();
    k = (*given)[0];
  }
  if (!x || rankOf(x) < 2)
    return n.fail("the operand needs a rank of 2 or more");
  auto matrix = shapeOf(x).take_back(2);
  Value diagonal = e.sub(e.iota(matrix, 1), e.iota(matrix, 0));
  Value kept = e.cmp(diagonal, double(k), n.i("upper", 1) ? "ge" : "le");
  return n.out(e.select(kept, x, e.like(x, 0)));
}

LogicalResult importOneHot(Node &n) {
  Emitter &e = n.e;
  Value indices = n.in(0), values = n.in(2);
  auto depth = n.constant(1);
  if (!indices || !values || !depth || depth->size() != 1)
    return failure();
  double size = depth->isReal() ? depth->reals[0] : double(depth->integers[0]);
  if (size < 0 || size > double(int64_t(1) << 31))
    return n.fail("the depth is out of range");
  auto axis = n.axis(n.i("axis", -1), rankOf(indices) + 1);
  if (!axis || elementCount(shapeOf(values)) != 2)
    return n.fail("expected two values, off and on");
  Value index = e.cast(indices, e.i64Type());
  index = e.select(e.cmp(index, 0, "lt"), e.add(index, size), index);
  Ints shape(shapeOf(indices));
  shape.insert(shape.begin() + *axis, static_cast<int64_t>(size));
  Value hit = e.cmp(e.iota(shape, *axis), e.unsqueeze(index, *axis), "eq");
  Value off = e.reshape(e.sliceAxis(values, 0, 0, 1), {});
  Value on = e.reshape(e.sliceAxis(values, 0, 1, 1), {});
  return n.out(e.select(hit, on, off));
}

/// Results whose size depends on data: only for data known now.
LogicalResult importNonZero(Node &n) {
  auto x = n.maybeConstant(0);
  if (!x)
    return n.fail("the number of elements that are not zero depends on data, and shapes "
                  "must be known when compiling; fix its operand by `values`, keep all "
                  "elements under a mask (Where), or a bounded number of them (TopK)");
  Ints rows;
  int64_t rank = x->shape.size(), found = 0;
  std::vector<Ints> index(std::max<int64_t>(rank, 1));
  for (int64_t i = 0, count = x->size(); i < count; ++i) {
    if (!(x->isReal() ? x->reals[i] != 0 : x->integers[i] != 0))
      continue;
    ++found;
    int64_t rest = i;
    for (int64_t d = rank; d-- > 0; rest /= x->shape[d])
      index[d].push_back(rest % x->shape[d]);
  }
  for (int64_t d = 0; d < rank; ++d)
    rows.append(index[d].begin(), index[d].end());
  return n.out(n.e.reshape(n.e.ints(rows), {rank, found}));
}
LogicalResult importCompress(Node &n) {
  Value x = n.in(0);
  auto condition = n.maybeConstant(1);
  if (!x || !condition)
    return n.fail(
        "the number of slices it keeps depends on data, and shapes must be known "
        "when compiling; fix its condition by `values`, keep all slices under a "
        "mask (Where), or a bounded number of them (TopK and Gather)");
  int64_t axis = 0;
  if (n.hasAttr("axis")) {
    auto given = n.axis(n.i("axis", 0), rankOf(x));
    if (!given)
      return failure();
    axis = *given;
  } else {
    x = n.e.reshape(x, {elementCount(shapeOf(x))});
  }
  Ints kept;
  for (auto [i, keep] : llvm::enumerate(condition->integers))
    if (keep && static_cast<int64_t>(i) < dimOf(x, axis))
      kept.push_back(i);
  return n.out(n.e.gather(x, n.e.ints(kept), axis));
}

} // namespace

void addConstant(OpTable &table) {
  table["Constant"] = importConstant;
  table["ConstantOfShape"] = importConstantOfShape;
  table["Shape"] = importShape;
  table["Size"] = importSize;
  table["Range"] = importRange;
  table["EyeLike"] = importEyeLike;
  table["Trilu"] = importTrilu;
  table["OneHot"] = importOneHot;
  table["NonZero"] = importNonZero;
  table["Compress"] = importCompress;
}

} // namespace sluice::frontend
