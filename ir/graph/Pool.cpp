// Pooling: maximum and mean of windows, and their adjoints.

#include "ir/graph/GraphBuilder.h"
#include "ir/graph/Interpreter.h"
#include "ir/graph/Shapes.h"

#include <algorithm>
#include <cmath>

using namespace mlir;

#define GET_OP_CLASSES
#include "ir/graph/Pool.cpp.inc"

namespace sluice::graph {

namespace {

/// The geometry all pooling operations share.
struct Window {
  ArrayRef<int64_t> kernel, strides, dilations, padsBegin, output;
  template <typename Op> static Window of(Op op) {
    return {op.getKernel(), op.getStrides(), op.getDilations(), op.getPadsBegin(),
            op.getOutput()};
  }
};

template <typename Adaptor>
LogicalResult checkWindow(Adaptor op, std::optional<Location> loc, StringRef name) {
  int64_t rank = op.getKernel().size();
  if (rank < 1 || rank > 3)
    return emitOptionalError(loc, "'", name, "' has ", rank,
                             " spatial dimensions, expected 1 to 3");
  return success(
      succeeded(checkLength(name, loc, "strides", op.getStrides(), rank)) &&
      succeeded(checkLength(name, loc, "dilations", op.getDilations(), rank)) &&
      succeeded(checkLength(name, loc, "pads_begin", op.getPadsBegin(), rank)) &&
      succeeded(checkLength(name, loc, "pads_end", op.getPadsEnd(), rank)) &&
      succeeded(checkLength(name, loc, "output", op.getOutput(), rank)) &&
      succeeded(checkAtLeast(name, loc, "kernel", op.getKernel(), 1)) &&
      succeeded(checkAtLeast(name, loc, "strides", op.getStrides(), 1)) &&
      succeeded(checkAtLeast(name, loc, "dilations", op.getDilations(), 1)) &&
      succeeded(checkAtLeast(name, loc, "pads_begin", op.getPadsBegin(), 0)) &&
      succeeded(checkAtLeast(name, loc, "pads_end", op.getPadsEnd(), 0)) &&
      succeeded(checkAtLeast(name, loc, "output", op.getOutput(), 0)));
}

/// `type` with its spatial dimensions replaced.
FailureOr<RankedTensorType> withSpatial(std::optional<Location> loc, StringRef name,
                                        Type type, ArrayRef<int64_t> spatial) {
  auto tensor = cast<RankedTensorType>(type);
  if (tensor.getRank() != static_cast<int64_t>(spatial.size()) + 2)
    return emitOptionalError(loc, "operand of '", name, "' has rank ", tensor.getRank(),
                             ", expected ", spatial.size() + 2);
  SmallVector<int64_t> shape{tensor.getDimSize(0), tensor.getDimSize(1)};
  shape.append(spatial.begin(), spatial.end());
  return RankedTensorType::get(shape, tensor.getElementType());
}

template <typename Adaptor>
LogicalResult inferPool(Adaptor op, std::optional<Location> loc, StringRef name,
                        Type operand, ArrayRef<int64_t> spatial,
                        SmallVectorImpl<Type> &results) {
  if (failed(checkWindow(op, loc, name)))
    return failure();
  auto type = withSpatial(loc, name, operand, spatial);
  if (failed(type))
    return failure();
  results.push_back(*type);
  return success();
}

/// Calls `visit(element of x or -1 for padding)` for each position of a window, in
/// row-major order.
template <typename Visit>
void forEachPosition(const Window &w, ArrayRef<int64_t> xSpatial,
                     ArrayRef<int64_t> corner, Visit visit) {
  int64_t rank = w.kernel.size();
  for (int64_t k = 0, e = product(w.kernel); k < e; ++k) {
    int64_t rest = k, at = 0, stride = 1;
    bool inside = true;
    for (int64_t d = rank; d-- > 0; rest /= w.kernel[d]) {
      int64_t position =
          corner[d] * w.strides[d] - w.padsBegin[d] + rest % w.kernel[d] * w.dilations[d];
      inside = inside && position >= 0 && position < xSpatial[d];
      at += position * stride;
      stride *= xSpatial[d];
    }
    visit(inside ? at : -1);
  }
}

/// Calls `visit(window's element of y, first element of the window's plane of x, its
/// corner)`, in row-major order.
template <typename Visit>
void forEachWindow(const Window &w, int64_t planes, ArrayRef<int64_t> xSpatial,
                   Visit visit) {
  int64_t windows = product(w.output), rank = w.output.size();
  SmallVector<int64_t> corner(rank);
  for (int64_t y = 0; y < planes * windows; ++y) {
    int64_t rest = y % windows;
    for (int64_t d = rank; d-- > 0; rest /= w.output[d])
      corner[d] = rest % w.output[d];
    visit(y, y / windows * product(xSpatial), ArrayRef<int64_t>(corner));
  }
}

int64_t planesOf(const HostTensor &x) { return x.shape[0] * x.shape[1]; }
ArrayRef<int64_t> spatialOf(const HostTensor &x) {
  return ArrayRef<int64_t>(x.shape).drop_front(2);
}

/// The first largest element of a window inside x (a NaN wins), or -1 where it lies in
/// the padding altogether.
int64_t argMax(const Window &w, const HostTensor &x, int64_t plane,
               ArrayRef<int64_t> corner) {
  int64_t best = -1;
  forEachPosition(w, spatialOf(x), corner, [&](int64_t at) {
    if (at < 0 || (best >= 0 && std::isnan(x.reals[best])))
      return;
    double value = x.reals[plane + at];
    if (best < 0 || value > x.reals[best] || std::isnan(value))
      best = plane + at;
  });
  return best;
}

/// What the mean of a window divides by.
int64_t divisor(const Window &w, ArrayRef<int64_t> padsEnd, ArrayRef<int64_t> xSpatial,
                ArrayRef<int64_t> corner, bool countPadding) {
  int64_t count = 1;
  for (size_t d = 0; d < w.kernel.size(); ++d) {
    int64_t low = countPadding ? -w.padsBegin[d] : 0;
    int64_t high = xSpatial[d] + (countPadding ? padsEnd[d] : 0), along = 0;
    for (int64_t k = 0; k < w.kernel[d]; ++k) {
      int64_t position = corner[d] * w.strides[d] - w.padsBegin[d] + k * w.dilations[d];
      along += position >= low && position < high;
    }
    count *= along;
  }
  return std::max<int64_t>(count, 1);
}

double windowFlops(Value y, ArrayRef<int64_t> kernel) {
  return static_cast<double>(tensorType(y).getNumElements()) * product(kernel);
}

} // namespace

LogicalResult MaxPoolOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                          Adaptor adaptor,
                                          SmallVectorImpl<Type> &results) {
  return inferPool(adaptor, loc, "max_pool", adaptor.getX().getType(),
                   adaptor.getOutput(), results);
}

LogicalResult MaxPoolOp::evaluate(Evaluation &eval) {
  const HostTensor &x = eval.operand(0);
  Window w = Window::of(*this);
  forEachWindow(w, planesOf(x), spatialOf(x),
                [&](int64_t y, int64_t plane, ArrayRef<int64_t> corner) {
                  int64_t best = argMax(w, x, plane, corner);
                  eval.result(0).reals[y] = best < 0 ? -HUGE_VAL : x.reals[best];
                });
  return success();
}

PrecisionKind MaxPoolOp::precision() { return PrecisionKind::Moves; }
double MaxPoolOp::flops() { return windowFlops(getY(), getKernel()); }

LogicalResult MaxPoolOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  context.set(0, builder.create<MaxPoolGradOp>(
                     getLoc(), getX(), context.cotangent(), getKernel(), getStrides(),
                     getDilations(), getPadsBegin(), getPadsEnd(), getOutput()));
  return success();
}

LogicalResult MaxPoolGradOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                              Adaptor adaptor,
                                              SmallVectorImpl<Type> &results) {
  if (failed(checkWindow(adaptor, loc, "max_pool_grad")))
    return failure();
  auto dy =
      withSpatial(loc, "max_pool_grad", adaptor.getX().getType(), adaptor.getOutput());
  if (failed(dy))
    return failure();
  auto given = cast<RankedTensorType>(adaptor.getDy().getType());
  Type element = given.getElementType();
  // Only positions come from x: it may be stored otherwise than dy, whose sums dx is.
  bool alike = sumType(dy->getElementType()) == sumType(element);
  if (given != dy->clone(element) || !alike)
    return emitOptionalError(loc, "dy of 'max_pool_grad' has type ", given, ", expected ",
                             *dy);
  results.push_back(
      cast<RankedTensorType>(adaptor.getX().getType()).clone(sumType(element)));
  return success();
}

LogicalResult MaxPoolGradOp::evaluate(Evaluation &eval) {
  const HostTensor &x = eval.operand(0), &dy = eval.operand(1);
  Window w = Window::of(*this);
  forEachWindow(w, planesOf(x), spatialOf(x),
                [&](int64_t y, int64_t plane, ArrayRef<int64_t> corner) {
                  int64_t best = argMax(w, x, plane, corner);
                  if (best >= 0)
                    eval.result(0).reals[best] =
                        eval.round(eval.result(0).reals[best] + dy.reals[y]);
                });
  return success();
}

double MaxPoolGradOp::flops() { return windowFlops(getDy(), getKernel()); }

LogicalResult AvgPoolOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                          Adaptor adaptor,
                                          SmallVectorImpl<Type> &results) {
  return inferPool(adaptor, loc, "avg_pool", adaptor.getX().getType(),
                   adaptor.getOutput(), results);
}

LogicalResult AvgPoolOp::evaluate(Evaluation &eval) {
  const HostTensor &x = eval.operand(0);
  Window w = Window::of(*this);
  forEachWindow(w, planesOf(x), spatialOf(x),
                [&](int64_t y, int64_t plane, ArrayRef<int64_t> corner) {
                  double sum = 0;
                  forEachPosition(w, spatialOf(x), corner, [&](int64_t at) {
                    sum += at < 0 ? 0 : x.reals[plane + at];
                  });
                  int64_t count = divisor(w, getPadsEnd(), spatialOf(x), corner,
                                          getCountIncludePad());
                  eval.result(0).reals[y] = eval.round(sum / count);
                });
  return success();
}

double AvgPoolOp::flops() { return windowFlops(getY(), getKernel()); }

LogicalResult AvgPoolOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  context.set(0, builder.create<AvgPoolGradOp>(
                     getLoc(), context.cotangent(), getKernel(), getStrides(),
                     getDilations(), getPadsBegin(), getPadsEnd(), getOutput(),
                     getCountIncludePad(), tensorType(getX()).getShape().drop_front(2)));
  return success();
}

LogicalResult AvgPoolGradOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                              Adaptor adaptor,
                                              SmallVectorImpl<Type> &results) {
  if (failed(checkLength("avg_pool_grad", loc, "shape", adaptor.getShape(),
                         adaptor.getKernel().size())))
    return failure();
  auto dy = cast<RankedTensorType>(adaptor.getDy().getType());
  if (dy.getShape().drop_front(std::min<int64_t>(2, dy.getRank())) != adaptor.getOutput())
    return emitOptionalError(loc, "dy of 'avg_pool_grad' has type ", dy,
                             ", expected the spatial shape ",
                             listText(adaptor.getOutput()));
  return inferPool(adaptor, loc, "avg_pool_grad", dy, adaptor.getShape(), results);
}

LogicalResult AvgPoolGradOp::evaluate(Evaluation &eval) {
  const HostTensor &dy = eval.operand(0);
  std::vector<double> &dx = eval.result(0).reals;
  Window w = Window::of(*this);
  ArrayRef<int64_t> spatial = getShape();
  forEachWindow(
      w, planesOf(dy), spatial, [&](int64_t y, int64_t plane, ArrayRef<int64_t> corner) {
        int64_t count = divisor(w, getPadsEnd(), spatial, corner, getCountIncludePad());
        double share = dy.reals[y] / count;
        forEachPosition(w, spatial, corner, [&](int64_t at) {
          if (at >= 0)
            dx[plane + at] = eval.round(dx[plane + at] + share);
        });
      });
  return success();
}

double AvgPoolGradOp::flops() { return windowFlops(getDy(), getKernel()); }

LogicalResult AvgPoolGradOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  context.set(0,
              builder.create<AvgPoolOp>(getLoc(), context.cotangent(), getKernel(),
                                        getStrides(), getDilations(), getPadsBegin(),
                                        getPadsEnd(), getOutput(), getCountIncludePad()));
  return success();
}

} // namespace sluice::graph
