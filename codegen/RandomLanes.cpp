// Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#include "codegen/RandomLanes.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <array>

using namespace mlir;
using namespace sluice;

namespace {
using Words = std::array<Value, 4>;

/// The bijection on `width` counters at once, each word a vector of i32.
class Philox {
public:
  Philox(ImplicitLocOpBuilder &builder, int64_t width)
      : b(builder), word(VectorType::get({width}, b.getI32Type())),
        wide(VectorType::get({width}, b.getI64Type())) {}

  Value splat(uint32_t value) {
    return b.create<arith::ConstantOp>(
        DenseElementsAttr::get(word, b.getI32IntegerAttr(static_cast<int32_t>(value))));
  }
  /// The low 32 bits of an i64 scalar, in all lanes.
  Value lowWord(Value scalar) {
    return b.create<vector::BroadcastOp>(
        word, b.create<arith::TruncIOp>(b.getI32Type(), scalar));
  }
  Value highWord(Value scalar) {
    Value shift = b.create<arith::ConstantIntOp>(32, 64);
    return lowWord(b.create<arith::ShRUIOp>(scalar, shift));
  }

  Words run(Words counter, const RandomKeyScalars &key) {
    Value key0 = lowWord(key.seed), key1 = highWord(key.seed);
    for (int round = 0; round < 10; ++round) {
      auto [high0, low0] = multiply(0xD2511F53u, counter[0]);
      auto [high1, low1] = multiply(0xCD9E8D57u, counter[2]);
      counter = {exclusiveOr(high1, counter[1], key0), low1,
                 exclusiveOr(high0, counter[3], key1), low0};
      key0 = b.create<arith::AddIOp>(key0, splat(0x9E3779B9u));
      key1 = b.create<arith::AddIOp>(key1, splat(0xBB67AE85u));
    }
    return counter;
  }

private:
  std::pair<Value, Value> multiply(uint32_t factor, Value x) {
    auto constant = [&](int64_t value) {
      return b.create<arith::ConstantOp>(
          DenseElementsAttr::get(wide, b.getI64IntegerAttr(value)));
    };
    Value product =
        b.create<arith::MulIOp>(b.create<arith::ExtUIOp>(wide, x), constant(factor));
    Value high = b.create<arith::ShRUIOp>(product, constant(32));
    return {b.create<arith::TruncIOp>(word, high),
            b.create<arith::TruncIOp>(word, product)};
  }
  Value exclusiveOr(Value x, Value y, Value z) {
    return b.create<arith::XOrIOp>(b.create<arith::XOrIOp>(x, y), z);
  }

  ImplicitLocOpBuilder &b;
  VectorType word, wide;
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
  Philox philox(b, 4);
  Value first = philox.lowWord(b.create<arith::ShRUIOp>(element, lanes.constant(2)));
  auto steps = DenseIntElementsAttr::get(cast<VectorType>(first.getType()),
                                         ArrayRef<int32_t>{0, 1, 2, 3});
  Value counter = b.create<arith::AddIOp>(first, b.create<arith::ConstantOp>(steps));
  Words words = philox.run({counter, philox.lowWord(sample), philox.lowWord(key.update),
                            philox.splat(static_cast<uint32_t>(key.id))},
                           key);
  // Word j of counter i is element 4 * i + j.
  SmallVector<int64_t> zip = {0, 4, 1, 5, 2, 6, 3, 7};
  SmallVector<int64_t> zipPairs = {0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15};
  Value low = b.create<vector::ShuffleOp>(words[0], words[1], zip);
  Value high = b.create<vector::ShuffleOp>(words[2], words[3], zip);
  return toUniform(lanes, b.create<vector::ShuffleOp>(low, high, zipPairs));
}

Value sluice::emitRandomLanes(LaneBuilder &lanes, const RandomKeyScalars &key,
                              Value samples, Value elements) {
  ImplicitLocOpBuilder &b = lanes.b;
  Philox philox(b, LaneBuilder::lanes);
  VectorType wordType = lanes.vectorType(b.getI32Type());
  auto constant = [&](int64_t value) {
    return lanes.splat(b.getI64IntegerAttr(value), b.getI64Type());
  };
  Value counter = b.create<arith::TruncIOp>(
      wordType, b.create<arith::ShRUIOp>(elements, constant(2)));
  Value sampleWord = b.create<arith::TruncIOp>(wordType, samples);
  Words words = philox.run({counter, sampleWord, philox.lowWord(key.update),
                            philox.splat(static_cast<uint32_t>(key.id))},
                           key);
  Value position = b.create<arith::AndIOp>(elements, constant(3));
  Value chosen = words[0];
  for (int64_t i = 1; i < 4; ++i) {
    Value is = b.create<arith::CmpIOp>(arith::CmpIPredicate::eq, position, constant(i));
    chosen = b.create<arith::SelectOp>(is, words[i], chosen);
  }
  return toUniform(lanes, chosen);
}
