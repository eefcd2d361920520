#pragma once
// Parameters of the matrix product kernels, and which of them a compiler should launch
// for a shape.

#include "kernels/Formats.h"

#include <cstdint>

namespace sluice {

/// A parameter struct is its array of int64 parameters: only int64_t members, in order.
template <typename P> constexpr int64_t paramCount = sizeof(P) / sizeof(int64_t);

// Shared geometry of all products. Levels use the same packed layouts, so a plan needs
// one set of sizes.
namespace gemm {
constexpr int64_t kTileRows = 12; ///< rows of a packed panel of A
constexpr int64_t kTileCols = 32; ///< columns of a packed panel of B
constexpr int64_t kBlockK = 256;  ///< length of one fma chain
constexpr int64_t kBlockRows =
    288; ///< rows of A a worker holds packed (288 KB: most of its L2 share)
constexpr int64_t kResultCols = 512; ///< columns of a 16-bit C that a worker sums at once
} // namespace gemm

/// C[b0,b1,m,n] (+)= sum over k of A[b0,b1,m,k] * B[b0,b1,k,n], summed in f32, strides in
/// elements. aType, bType, cType: how each is stored (Formats.h).
///
/// Bits: K is cut into blocks of 256; each block is one chain of fma from 0 in the order
/// of k; block sums are added in order to C (accumulate) or to the first block's sum. A C
/// of 16 bits is rounded after the last. Nothing else matters.
///
/// Where A and B are bf16, level `amx` computes otherwise: C starts as 0 or as it was
/// (accumulate), and every 32 steps of k (the last filled up with zeros) add to it as
/// TDPBF16PS does: a chain of fma from 0 over the even steps and one over the odd ones,
/// then their sum; denormals are zeros on the way in and out. A C of 16 bits is rounded
/// after the last.
///
/// Units: blocks of `unitRows` rows of the flattened (b0, b1, m), times blocks of
/// `unitCols` columns (the faster index). With unitCols == 0 a unit is whole rows and,
/// when rows of C are evenly spaced, may be chained. With `cTiles` C lies unit by unit,
/// [unit][unitRows][unitCols], so that units of columns too may be chained: one matrix,
/// cRow == unitCols; what would lie outside the matrix is not written.
///
/// gemm_f32:        A, B, C, workspace of each worker (gemmWorkerBytes). Where A or B is
///                  codes, their scales stand before C, A's first: of the blocks, and
///                  under nvfp4 that of the tensor.
/// gemm_packed_f32: the same with B packed by gemm_pack_b_f32; bBatch0 and bBatch1 count
/// floats between the
///                  packed matrices (0 or multiples of gemmPackedFloats); bRow and bCol
///                  are unused; bType is bf16 where A's and B's own type are, else f32.
/// Strides of B may be 0 over batches; C must not overlap itself.
struct GemmParams {
  int64_t m = 0, n = 0, k = 0;
  int64_t batch0 = 1, batch1 = 1;
  int64_t aBatch0 = 0, aBatch1 = 0, aRow = 0, aCol = 1;
  int64_t bBatch0 = 0, bBatch1 = 0, bRow = 0, bCol = 1;
  int64_t cBatch0 = 0, cBatch1 = 0, cRow = 0;
  int64_t accumulate = 0;
  int64_t unitRows = 48, unitCols = 0;
  int64_t aType = 0, bType = 0, cType = 0;
  int64_t cTiles = 0;
  CodedAs aCodes, bCodes; ///< B is not coded where it is packed
};

/// gemm_pack_b_f32: B, packed (f32). Units: batch0 * batch1 * ceil(n / 32) panels.
/// packed[b][panel][k][32], columns beyond n hold 0. aType: of the product's A. Where
/// both are bf16, level `amx` writes pairs of k into the first half of a panel instead,
/// bf16 [(k + 1) / 2][32][2], so they must be stated as the product states them.
struct GemmPackBParams {
  int64_t n = 0, k = 0;
  int64_t batch0 = 1, batch1 = 1;
  int64_t bBatch0 = 0, bBatch1 = 0, bRow = 0, bCol = 1;
  int64_t bType = 0, aType = 0;
};

/// gemm_splitk_f32: A, B, partial, workspace of each worker. For few outputs and a long
/// k: K is cut into `slices` runs of `sliceK` (a multiple of 256), each written to
/// partial[slice][m][n] as gemm_f32 would. Units: slices * ceil(m / unitRows) * ceil(n /
/// unitCols). Then sum_slices_f32.
struct GemmSplitKParams {
  int64_t m = 0, n = 0, k = 0;
  int64_t aRow = 0, aCol = 1, bRow = 0, bCol = 1;
  int64_t sliceK = 0, slices = 0;
  int64_t unitRows = 48, unitCols = 0;
  int64_t aType = 0, bType = 0;
  CodedAs aCodes, bCodes;
};

/// sum_slices_f32: partial[slices][rows * cols], C. C[r,c] (+)= ((p0 + p1) + p2) + ...; C
/// has row stride cRow and is rounded once. Units: ceil(rows / unitRows); may be chained
/// when cRow == cols.
struct SumSlicesParams {
  int64_t rows = 0, cols = 0, slices = 0;
  int64_t cRow = 0;
  int64_t accumulate = 0;
  int64_t unitRows = 0;
  int64_t cType = 0;
};

/// Whether level `amx` multiplies on tiles.
constexpr bool usesPairs(int64_t aType, int64_t bType) {
  return aType == format::kBf16 && bType == format::kBf16;
}

int64_t gemmUnits(const GemmParams &p);
int64_t gemmWorkerBytes(const GemmParams &p);
/// Floats of the workspace that hold sums of a C of 16 bits: 288 rows x 512 columns, or
/// 512 rows of a C that is computed transposed.
constexpr int64_t gemmResultFloats(int64_t m, int64_t n, int64_t cType) {
  if (cType == format::kF32)
    return 0;
  int64_t rows = (m < gemm::kBlockRows ? m : gemm::kBlockRows) + gemm::kTileRows - 1;
  int64_t cols = (n < gemm::kResultCols ? n : gemm::kResultCols) + gemm::kTileCols - 1;
  int64_t block = rows / gemm::kTileRows * gemm::kTileRows *
                  (cols / gemm::kTileCols * gemm::kTileCols);
  int64_t transposed = n < 8 ? 8 * gemm::kResultCols : 0;
  return block > transposed ? block : transposed;
}
/// Floats of one packed B.
int64_t gemmPackedFloats(int64_t n, int64_t k);
int64_t gemmPackBUnits(const GemmPackBParams &p);
int64_t gemmPackedBytes(const GemmPackBParams &p);
int64_t gemmSplitKUnits(const GemmSplitKParams &p);
int64_t gemmSplitKWorkerBytes(const GemmSplitKParams &p);
int64_t gemmPartialBytes(const GemmSplitKParams &p);
int64_t sumSlicesUnits(const SumSlicesParams &p);

/// How to compute a product, decided from its shape alone. Launches in order:
///   packed: gemm_pack_b_f32(B, packed), gemm_packed_f32(A, packed, C, worker)
///   splitK: gemm_splitk_f32(A, B, partial, worker), sum_slices_f32(partial, C)
///   else:   gemm_f32(A, B, C, worker)
/// Chunks are in units. With `wholeRows` units are whole rows of C (chainable with row
/// kernels, the chunk then keeps about 1 MB of C in cache); splitK chains on
/// sum_slices_f32.
struct GemmPlan {
  enum Kind { Direct, Packed, SplitK } kind = Direct;
  GemmParams gemm;
  int64_t gemmUnits = 0, gemmChunk = 1, workerBytes = 0;
  GemmPackBParams pack;
  int64_t packUnits = 0, packChunk = 1, packedBytes = 0;
  GemmSplitKParams split;
  SumSlicesParams sum;
  int64_t splitUnits = 0, splitChunk = 1, partialBytes = 0, sumUnits = 0, sumChunk = 1;
};

/// `shape` states sizes, strides, types and accumulate (unit fields are ignored). Batches
/// with a common B and evenly spaced rows are merged into m. `threads` that will share
/// the units, 0 for many: it runs on any number, and bits are the same.
GemmPlan planGemm(const GemmParams &shape, bool wholeRows, int64_t threads = 0);

} // namespace sluice
