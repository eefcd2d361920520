#include "passes/RankSums.h"

#include "passes/EntryFunctions.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace sluice {

using graph::GraphBuilder;

static void writeZero(graph::ParameterOp target, OpBuilder &builder) {
  GraphBuilder b(target.getLoc(), builder);
  b.create<graph::WriteOp>(target.getSymName(), b.splat(target.getTensorType(), 0));
}

int64_t RankSums::rounds() const { return llvm::Log2_64_Ceil(ranks); }

graph::ParameterOp RankSums::waiting(graph::ParameterOp accumulator, int64_t round) {
  StringRef name = accumulator.getSymName().split('/').second;
  return state.declare("sum" + std::to_string(int64_t(1) << round) + "/" + name.str(),
                       accumulator.getTensorType(), "accumulator",
                       accumulator.getGroup().value_or(""));
}

void RankSums::buildCloseEntry(ModuleOp module,
                               ArrayRef<graph::ParameterOp> accumulators) {
  func::FuncOp entry = createEntry(module, "close_rank");
  OpBuilder builder(returnOf(entry));
  EntryReads reads(entry, state);
  Value rank = reads.control("control/rank", builder.getI64Type());
  for (graph::ParameterOp accumulator : accumulators)
    close(accumulator, rank, reads, builder);
}

/// The carry of a binary counter: where bit s of the rank is set, a sum of 2^s ranks
/// waits and the sum at hand goes to its right; at the first bit that is not set it
/// stays.
void RankSums::close(graph::ParameterOp accumulator, Value rank, EntryReads &reads,
                     OpBuilder &builder) {
  GraphBuilder b(accumulator.getLoc(), builder);
  Value sum = reads.read(accumulator);
  Value zero = b.splatLike(sum, 0);
  for (int64_t round = 0; round < rounds(); ++round) {
    int64_t bit = int64_t(1) << round;
    auto hasBits = [&](int64_t mask, int64_t bits) {
      Value masked = b.make<graph::AndOp>(rank, b.splatLike(rank, mask));
      return b.broadcastLike(b.compare(masked, "eq", b.splatLike(rank, bits)), sum);
    };
    Value arrives = hasBits(bit - 1, bit - 1);
    Value goesOn = hasBits(2 * bit - 1, 2 * bit - 1);
    graph::ParameterOp target = waiting(accumulator, round);
    Value left = reads.read(target);
    Value kept = b.select(arrives, b.select(goesOn, zero, sum), left);
    b.create<graph::WriteOp>(target.getSymName(), kept);
    sum = b.select(goesOn, b.add(left, sum), sum);
  }
  writeZero(accumulator, builder);
}

Value RankSums::total(graph::ParameterOp accumulator, EntryReads &reads,
                      OpBuilder &builder) {
  GraphBuilder b(accumulator.getLoc(), builder);
  Value sum = reads.read(accumulator);
  for (int64_t round = 0; round < rounds(); ++round)
    sum = b.add(reads.read(waiting(accumulator, round)), sum);
  return sum;
}

void RankSums::clear(graph::ParameterOp accumulator, OpBuilder &builder) {
  writeZero(accumulator, builder);
  for (int64_t round = 0; round < rounds(); ++round)
    writeZero(waiting(accumulator, round), builder);
}

} // namespace sluice
