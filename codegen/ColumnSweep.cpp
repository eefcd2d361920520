// Sums over rows, several strips together: a few rows at a time are read along all
// strips, so that memory is read in long runs. The sums wait in the scratch; their order
// is that of a strip on its own.

#include "codegen/RegionWalk.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace sluice;

namespace {
/// Rows read along all strips before the next ones.
constexpr int64_t sweepRows = 16;
} // namespace

void RegionWalk::emitSweeps(Value begin, Value end) {
  Accumulators none;
  loop(begin, end, domain.sweepUnits, none, [&](Value from, Accumulators &) {
    Value to = b.create<arith::MinSIOp>(
        b.create<arith::AddIOp>(from, lanes.constant(domain.sweepUnits)), end);
    sweepStart = from;
    emitSweep(from, to);
  });
}

void RegionWalk::emitSweep(Value from, Value to) {
  const Pass &pass = passes.front();
  Value zero = lanes.constant(0), rows = lanes.constant(domain.dims[domain.rowDim]);
  Accumulators none;
  auto forUnits = [&](llvm::function_ref<void(Value)> body) {
    loop(from, to, 1, none, [&](Value unit, Accumulators &) { body(unit); });
  };
  auto minimum = [&](Value start, int64_t size, Value limit) -> Value {
    return b.create<arith::MinSIOp>(b.create<arith::AddIOp>(start, lanes.constant(size)),
                                    limit);
  };
  constexpr int vectors = RegionDomain::stripColumns / LaneBuilder::lanes;
  forUnits([&](Value unit) {
    storeSums(unit, Sum::Block, neutral(pass, vectors));
    storeSums(unit, Sum::Total, neutral(pass, vectors));
  });
  loop(zero, rows, RegionDomain::blockRows, none, [&](Value block, Accumulators &) {
    Value blockEnd = minimum(block, RegionDomain::blockRows, rows);
    loop(block, blockEnd, sweepRows, none, [&](Value row, Accumulators &) {
      Value rowEnd = minimum(row, sweepRows, blockEnd);
      forUnits([&](Value unit) {
        emitStrips(unit, [&] {
          Accumulators sums = loadSums(unit, Sum::Block);
          walkRows(pass, row, rowEnd, sums);
          storeSums(unit, Sum::Block, sums);
        });
      });
    });
    forUnits([&](Value unit) { addBlock(unit); });
  });
  forUnits([&](Value unit) {
    emitStrips(unit, [&] {
      Accumulators sums = loadSums(unit, Sum::Total);
      size_t perReduction = values.vectorsPerUnit();
      for (auto [i, reduction] : llvm::enumerate(pass.reductions))
        values.setReduced(reduction->getResult(0),
                          ArrayRef<Value>(sums).slice(i * perReduction, perReduction));
      values.finishPass(0);
      values.storeUnitOutputs();
    });
  });
}

// Whole strips of vectors, also for a narrower last strip.
Value RegionWalk::sumAddress(Value unit, size_t reduction, int vector, Sum which) {
  constexpr int64_t vectors = RegionDomain::stripColumns / LaneBuilder::lanes;
  int64_t reductions = passes.front().reductions.size();
  int64_t slot = (reduction * 2 + (which == Sum::Total)) * vectors + vector;
  Value index = b.create<arith::MulIOp>(b.create<arith::SubIOp>(unit, sweepStart),
                                        lanes.constant(reductions * 2 * vectors));
  index = b.create<arith::AddIOp>(index, lanes.constant(slot));
  Value byte = b.create<arith::MulIOp>(index, lanes.constant(domain.sweepVectorBytes));
  return lanes.address(scratch, byte, b.getI8Type());
}

RegionWalk::Accumulators RegionWalk::loadSums(Value unit, Sum which) {
  Accumulators sums;
  for (auto [i, reduction] : llvm::enumerate(passes.front().reductions))
    for (int vector = 0; vector < values.vectorsPerUnit(); ++vector)
      sums.push_back(b.create<LLVM::LoadOp>(lanes.vectorType(elementOf(reduction)),
                                            sumAddress(unit, i, vector, which), 4));
  return sums;
}

void RegionWalk::storeSums(Value unit, Sum which, const Accumulators &sums) {
  size_t reductions = passes.front().reductions.size(),
         vectors = sums.size() / reductions;
  for (size_t i = 0; i < reductions; ++i)
    for (size_t vector = 0; vector < vectors; ++vector)
      b.create<LLVM::StoreOp>(sums[i * vectors + vector],
                              sumAddress(unit, i, static_cast<int>(vector), which), 4);
}

void RegionWalk::addBlock(Value unit) {
  const Pass &pass = passes.front();
  constexpr int vectors = RegionDomain::stripColumns / LaneBuilder::lanes;
  for (auto [i, reduction] : llvm::enumerate(pass.reductions)) {
    Combine kind = combineOf(reduction);
    VectorType type = lanes.vectorType(elementOf(reduction));
    for (int vector = 0; vector < vectors; ++vector) {
      Value block = sumAddress(unit, i, vector, Sum::Block);
      Value total = sumAddress(unit, i, vector, Sum::Total);
      Value sum = lanes.combine(kind, b.create<LLVM::LoadOp>(type, total, 4),
                                b.create<LLVM::LoadOp>(type, block, 4));
      b.create<LLVM::StoreOp>(sum, total, 4);
      b.create<LLVM::StoreOp>(lanes.neutral(kind, elementOf(reduction)), block, 4);
    }
  }
}
