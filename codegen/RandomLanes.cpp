// Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#include "codegen/RandomLanes.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <array>

using namespace mlir;
using namespace sluice;

namespace {
using Words = std::array<Value, 4>;

/// The bijection on `width` counters at once. A word is the lower half of an i64 lane
/// with nothing above it, so that a product is one instruction.
class Philox {
public:
  Philox(ImplicitLocOpBuilder &builder, int64_t width)
      : b(builder), type(VectorType::get({width}, b.getI64Type())),
        narrow(VectorType::get({width}, b.getI32Type())) {}

  Value splat(int64_t value) {
    return b.create<arith::ConstantOp>(
        DenseElementsAttr::get(type, b.getI64IntegerAttr(value)));
  }
  Value lowWord(Value lanes) { return b.create<arith::AndIOp>(lanes, splat(0xffffffff)); }
  Value highWord(Value lanes) { return b.create<arith::ShRUIOp>(lanes, splat(32)); }
  Value broadcast(Value scalar) { return b.create<vector::BroadcastOp>(type, scalar); }

  /// Four random words for each counter, as i32.
  Words run(Words counter, Value seed) {
    Value key0 = lowWord(broadcast(seed)), key1 = highWord(broadcast(seed));
    for (int round = 0; round < 10; ++round) {
      Value first = b.create<arith::MulIOp>(counter[0], splat(0xD2511F53));
      Value second = b.create<arith::MulIOp>(counter[2], splat(0xCD9E8D57));
      counter = {exclusiveOr(highWord(second), counter[1], key0), lowWord(second),
                 exclusiveOr(highWord(first), counter[3], key1), lowWord(first)};
      key0 = lowWord(b.create<arith::AddIOp>(key0, splat(0x9E3779B9)));
      key1 = lowWord(b.create<arith::AddIOp>(key1, splat(0xBB67AE85)));
    }
    for (Value &word : counter)
      word = b.create<arith::TruncIOp>(narrow, word);
    return counter;
  }

private:
  Value exclusiveOr(Value x, Value y, Value z) {
    // The first two depend on the round before last only.
    return b.create<arith::XOrIOp>(x, b.create<arith::XOrIOp>(y, z));
  }

  ImplicitLocOpBuilder &b;
  VectorType type, narrow;
};

/// The upper 24 bits as a fraction: exact.
Value toUniform(LaneBuilder &lanes, Value words) {
  ImplicitLocOpBuilder &b = lanes.b;
  auto type = cast<VectorType>(words.getType());
  Value shift =
      b.create<arith::ConstantOp>(DenseElementsAttr::get(type, b.getI32IntegerAttr(8)));
  Value bits = b.create<arith::ShRUIOp>(words, shift);
  Value real = b.create<arith::SIToFPOp>(lanes.vectorType(b.getF32Type()), bits);
  return b.create<arith::MulFOp>(
      real, lanes.splat(b.getF32FloatAttr(0x1p-24f), b.getF32Type()));
}
} // namespace

Value sluice::emitRandomRun(LaneBuilder &lanes, const RandomKeyScalars &key, Value sample,
                            Value element) {
  ImplicitLocOpBuilder &b = lanes.b;
  Philox philox(b, lanes.width / 4);
  Value first = philox.broadcast(b.create<arith::ShRUIOp>(element, lanes.constant(2)));
  auto steps =
      DenseIntElementsAttr::get(cast<VectorType>(first.getType()),
                                llvm::to_vector(llvm::seq<int64_t>(0, lanes.width / 4)));
  Value counter = b.create<arith::AddIOp>(first, b.create<arith::ConstantOp>(steps));
  Words words =
      philox.run({philox.lowWord(counter), philox.lowWord(philox.broadcast(sample)),
                  philox.lowWord(philox.broadcast(key.update)),
                  philox.splat(static_cast<uint32_t>(key.id))},
                 key.seed);
  // Word j of counter i is element 4 * i + j.
  SmallVector<int64_t> zip, zipPairs;
  for (int64_t i = 0, half = lanes.width / 2; i < half / 2; ++i) {
    zip.append({i, half / 2 + i});
    zipPairs.append({2 * i, 2 * i + 1, half + 2 * i, half + 2 * i + 1});
  }
  Value low = b.create<vector::ShuffleOp>(words[0], words[1], zip);
  Value high = b.create<vector::ShuffleOp>(words[2], words[3], zip);
  return toUniform(lanes, b.create<vector::ShuffleOp>(low, high, zipPairs));
}

Value sluice::emitRandomLanes(LaneBuilder &lanes, const RandomKeyScalars &key,
                              Value samples, Value elements) {
  ImplicitLocOpBuilder &b = lanes.b;
  Philox philox(b, lanes.width);
  auto constant = [&](int64_t value) { return philox.splat(value); };
  Value counter = b.create<arith::ShRUIOp>(elements, constant(2));
  Words words = philox.run({philox.lowWord(counter), philox.lowWord(samples),
                            philox.lowWord(philox.broadcast(key.update)),
                            philox.splat(static_cast<uint32_t>(key.id))},
                           key.seed);
  Value position = b.create<arith::AndIOp>(elements, constant(3));
  Value chosen = words[0];
  for (int64_t i = 1; i < 4; ++i) {
    Value is = b.create<arith::CmpIOp>(arith::CmpIPredicate::eq, position, constant(i));
    chosen = b.create<arith::SelectOp>(is, words[i], chosen);
  }
  return toUniform(lanes, chosen);
}
