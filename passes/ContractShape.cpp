#include "passes/ContractShape.h"

#include "passes/NarrowReads.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace sluice {
namespace {

/// A dimension of the loop nest with its strides in A, B and C; 0 where it does not
/// occur.
struct Loop {
  int64_t size, a, b, c;
};
using Loops = SmallVector<Loop, 4>;

/// Joins neighbours (outer first) that are one run in all three tensors; drops loops of
/// one step.
Loops collapse(const Loops &loops) {
  Loops result;
  for (const Loop &loop : loops) {
    if (loop.size == 1)
      continue;
    if (!result.empty()) {
      Loop &outer = result.back();
      if (outer.a == loop.a * loop.size && outer.b == loop.b * loop.size &&
          outer.c == loop.c * loop.size) {
        outer = {outer.size * loop.size, loop.a, loop.b, loop.c};
        continue;
      }
    }
    result.push_back(loop);
  }
  return result;
}

struct Nest {
  Loops batch, m, n, k;
};

Nest loopsOf(graph::ContractOp op, const ContractStrides &strides) {
  auto lhs = graph::tensorType(op.getLhs()), rhs = graph::tensorType(op.getRhs());
  const auto &a = strides.lhs, &b = strides.rhs, &c = strides.result;
  Nest nest;
  size_t result = 0;
  for (auto [l, r] : llvm::zip(op.getLhsBatch(), op.getRhsBatch()))
    nest.batch.push_back({lhs.getDimSize(l), a[l], b[r], c[result++]});
  for (int64_t dim : freeDims(lhs.getRank(), op.getLhsBatch(), op.getLhsContract()))
    nest.m.push_back({lhs.getDimSize(dim), a[dim], 0, c[result++]});
  for (int64_t dim : freeDims(rhs.getRank(), op.getRhsBatch(), op.getRhsContract()))
    nest.n.push_back({rhs.getDimSize(dim), 0, b[dim], c[result++]});
  // The order of the sum is that of the elements of lhs, however the pairs are listed and
  // wherever the bytes lie.
  SmallVector<std::pair<int64_t, int64_t>> pairs;
  for (auto [l, r] : llvm::zip(op.getLhsContract(), op.getRhsContract()))
    pairs.push_back({l, r});
  llvm::sort(pairs);
  for (auto [l, r] : pairs)
    nest.k.push_back({lhs.getDimSize(l), a[l], b[r], 0});
  return nest;
}

} // namespace

std::optional<int64_t> formatOf(Type element) {
  if (element.isF32())
    return format::kF32;
  if (element.isBF16())
    return format::kBf16;
  if (element.isF16())
    return format::kF16;
  return std::nullopt;
}

SmallVector<int64_t> rowMajorStrides(ArrayRef<int64_t> shape) {
  SmallVector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0; stride *= shape[i])
    strides[i] = stride;
  return strides;
}

SmallVector<int64_t> freeDims(int64_t rank, ArrayRef<int64_t> batch,
                              ArrayRef<int64_t> contract) {
  SmallVector<int64_t> dims;
  for (int64_t dim = 0; dim < rank; ++dim)
    if (!llvm::is_contained(batch, dim) && !llvm::is_contained(contract, dim))
      dims.push_back(dim);
  return dims;
}

ContractStrides ContractStrides::contiguous(graph::ContractOp op) {
  return {rowMajorStrides(graph::tensorType(op.getLhs()).getShape()),
          rowMajorStrides(graph::tensorType(op.getRhs()).getShape()),
          rowMajorStrides(graph::tensorType(op.getY()).getShape())};
}

std::optional<GemmParams> contractAsGemm(graph::ContractOp op) {
  return contractAsGemm(op, ContractStrides::contiguous(op));
}

std::optional<GemmParams> contractAsGemm(graph::ContractOp op,
                                         const ContractStrides &strides) {
  Nest nest = loopsOf(op, strides);
  Loops batch = collapse(nest.batch), m = collapse(nest.m), n = collapse(nest.n),
        k = collapse(nest.k);
  if (k.size() > 1)
    return std::nullopt;

  GemmParams params;
  params.m = params.n = params.k = 1;
  params.bCol = params.aCol = 1;
  params.cRow = 1;
  if (!n.empty()) {
    Loop cols = n.pop_back_val();
    if (cols.c != 1)
      return std::nullopt;
    params.n = cols.size, params.bCol = cols.b;
    params.cRow = cols.size;
  }
  if (!m.empty()) {
    Loop rows = m.pop_back_val();
    params.m = rows.size, params.aRow = rows.a, params.cRow = rows.c;
  }
  if (!k.empty())
    params.k = k[0].size, params.aCol = k[0].a, params.bRow = k[0].b;
  // What is left of M and N are products of their own.
  batch.append(m);
  batch.append(n);
  if (batch.size() > 2)
    return std::nullopt;
  if (batch.size() == 2) {
    params.batch0 = batch[0].size, params.aBatch0 = batch[0].a;
    params.bBatch0 = batch[0].b, params.cBatch0 = batch[0].c;
  }
  if (!batch.empty()) {
    const Loop &inner = batch.back();
    params.batch1 = inner.size, params.aBatch1 = inner.a;
    params.bBatch1 = inner.b, params.cBatch1 = inner.c;
  }
  auto formatOfValue = [](Value value) {
    Type element = graph::tensorType(narrowSource(value)).getElementType();
    return formatOf(element).value_or(format::kF32);
  };
  params.aType = formatOfValue(op.getLhs()), params.bType = formatOfValue(op.getRhs());
  params.cType = formatOfValue(op.getY());
  return params;
}

} // namespace sluice
