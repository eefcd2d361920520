// Convolutions and their adjoints: inference, gradients, and evaluation as products with
// gathered patches.
#include "ir/graph/GraphBuilder.h"
#include "ir/graph/Interpreter.h"
#include "ir/graph/MatrixLoops.h"
#include "ir/graph/Shapes.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace sluice::graph;

namespace {
using Sizes = ArrayRef<int64_t>;

// --- geometry

/// The attributes that the three operations share.
struct Geometry {
  Sizes strides, dilations, padsBegin, padsEnd;
  int64_t groups;
  template <class OpOrAdaptor>
  explicit Geometry(OpOrAdaptor op)
      : strides(op.getStrides()), dilations(op.getDilations()),
        padsBegin(op.getPadsBegin()), padsEnd(op.getPadsEnd()), groups(op.getGroups()) {}

  LogicalResult check(StringRef op, std::optional<Location> loc, int64_t spatial) const {
    if (spatial < 1 || spatial > 3)
      return emitOptionalError(loc, "'", op, "' has ", spatial,
                               " spatial dimensions, expected 1 to 3");
    if (groups < 1)
      return emitOptionalError(loc, "'groups' of '", op, "' is ", groups,
                               ", expected at least 1");
    struct Entry {
      StringRef name;
      Sizes list;
      int64_t least;
    };
    for (const Entry &entry :
         {Entry{"strides", strides, 1}, Entry{"dilations", dilations, 1},
          Entry{"pads_begin", padsBegin, 0}, Entry{"pads_end", padsEnd, 0}})
      if (failed(checkLength(op, loc, entry.name, entry.list, spatial)) ||
          failed(checkAtLeast(op, loc, entry.name, entry.list, entry.least)))
        return failure();
    return success();
  }

  /// Spatial shape of y, or an error where a window does not fit.
  FailureOr<SmallVector<int64_t>> output(StringRef op, std::optional<Location> loc,
                                         Sizes input, Sizes kernel) const {
    SmallVector<int64_t> sizes;
    for (size_t i = 0; i < input.size(); ++i) {
      const int64_t window = dilations[i] * (kernel[i] - 1) + 1;
      const int64_t padded = input[i] + padsBegin[i] + padsEnd[i];
      if (kernel[i] < 1 || padded < window)
        return emitOptionalError(loc, "the window of '", op, "' covers ", window,
                                 " elements in spatial dimension ", i,
                                 ", expected 1 to the padded size ", padded);
      sizes.push_back((padded - window) / strides[i] + 1);
    }
    return sizes;
  }
};

Sizes spatialOf(Sizes shape) { return shape.drop_front(2); }

/// The operand is [dimension 0, dimension 1, spatial...] of the rank expected.
LogicalResult checkRank(StringRef op, std::optional<Location> loc, RankedTensorType type,
                        unsigned index, int64_t rank) {
  if (type.getRank() == rank)
    return success();
  return emitOptionalError(loc, "operand ", index, " of '", op, "' has ", type.getRank(),
                           " dimensions, expected ", rank);
}

LogicalResult checkSize(StringRef op, std::optional<Location> loc, unsigned operand,
                        int64_t dimension, int64_t size, int64_t expected,
                        const Twine &why) {
  if (size == expected)
    return success();
  return emitOptionalError(loc, "operand ", operand, " of '", op, "' has ", size,
                           " elements in dimension ", dimension, ", expected ", expected,
                           " (", why.str(), ")");
}

/// The number of output channels splits into the groups.
LogicalResult checkGroups(StringRef op, std::optional<Location> loc, int64_t channels,
                          int64_t groups) {
  if (channels % groups == 0)
    return success();
  return emitOptionalError(loc, "'groups' of '", op, "' is ", groups,
                           ", expected a divisor of the ", channels, " channels");
}

LogicalResult checkElements(StringRef op, std::optional<Location> loc,
                            RankedTensorType first, RankedTensorType second) {
  if (first.getElementType() == second.getElementType())
    return success();
  return emitOptionalError(loc, "operand 1 of '", op, "' has element type ",
                           second.getElementType(), ", expected ", first.getElementType(),
                           " (as operand 0)");
}

// --- patches

/// For every kernel position and output position the spatial index of x, or -1 in the
/// padding.
struct PatchMap {
  int64_t positions, outputs;
  std::vector<int64_t> index; // [positions, outputs]

  PatchMap(const Geometry &g, Sizes input, Sizes kernel, Sizes output)
      : positions(product(kernel)), outputs(product(output)) {
    index.reserve(positions * outputs);
    SmallVector<int64_t> k(kernel.size(), 0);
    for (int64_t p = 0; p < positions; ++p, advance(k, kernel)) {
      SmallVector<int64_t> o(output.size(), 0);
      for (int64_t i = 0; i < outputs; ++i, advance(o, output))
        index.push_back(at(g, input, k, o));
    }
  }

  static void advance(MutableArrayRef<int64_t> position, Sizes shape) {
    for (size_t d = shape.size(); d-- > 0;) {
      if (++position[d] < shape[d])
        return;
      position[d] = 0;
    }
  }
  static int64_t at(const Geometry &g, Sizes input, Sizes k, Sizes o) {
    int64_t offset = 0;
    for (size_t d = 0; d < input.size(); ++d) {
      const int64_t x = o[d] * g.strides[d] + k[d] * g.dilations[d] - g.padsBegin[d];
      if (x < 0 || x >= input[d])
        return -1;
      offset = offset * input[d] + x;
    }
    return offset;
  }
};

/// Sizes of one convolution: x [n, groups * c, input], w [groups * m, c, positions], y
/// [n, groups * m, outputs].
struct Extent {
  int64_t n, groups, c, m, input;
  PatchMap map;
  Extent(const Geometry &g, Sizes x, Sizes w, Sizes y)
      : n(x[0]), groups(g.groups), c(w[1]), m(w[0] / g.groups),
        input(product(spatialOf(x))), map(g, spatialOf(x), spatialOf(w), spatialOf(y)) {}
  int64_t depth() const { return c * map.positions; }
  int64_t outputs() const { return map.outputs; }
  int64_t xOffset(int64_t sample, int64_t group) const {
    return (sample * groups + group) * c * input;
  }
  int64_t yOffset(int64_t sample, int64_t group) const {
    return (sample * groups + group) * m * map.outputs;
  }
  int64_t wOffset(int64_t group) const { return group * m * depth(); }
};

/// patches [c * positions, outputs] of one sample and group.
void gatherPatches(const Extent &e, const double *x, std::vector<double> &patches) {
  patches.resize(e.depth() * e.outputs());
  double *to = patches.data();
  for (int64_t channel = 0; channel < e.c; ++channel, x += e.input)
    for (int64_t from : e.map.index)
      *to++ = from < 0 ? 0.0 : x[from];
}

/// Adjoint of `gatherPatches`.
void addPatches(const Extent &e, const std::vector<double> &patches, double *x) {
  const double *from = patches.data();
  for (int64_t channel = 0; channel < e.c; ++channel, x += e.input)
    for (int64_t to : e.map.index) {
      if (to >= 0)
        x[to] += *from;
      ++from;
    }
}

/// [rows, columns] -> [columns, rows]
std::vector<double> transposed(const double *from, int64_t rows, int64_t columns) {
  std::vector<double> result(rows * columns);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      result[c * rows + r] = from[r * columns + c];
  return result;
}

LogicalResult roundResult(Evaluation &eval) {
  HostTensor &y = eval.result(0);
  for (double &value : y.reals)
    value = toNarrow(eval.round(value), y.elementType);
  return success();
}

bool wanted(const GradientContext &context, unsigned operand) {
  return context.cotangent() && context.needs(operand);
}

Sizes spatialShape(Value value) { return spatialOf(tensorType(value).getShape()); }

double convolutionFlops(Value y, Sizes w) {
  return 2.0 * tensorType(y).getNumElements() * product(w.drop_front(1));
}
} // namespace

// --- inference

LogicalResult ConvOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                       Adaptor adaptor, SmallVectorImpl<Type> &types) {
  StringRef op = getOperationName();
  RankedTensorType x = operandType(op, loc, adaptor.getOperands(), 0);
  RankedTensorType w = operandType(op, loc, adaptor.getOperands(), 1);
  Geometry g(adaptor);
  if (!x || !w || failed(g.check(op, loc, x.getRank() - 2)) ||
      failed(checkRank(op, loc, w, 1, x.getRank())) ||
      failed(checkElements(op, loc, x, w)) ||
      failed(checkGroups(op, loc, w.getDimSize(0), g.groups)) ||
      failed(checkSize(op, loc, 0, 1, x.getDimSize(1), w.getDimSize(1) * g.groups,
                       "groups times dimension 1 of operand 1")))
    return failure();
  auto output = g.output(op, loc, spatialOf(x.getShape()), spatialOf(w.getShape()));
  if (failed(output))
    return failure();
  SmallVector<int64_t> shape{x.getDimSize(0), w.getDimSize(0)};
  shape.append(*output);
  types.push_back(RankedTensorType::get(
      shape, productType(x.getElementType(), adaptor.getRoundTo())));
  return success();
}

/// The spatial shape of dy is what `conv` gives for an input and a kernel of these sizes.
static LogicalResult checkOutput(StringRef op, std::optional<Location> loc,
                                 const Geometry &g, unsigned index, RankedTensorType dy,
                                 Sizes input, Sizes kernel) {
  auto output = g.output(op, loc, input, kernel);
  if (failed(output))
    return failure();
  for (size_t i = 0; i < output->size(); ++i)
    if (failed(checkSize(op, loc, index, i + 2, dy.getDimSize(i + 2), (*output)[i],
                         "the output size of the convolution with 'shape'")))
      return failure();
  return success();
}

LogicalResult ConvInputGradOp::inferReturnTypes(MLIRContext *,
                                                std::optional<Location> loc,
                                                Adaptor adaptor,
                                                SmallVectorImpl<Type> &types) {
  StringRef op = getOperationName();
  RankedTensorType dy = operandType(op, loc, adaptor.getOperands(), 0);
  RankedTensorType w = operandType(op, loc, adaptor.getOperands(), 1);
  Geometry g(adaptor);
  if (!dy || !w || failed(g.check(op, loc, dy.getRank() - 2)) ||
      failed(checkRank(op, loc, w, 1, dy.getRank())) ||
      failed(checkElements(op, loc, dy, w)) ||
      failed(checkLength(op, loc, "shape", adaptor.getShape(), dy.getRank() - 2)) ||
      failed(checkGroups(op, loc, w.getDimSize(0), g.groups)) ||
      failed(checkSize(op, loc, 0, 1, dy.getDimSize(1), w.getDimSize(0),
                       "dimension 0 of operand 1")) ||
      failed(checkOutput(op, loc, g, 0, dy, adaptor.getShape(), spatialOf(w.getShape()))))
    return failure();
  SmallVector<int64_t> shape{dy.getDimSize(0), w.getDimSize(1) * g.groups};
  llvm::append_range(shape, adaptor.getShape());
  types.push_back(RankedTensorType::get(
      shape, productType(dy.getElementType(), adaptor.getRoundTo())));
  return success();
}

LogicalResult ConvWeightGradOp::inferReturnTypes(MLIRContext *,
                                                 std::optional<Location> loc,
                                                 Adaptor adaptor,
                                                 SmallVectorImpl<Type> &types) {
  StringRef op = getOperationName();
  RankedTensorType x = operandType(op, loc, adaptor.getOperands(), 0);
  RankedTensorType dy = operandType(op, loc, adaptor.getOperands(), 1);
  Geometry g(adaptor);
  if (!x || !dy || failed(g.check(op, loc, x.getRank() - 2)) ||
      failed(checkRank(op, loc, dy, 1, x.getRank())) ||
      failed(checkElements(op, loc, x, dy)) ||
      failed(checkLength(op, loc, "shape", adaptor.getShape(), x.getRank() - 2)) ||
      failed(checkGroups(op, loc, x.getDimSize(1), g.groups)) ||
      failed(checkGroups(op, loc, dy.getDimSize(1), g.groups)) ||
      failed(checkSize(op, loc, 1, 0, dy.getDimSize(0), x.getDimSize(0),
                       "dimension 0 of operand 0")) ||
      failed(checkOutput(op, loc, g, 1, dy, spatialOf(x.getShape()), adaptor.getShape())))
    return failure();
  SmallVector<int64_t> shape{dy.getDimSize(1), x.getDimSize(1) / g.groups};
  llvm::append_range(shape, adaptor.getShape());
  types.push_back(RankedTensorType::get(
      shape, productType(x.getElementType(), adaptor.getRoundTo())));
  return success();
}

// --- evaluation

LogicalResult ConvOp::evaluate(Evaluation &eval) {
  const HostTensor &x = eval.operand(0), &w = eval.operand(1);
  HostTensor &y = eval.result(0);
  Extent e(Geometry(*this), x.shape, w.shape, y.shape);
  std::vector<double> patches;
  for (int64_t n = 0; n < e.n; ++n)
    for (int64_t g = 0; g < e.groups; ++g) {
      gatherPatches(e, x.reals.data() + e.xOffset(n, g), patches);
      multiplyAccumulate(y.reals.data() + e.yOffset(n, g), w.reals.data() + e.wOffset(g),
                         patches.data(), e.m, e.outputs(), e.depth());
    }
  return roundResult(eval);
}

LogicalResult ConvInputGradOp::evaluate(Evaluation &eval) {
  const HostTensor &dy = eval.operand(0), &w = eval.operand(1);
  HostTensor &x = eval.result(0);
  Extent e(Geometry(*this), x.shape, w.shape, dy.shape);
  for (int64_t g = 0; g < e.groups; ++g) {
    std::vector<double> columns =
        transposed(w.reals.data() + e.wOffset(g), e.m, e.depth());
    for (int64_t n = 0; n < e.n; ++n) {
      std::vector<double> patches(e.depth() * e.outputs());
      multiplyAccumulate(patches.data(), columns.data(),
                         dy.reals.data() + e.yOffset(n, g), e.depth(), e.outputs(), e.m);
      addPatches(e, patches, x.reals.data() + e.xOffset(n, g));
    }
  }
  return roundResult(eval);
}

LogicalResult ConvWeightGradOp::evaluate(Evaluation &eval) {
  const HostTensor &x = eval.operand(0), &dy = eval.operand(1);
  HostTensor &w = eval.result(0);
  Extent e(Geometry(*this), x.shape, w.shape, dy.shape);
  std::vector<double> patches;
  for (int64_t n = 0; n < e.n; ++n)
    for (int64_t g = 0; g < e.groups; ++g) {
      gatherPatches(e, x.reals.data() + e.xOffset(n, g), patches);
      std::vector<double> rows = transposed(patches.data(), e.depth(), e.outputs());
      multiplyAccumulate(w.reals.data() + e.wOffset(g), dy.reals.data() + e.yOffset(n, g),
                         rows.data(), e.m, e.depth(), e.outputs());
    }
  return roundResult(eval);
}

// --- gradients: all three are one trilinear form in x, w and y, so each is the others'
// adjoint

LogicalResult ConvOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  if (failed(expectWideProduct(*this, getX())))
    return failure();
  GraphBuilder b(getLoc(), builder);
  Value dy = context.cotangent();
  if (wanted(context, 0))
    context.set(0, b.make<ConvInputGradOp>(dy, getW(), spatialShape(getX()), getStrides(),
                                           getDilations(), getPadsBegin(), getPadsEnd(),
                                           getGroups()));
  if (wanted(context, 1))
    context.set(1, b.make<ConvWeightGradOp>(getX(), dy, spatialShape(getW()),
                                            getStrides(), getDilations(), getPadsBegin(),
                                            getPadsEnd(), getGroups()));
  return success();
}

LogicalResult ConvInputGradOp::buildGradient(OpBuilder &builder,
                                             GradientContext &context) {
  if (failed(expectWideProduct(*this, getDy())))
    return failure();
  GraphBuilder b(getLoc(), builder);
  Value dx = context.cotangent();
  if (wanted(context, 0))
    context.set(0, b.make<ConvOp>(dx, getW(), getStrides(), getDilations(),
                                  getPadsBegin(), getPadsEnd(), getGroups()));
  if (wanted(context, 1))
    context.set(1, b.make<ConvWeightGradOp>(dx, getDy(), spatialShape(getW()),
                                            getStrides(), getDilations(), getPadsBegin(),
                                            getPadsEnd(), getGroups()));
  return success();
}

LogicalResult ConvWeightGradOp::buildGradient(OpBuilder &builder,
                                              GradientContext &context) {
  if (failed(expectWideProduct(*this, getX())))
    return failure();
  GraphBuilder b(getLoc(), builder);
  Value dw = context.cotangent();
  if (wanted(context, 0))
    context.set(0, b.make<ConvInputGradOp>(getDy(), dw, spatialShape(getX()),
                                           getStrides(), getDilations(), getPadsBegin(),
                                           getPadsEnd(), getGroups()));
  if (wanted(context, 1))
    context.set(1, b.make<ConvOp>(getX(), dw, getStrides(), getDilations(),
                                  getPadsBegin(), getPadsEnd(), getGroups()));
  return success();
}

PrecisionKind ConvOp::precision() { return PrecisionKind::Product; }
PrecisionKind ConvInputGradOp::precision() { return PrecisionKind::Product; }
PrecisionKind ConvWeightGradOp::precision() { return PrecisionKind::Product; }

double ConvOp::flops() { return convolutionFlops(getY(), tensorType(getW()).getShape()); }
double ConvInputGradOp::flops() {
  return convolutionFlops(getDy(), tensorType(getW()).getShape());
}
double ConvWeightGradOp::flops() {
  return convolutionFlops(getDy(), tensorType(getY()).getShape());
}
