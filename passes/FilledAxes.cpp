#include "passes/FilledAxes.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace sluice {
namespace {

using Trace = FilledAxes::Trace;

ArrayRef<int64_t> shapeOf(Value value) { return graph::tensorType(value).getShape(); }

int64_t stepOf(ArrayRef<int64_t> shape, int64_t dimension) {
  int64_t step = 1;
  for (int64_t size : shape.drop_front(dimension + 1))
    step *= size;
  return step;
}

template <class List> void addOnce(List &list, const FilledAxis &axis) {
  if (!llvm::is_contained(list, axis))
    list.push_back(axis);
}

/// The dimension an axis lies in, and how many elements of it one position has.
struct Place {
  int64_t dimension = 0, inner = 1;
};

std::optional<Place> placeOf(const FilledAxis &axis, ArrayRef<int64_t> shape) {
  for (int64_t d = 0; d < int64_t(shape.size()); ++d) {
    int64_t step = stepOf(shape, d), whole = axis.stride * axis.size;
    if (step > 0 && step <= axis.stride && axis.stride % step == 0 &&
        whole <= step * shape[d] && step * shape[d] % whole == 0)
      return Place{d, axis.stride / step};
  }
  return std::nullopt;
}

/// What happens to the axes in one operation. A handler says where an axis of an operand
/// goes; nothing: the operation looks at all positions, and none is left.
class Transfer {
public:
  Transfer(Operation *op, const DenseMap<Value, Trace> &traces)
      : op(op), traces(traces), result(shapeOf(op->getResult(0))) {}

  Trace run() {
    for (Value operand : op->getOperands()) {
      auto found = traces.find(operand);
      if (found == traces.end())
        continue;
      isTouched = true;
      for (const FilledAxis &axis : found->second.taken)
        addOnce(out.taken, axis);
      if (found->second.lost && !out.lost)
        out.lost = found->second.lost;
    }
    if (isTouched && !out.lost)
      compute();
    return std::move(out);
  }

private:
  void compute() {
    if (isa<graph::Elementwise>(op)) {
      for (Value operand : op->getOperands())
        for (const FilledAxis &axis : axesOf(operand))
          addOnce(out.axes, axis);
      return;
    }
    llvm::TypeSwitch<Operation *>(op)
        .Case<graph::ReshapeOp>(
            [&](auto reshape) { llvm::append_range(out.axes, axesOf(reshape.getX())); })
        .Case<graph::TransposeOp, graph::BroadcastOp, graph::SliceOp, graph::PadOp,
              graph::ReduceOp, graph::ArgMaxOp, graph::CumSumOp>([&](auto one) {
          each(one.getX(), [&](const FilledAxis &a, Place p) { moved(one, a, p); });
        })
        .Case<graph::ConcatOp>([&](auto concat) { concatenated(concat); })
        .Case<graph::ContractOp>([&](auto contract) { contracted(contract); })
        .Case<graph::AttentionOp>([&](auto attention) { attended(attention); })
        .Case<graph::ConvOp>([&](auto conv) { windowed(conv, conv.getX(), 2); })
        .Case<graph::ConvInputGradOp>([&](auto conv) { transposed(conv); })
        .Case<graph::MaxPoolOp, graph::AvgPoolOp>(
            [&](auto pool) { windowed(pool, pool.getX(), 2); })
        .Case<graph::GatherOp>([&](auto gather) { gathered(gather); })
        .Case<graph::GatherElementsOp>([&](auto gather) { gatheredElements(gather); })
        .Case<graph::ScatterElementsOp>([&](auto scatter) {
          each(scatter.getX(), [&](const FilledAxis &a, Place p) { keep(a, p); });
          loseIfAny({scatter.getIndices(), scatter.getUpdates()});
        })
        .Default([&](Operation *) { loseIfAny(llvm::to_vector(op->getOperands())); });
  }

  ArrayRef<FilledAxis> axesOf(Value value) const {
    auto found = traces.find(value);
    return found == traces.end() ? ArrayRef<FilledAxis>() : found->second.axes;
  }

  void lose() { out.lost = op; }
  void loseIfAny(ArrayRef<Value> operands) {
    for (Value operand : operands)
      if (!axesOf(operand).empty())
        lose();
  }

  template <class Handle> void each(Value operand, Handle handle) {
    for (const FilledAxis &axis : axesOf(operand))
      if (auto place = placeOf(axis, shapeOf(operand)))
        handle(axis, *place);
      else
        lose();
  }

  void put(FilledAxis axis, int64_t dimension, int64_t inner) {
    axis.stride = inner * stepOf(result, dimension);
    addOnce(out.axes, axis);
  }
  void keep(const FilledAxis &axis, Place place) {
    put(axis, place.dimension, place.inner);
  }

  /// The axis fills its dimension, and has another number of positions now.
  void resized(FilledAxis axis, Place place, ArrayRef<int64_t> before, LengthStep step) {
    bool isWhole = place.inner == 1 && before[place.dimension] == axis.size;
    int64_t size = result[place.dimension];
    if (!isWhole || (axis.size * step.mul + step.add) / step.div != size)
      return lose();
    axis.size = size;
    if (!axis.steps.empty() && axis.steps.back().div == 1) {
      LengthStep &last = axis.steps.back();
      last = {last.mul * step.mul, last.add * step.mul + step.add, step.div};
    } else {
      axis.steps.push_back(step);
    }
    put(axis, place.dimension, 1);
  }

  void moved(graph::TransposeOp transpose, const FilledAxis &axis, Place place) {
    ArrayRef<int64_t> permutation = transpose.getPermutation();
    put(axis, llvm::find(permutation, place.dimension) - permutation.begin(),
        place.inner);
  }
  void moved(graph::BroadcastOp broadcast, const FilledAxis &axis, Place place) {
    int64_t added = result.size() - shapeOf(broadcast.getX()).size();
    put(axis, place.dimension + added, place.inner);
  }
  /// A single position is one of a recurrence, or a token that stands for all; else the
  /// slice has to reach to the end.
  void moved(graph::SliceOp slice, const FilledAxis &axis, Place place) {
    int64_t d = place.dimension, full = shapeOf(slice.getX())[d];
    int64_t start = slice.getStarts()[d], step = slice.getSteps()[d];
    if (result[d] == full && start == 0 && step == 1)
      return keep(axis, place);
    if (result[d] == 1) {
      addOnce(out.taken, axis);
      return;
    }
    if (step < 1 || result[d] != (full - start + step - 1) / step)
      return lose();
    resized(axis, place, shapeOf(slice.getX()), {1, step - 1 - start, step});
  }
  void moved(graph::PadOp pad, const FilledAxis &axis, Place place) {
    int64_t more = pad.getLow()[place.dimension] + pad.getHigh()[place.dimension];
    if (more == 0)
      return keep(axis, place);
    resized(axis, place, shapeOf(pad.getX()), {1, more, 1});
  }
  void reduced(const FilledAxis &axis, Place place, ArrayRef<int64_t> dimensions,
               bool isKept) {
    if (llvm::is_contained(dimensions, place.dimension))
      return;
    int64_t before =
        llvm::count_if(dimensions, [&](int64_t d) { return d < place.dimension; });
    put(axis, place.dimension - (isKept ? 0 : before), place.inner);
  }
  void moved(graph::ReduceOp reduce, const FilledAxis &axis, Place place) {
    reduced(axis, place, reduce.getAxes(), reduce.getKeep());
  }
  void moved(graph::ArgMaxOp argmax, const FilledAxis &axis, Place place) {
    reduced(axis, place, {int64_t(argmax.getAxis())}, argmax.getKeep());
  }
  void moved(graph::CumSumOp, const FilledAxis &axis, Place place) { keep(axis, place); }

  void concatenated(graph::ConcatOp concat) {
    int64_t along = concat.getAxis();
    if (joinsPositions(concat))
      return;
    int64_t before = 0;
    bool isLast = false;
    for (Value input : concat.getInputs()) {
      if (isLast) // what lies behind would be cut off
        return lose();
      each(input, [&](const FilledAxis &axis, Place place) {
        if (place.dimension != along)
          return keep(axis, place);
        isLast = true;
        resized(axis, place, shapeOf(input), {1, before, 1});
      });
      before += shapeOf(input)[along];
    }
  }

  /// The steps of a recurrence, one for each position, become the axis again.
  bool joinsPositions(graph::ConcatOp concat) {
    int64_t along = concat.getAxis();
    for (const FilledAxis &axis : llvm::to_vector(out.taken)) {
      bool isEach = int64_t(concat.getInputs().size()) == axis.size;
      for (Value input : concat.getInputs()) {
        auto found = traces.find(input);
        isEach = isEach && shapeOf(input)[along] == 1 && found != traces.end() &&
                 llvm::any_of(found->second.taken, [&](const FilledAxis &other) {
                   return other.argument == axis.argument &&
                          other.dimension == axis.dimension && other.size == axis.size;
                 });
      }
      if (!isEach)
        continue;
      for (Value input : concat.getInputs())
        each(input, [&](const FilledAxis &other, Place place) { keep(other, place); });
      put(axis, along, 1);
      return true;
    }
    return false;
  }

  /// Result dimensions: batch, free of lhs, free of rhs.
  void contracted(graph::ContractOp contract) {
    auto side = [&](Value operand, ArrayRef<int64_t> batchDims, ArrayRef<int64_t> summed,
                    int64_t freeBegin) {
      each(operand, [&](const FilledAxis &axis, Place place) {
        if (llvm::is_contained(summed, place.dimension))
          return;
        const auto *paired = llvm::find(batchDims, place.dimension);
        int64_t position = paired - batchDims.begin();
        if (paired == batchDims.end()) {
          position = freeBegin;
          for (int64_t d = 0; d < place.dimension; ++d)
            position +=
                !llvm::is_contained(batchDims, d) && !llvm::is_contained(summed, d);
        }
        put(axis, position, place.inner);
      });
    };
    int64_t batchCount = contract.getLhsBatch().size();
    int64_t rhsFree = result.size() - (shapeOf(contract.getRhs()).size() - batchCount -
                                       contract.getRhsContract().size());
    side(contract.getLhs(), contract.getLhsBatch(), contract.getLhsContract(),
         batchCount);
    side(contract.getRhs(), contract.getRhsBatch(), contract.getRhsContract(), rhsFree);
  }

  /// Sums over keys and sizes of keys; result dimensions: batch, heads, queries, sizes of
  /// values.
  void attended(graph::AttentionOp attention) {
    auto from = [&](Value operand, ArrayRef<int64_t> summed) {
      if (!operand)
        return;
      each(operand, [&](const FilledAxis &axis, Place place) {
        int64_t d = place.dimension;
        if (llvm::is_contained(summed, d))
          return;
        bool groups = d == 1 && shapeOf(operand)[1] != result[1];
        return groups ? lose() : keep(axis, place);
      });
    };
    from(attention.getQ(), {3});
    from(attention.getK(), {2, 3});
    from(attention.getV(), {2});
    from(attention.getMask(), {3});
  }

  static int64_t kernelOf(graph::ConvOp conv, int64_t i) {
    return shapeOf(conv.getW())[i + 2];
  }
  template <class Pool> static int64_t kernelOf(Pool pool, int64_t i) {
    return pool.getKernel()[i];
  }

  /// Slides along the dimensions from `firstSpatial` on; sums over channels, or keeps
  /// them.
  template <class Op> void windowed(Op window, Value x, int64_t firstSpatial) {
    bool sums = isa<graph::ConvOp>(op);
    if (sums)
      loseIfAny({op->getOperand(1)});
    each(x, [&](const FilledAxis &axis, Place place) {
      int64_t d = place.dimension, i = d - firstSpatial;
      if (d == 1 && sums)
        return;
      if (i < 0)
        return keep(axis, place);
      int64_t stride = window.getStrides()[i];
      int64_t reach = window.getDilations()[i] * (kernelOf(window, i) - 1) + 1;
      int64_t pads = window.getPadsBegin()[i] + window.getPadsEnd()[i];
      if (stride == 1 && pads + 1 == reach && place.inner == 1 &&
          shapeOf(x)[d] == axis.size)
        return keep(axis, place);
      int64_t add = pads - reach + stride;
      if ((axis.size + add) / stride < result[d]) // rounded up, as `ceil_mode` does
        add += stride - 1;
      resized(axis, place, shapeOf(x), {1, add, stride});
    });
  }

  void transposed(graph::ConvInputGradOp conv) {
    loseIfAny({conv.getW()});
    each(conv.getDy(), [&](const FilledAxis &axis, Place place) {
      int64_t d = place.dimension;
      if (d == 1)
        return;
      if (d == 0)
        return keep(axis, place);
      int64_t stride = conv.getStrides()[d - 2];
      resized(axis, place, shapeOf(conv.getDy()),
              {stride, result[d] - axis.size * stride, 1});
    });
  }

  /// Result: dimensions of x with `axis` replaced by those of the indices.
  void gathered(graph::GatherOp gather) {
    int64_t along = gather.getAxis();
    int64_t added = shapeOf(gather.getIndices()).size() - 1;
    each(gather.getX(), [&](const FilledAxis &axis, Place place) {
      if (place.dimension != along)
        put(axis, place.dimension + (place.dimension > along ? added : 0), place.inner);
    });
    each(gather.getIndices(), [&](const FilledAxis &axis, Place place) {
      put(axis, along + place.dimension, place.inner);
    });
  }

  void gatheredElements(graph::GatherElementsOp gather) {
    each(gather.getX(), [&](const FilledAxis &axis, Place place) {
      if (place.dimension == int64_t(gather.getAxis()))
        return;
      if (shapeOf(gather.getX())[place.dimension] != result[place.dimension])
        return lose();
      keep(axis, place);
    });
    each(gather.getIndices(),
         [&](const FilledAxis &axis, Place place) { keep(axis, place); });
  }

  Operation *op;
  const DenseMap<Value, Trace> &traces;
  ArrayRef<int64_t> result; // its shape
  bool isTouched = false;
  Trace out;
};

} // namespace

FilledAxes::FilledAxes(func::FuncOp entry) {
  for (BlockArgument argument : entry.getArguments()) {
    unsigned index = argument.getArgNumber();
    auto has = [&](StringRef name) { return bool(entry.getArgAttr(index, name)); };
    if (!has("graph.fill") && !has("graph.ignored"))
      continue;
    ArrayRef<int64_t> shape = shapeOf(argument);
    for (int64_t d = has("graph.batched"); d < int64_t(shape.size()); ++d)
      if (shape[d] > 1)
        traces[argument].axes.push_back({index, d, stepOf(shape, d), shape[d], {}});
  }
  if (traces.empty())
    return;
  for (Operation &op : entry.getBody().front())
    if (op.getNumResults() > 0 && op.getNumOperands() > 0) {
      Trace trace = Transfer(&op, traces).run();
      if (!trace.axes.empty() || !trace.taken.empty() || trace.lost)
        for (OpResult result : op.getResults())
          traces[result] = trace;
    }
}

const FilledAxes::Trace &FilledAxes::of(Value value) const {
  static const Trace none;
  auto found = traces.find(value);
  return found == traces.end() ? none : found->second;
}

} // namespace sluice
