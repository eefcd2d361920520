// Contractions: any product of two tensors summed over paired dimensions.
#include "ir/graph/GraphBuilder.h"
#include "ir/graph/Integers.h"
#include "ir/graph/Interpreter.h"
#include "ir/graph/MatrixLoops.h"
#include "ir/graph/Shapes.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace sluice::graph;

#define GET_OP_CLASSES
#include "ir/graph/Contract.cpp.inc"

namespace {
using Sizes = ArrayRef<int64_t>;

/// Dimensions of an operand that are neither batch nor summed over, in order.
SmallVector<int64_t> freeDimensions(int64_t rank, Sizes batch, Sizes contract) {
  SmallVector<int64_t> dimensions;
  for (int64_t i = 0; i < rank; ++i)
    if (!llvm::is_contained(batch, i) && !llvm::is_contained(contract, i))
      dimensions.push_back(i);
  return dimensions;
}

/// One operand of a contraction: its dimensions by what becomes of them.
struct Side {
  Sizes shape, batch, contract;
  SmallVector<int64_t> free;
  Side(Sizes shape, Sizes batch, Sizes contract)
      : shape(shape), batch(batch), contract(contract),
        free(freeDimensions(shape.size(), batch, contract)) {}
  int64_t count(Sizes dimensions) const {
    int64_t result = 1;
    for (int64_t d : dimensions)
      result *= shape[d];
    return result;
  }
};

/// Every pair of dimensions has one size.
LogicalResult checkPairs(StringRef op, std::optional<Location> loc, StringRef kind,
                         RankedTensorType lhs, Sizes left, RankedTensorType rhs,
                         Sizes right) {
  if (left.size() != right.size())
    return emitOptionalError(loc, "'rhs_", kind, "' of '", op, "' has ", right.size(),
                             " entries, expected ", left.size(), " (as 'lhs_", kind,
                             "')");
  for (auto [l, r] : llvm::zip_equal(left, right))
    if (lhs.getDimSize(l) != rhs.getDimSize(r))
      return emitOptionalError(loc, "operand 1 of '", op, "' has ", rhs.getDimSize(r),
                               " elements in dimension ", r, ", expected ",
                               lhs.getDimSize(l), " (dimension ", l, " of operand 0)");
  return success();
}

/// The elements of an operand ordered as [batch, first, second], dense.
std::vector<double> pack(const HostTensor &x, Sizes batch, Sizes first, Sizes second) {
  SmallVector<int64_t> from = stridesOf(x.shape), shape, strides;
  for (Sizes dimensions : {batch, first, second})
    for (int64_t d : dimensions) {
      shape.push_back(x.shape[d]);
      strides.push_back(from[d]);
    }
  std::vector<double> packed;
  packed.reserve(x.reals.size());
  forEachOffset(shape, strides, 0,
                [&](int64_t offset) { packed.push_back(x.reals[offset]); });
  return packed;
}

std::vector<int64_t> offsets(Sizes shape, Sizes dimensions) {
  SmallVector<int64_t> from = stridesOf(shape), sizes, strides;
  for (int64_t d : dimensions) {
    sizes.push_back(shape[d]);
    strides.push_back(from[d]);
  }
  std::vector<int64_t> result;
  forEachOffset(sizes, strides, 0, [&](int64_t offset) { result.push_back(offset); });
  return result;
}

/// Integer products, modulo 2^64 and then of the type's width.
void contractIntegers(const HostTensor &lhs, const Side &left, const HostTensor &rhs,
                      const Side &right, HostTensor &y) {
  auto leftBatch = offsets(lhs.shape, left.batch),
       leftFree = offsets(lhs.shape, left.free),
       leftSum = offsets(lhs.shape, left.contract),
       rightBatch = offsets(rhs.shape, right.batch),
       rightFree = offsets(rhs.shape, right.free),
       rightSum = offsets(rhs.shape, right.contract);
  size_t at = 0;
  for (size_t b = 0; b < leftBatch.size(); ++b)
    for (int64_t m : leftFree)
      for (int64_t n : rightFree) {
        int64_t sum = 0;
        for (size_t k = 0; k < leftSum.size(); ++k)
          sum = addWrap(sum, mulWrap(lhs.integers[leftBatch[b] + m + leftSum[k]],
                                     rhs.integers[rightBatch[b] + n + rightSum[k]]));
        y.integers[at++] = wrap(sum, y.elementType);
      }
}

Side leftSide(ContractOp op) {
  return Side(tensorType(op.getLhs()).getShape(), op.getLhsBatch(), op.getLhsContract());
}
Side rightSide(ContractOp op) {
  return Side(tensorType(op.getRhs()).getShape(), op.getRhsBatch(), op.getRhsContract());
}

SmallVector<int64_t> range(int64_t begin, int64_t count) {
  return llvm::to_vector(llvm::seq<int64_t>(begin, begin + count));
}

} // namespace

LogicalResult ContractOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                           Adaptor adaptor,
                                           SmallVectorImpl<Type> &types) {
  StringRef op = getOperationName();
  RankedTensorType lhs = operandType(op, loc, adaptor.getOperands(), 0);
  RankedTensorType rhs = operandType(op, loc, adaptor.getOperands(), 1);
  if (!lhs || !rhs)
    return failure();
  if (lhs.getElementType() != rhs.getElementType())
    return emitOptionalError(loc, "operand 1 of '", op, "' has element type ",
                             rhs.getElementType(), ", expected ", lhs.getElementType(),
                             " (as operand 0)");
  auto joined = [](Sizes a, Sizes b) {
    SmallVector<int64_t> both(a);
    both.append(b.begin(), b.end());
    return both;
  };
  auto lhsUsed = joined(adaptor.getLhsBatch(), adaptor.getLhsContract());
  auto rhsUsed = joined(adaptor.getRhsBatch(), adaptor.getRhsContract());
  if (failed(checkDimensions(op, loc, "lhs_batch and lhs_contract", lhsUsed,
                             lhs.getRank())) ||
      failed(checkDimensions(op, loc, "rhs_batch and rhs_contract", rhsUsed,
                             rhs.getRank())) ||
      failed(checkPairs(op, loc, "batch", lhs, adaptor.getLhsBatch(), rhs,
                        adaptor.getRhsBatch())) ||
      failed(checkPairs(op, loc, "contract", lhs, adaptor.getLhsContract(), rhs,
                        adaptor.getRhsContract())))
    return failure();
  SmallVector<int64_t> shape;
  for (int64_t d : adaptor.getLhsBatch())
    shape.push_back(lhs.getDimSize(d));
  for (int64_t d :
       freeDimensions(lhs.getRank(), adaptor.getLhsBatch(), adaptor.getLhsContract()))
    shape.push_back(lhs.getDimSize(d));
  for (int64_t d :
       freeDimensions(rhs.getRank(), adaptor.getRhsBatch(), adaptor.getRhsContract()))
    shape.push_back(rhs.getDimSize(d));
  types.push_back(RankedTensorType::get(
      shape, productType(lhs.getElementType(), adaptor.getRoundTo())));
  return success();
}

PrecisionKind ContractOp::precision() { return PrecisionKind::Product; }

double ContractOp::flops() {
  return 2.0 * tensorType(getY()).getNumElements() *
         leftSide(*this).count(getLhsContract());
}

LogicalResult ContractOp::evaluate(Evaluation &eval) {
  Side left = leftSide(*this), right = rightSide(*this);
  HostTensor &y = eval.result(0);
  if (!y.isReal()) {
    contractIntegers(eval.operand(0), left, eval.operand(1), right, y);
    return success();
  }
  std::vector<double> a = pack(eval.operand(0), left.batch, left.free, left.contract);
  std::vector<double> b = pack(eval.operand(1), right.batch, right.contract, right.free);
  const int64_t m = left.count(left.free), n = right.count(right.free),
                k = left.count(left.contract);
  for (int64_t i = 0, batches = left.count(left.batch); i < batches; ++i)
    multiplyAccumulate(y.reals.data() + i * m * n, a.data() + i * m * k,
                       b.data() + i * k * n, m, n, k);
  for (double &value : y.reals)
    value = toNarrow(eval.round(value), y.elementType);
  return success();
}

// --- gradient

/// The cotangent of `self`: a contraction of the result's cotangent with the partner over
/// the partner's free dimensions, which lie in the result from `otherBegin`. Of the two
/// operand orders the one whose result needs no transpose is taken.
static Value operandGradient(GraphBuilder &b, Value dy, const Side &self,
                             Value otherValue, const Side &other, int64_t otherBegin) {
  SmallVector<int64_t> resultBatch = range(0, self.batch.size());
  SmallVector<int64_t> resultSum = range(otherBegin, other.free.size());
  SmallVector<int64_t> summed =
      llvm::to_vector(other.contract); // in order of the partner
  llvm::sort(summed);

  // Where each dimension of the product belongs in `self`.
  SmallVector<int64_t> batch(self.batch), partner;
  for (int64_t d : summed)
    partner.push_back(
        self.contract[llvm::find(other.contract, d) - other.contract.begin()]);
  auto layout = [&](Sizes first, Sizes second) {
    SmallVector<int64_t> target(batch);
    target.append(first.begin(), first.end());
    target.append(second.begin(), second.end());
    SmallVector<int64_t> permutation(target.size());
    for (auto [position, dimension] : llvm::enumerate(target))
      permutation[dimension] = position;
    return permutation;
  };
  SmallVector<int64_t> cotangentFirst = layout(self.free, partner);
  SmallVector<int64_t> partnerFirst = layout(partner, self.free);
  if (llvm::is_sorted(partnerFirst) && !llvm::is_sorted(cotangentFirst))
    return b.make<ContractOp>(otherValue, dy, other.batch, resultBatch, other.free,
                              resultSum);
  Value product =
      b.make<ContractOp>(dy, otherValue, resultBatch, other.batch, resultSum, other.free);
  return b.transpose(product, cotangentFirst);
}

LogicalResult ContractOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  Value dy = context.cotangent();
  if (!dy || !isa<FloatType>(tensorType(getY()).getElementType()))
    return success();
  if (failed(expectWideProduct(*this, getLhs())))
    return failure();
  GraphBuilder b(getLoc(), builder);
  Side left = leftSide(*this), right = rightSide(*this);
  const int64_t leftBegin = left.batch.size(), rightBegin = leftBegin + left.free.size();
  if (context.needs(0))
    context.set(0, operandGradient(b, dy, left, getRhs(), right, rightBegin));
  if (context.needs(1))
    context.set(1, operandGradient(b, dy, right, getLhs(), left, leftBegin));
  return success();
}
