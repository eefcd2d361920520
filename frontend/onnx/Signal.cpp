// Fourier transforms as products with constant matrices, and window functions.
#include "frontend/onnx/Limits.h"
#include "frontend/onnx/OpTable.h"

#include <cmath>
#include <numbers>

namespace sluice::frontend {

namespace {

constexpr double pi = std::numbers::pi;

/// [length, bins, 2]: real and imaginary part of e^(-2 pi i k t / length); positive for
/// the inverse.
Value fourierMatrix(Emitter &e, Type type, int64_t length, int64_t bins, bool inverse) {
  if (length < 1 || elementCount({length, bins, 2}) > foldLarge)
    return e.fail("a transform of " + llvm::Twine(length) + " samples is not supported");
  auto matrix =
      graph::HostTensor::zeros(mlir::RankedTensorType::get({length, bins, 2}, type));
  for (int64_t t = 0; t < length; ++t)
    for (int64_t k = 0; k < bins; ++k) {
      double angle = 2 * pi * double((t * k) % length) / double(length);
      matrix.reals[(t * bins + k) * 2] = std::cos(angle);
      matrix.reals[(t * bins + k) * 2 + 1] = inverse ? std::sin(angle) : -std::sin(angle);
    }
  return e.constant(matrix);
}

/// x [..., length, 1 or 2] (real, or real and imaginary) to [..., bins, 2].
Value transform(Emitter &e, Value x, int64_t bins, bool inverse) {
  if (!x)
    return x;
  int64_t last = rankOf(x) - 1, length = dimOf(x, last - 1);
  Value matrix = fourierMatrix(e, elementOf(x), length, bins, inverse);
  auto times = [&](int64_t part) {
    Value real = e.squeeze(e.sliceAxis(x, last, part, 1), last);
    return real ? e.contract(real, matrix, {}, {}, {last - 1}, {0}) : real;
  };
  Value y = times(0);
  if (dimOf(x, last) == 2) { // i (a + b i) = -b + a i
    Value z = times(1);
    if (!z)
      return {};
    Value a = e.sliceAxis(z, last, 0, 1), b = e.sliceAxis(z, last, 1, 1);
    y = e.add(y, e.concat({e.un("neg", b), a}, last));
  }
  return inverse && y ? e.mul(y, 1.0 / double(length)) : y;
}

/// Cuts or extends with zeros.
Value fitLength(Emitter &e, Value x, int64_t axis, int64_t length) {
  if (dimOf(x, axis) >= length)
    return e.sliceAxis(x, axis, 0, length);
  Ints low(rankOf(x), 0), high(rankOf(x), 0);
  high[axis] = length - dimOf(x, axis);
  return e.pad(x, low, high, 0);
}

LogicalResult importDft(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  int64_t given = n.i("axis", 1);
  if (n.version >= 20) {
    auto operand = n.has(2) ? n.ints(2) : Ints{-2};
    if (!operand || operand->size() != 1)
      return failure();
    given = (*operand)[0];
  }
  auto axis = x ? n.axis(given, rankOf(x)) : std::nullopt;
  if (!axis || rankOf(x) < 2 || *axis == rankOf(x) - 1 || dimOf(x, rankOf(x) - 1) > 2)
    return n.fail("the operand needs samples and a last dimension of 1 or 2");
  int64_t length = dimOf(x, *axis);
  if (n.has(1)) {
    auto asked = n.ints(1);
    if (!asked || asked->size() != 1 || (*asked)[0] < 1 || (*asked)[0] > foldLarge)
      return n.fail("dft_length is not known or out of range");
    length = (*asked)[0];
  }
  int64_t bins = n.i("onesided", 0) ? length / 2 + 1 : length, samples = rankOf(x) - 2;
  Value moved = e.swap(fitLength(e, x, *axis, length), *axis, samples);
  Value y = transform(e, moved, bins, n.i("inverse", 0));
  return n.out(y ? e.swap(y, *axis, samples) : y);
}

LogicalResult importStft(Node &n) {
  Emitter &e = n.e;
  Value signal = n.in(0), window = n.has(2) ? n.in(2) : Value();
  auto step = n.ints(1);
  if (!signal || !step || step->size() != 1 || (*step)[0] < 1)
    return n.fail("frame_step is not known");
  if (rankOf(signal) == 2)
    signal = e.unsqueeze(signal, 2);
  int64_t length = window ? elementCount(shapeOf(window)) : 0;
  if (n.has(3)) {
    auto asked = n.ints(3);
    if (!asked || asked->size() != 1)
      return failure();
    length = (*asked)[0];
  }
  if (rankOf(signal) != 3 || length < 1 || length > dimOf(signal, 1) ||
      dimOf(signal, 2) > 2)
    return n.fail("the frame length does not fit the signal");
  int64_t frames = (dimOf(signal, 1) - length) / (*step)[0] + 1;
  if (elementCount({frames, length}) > foldLarge)
    return n.fail("too many frames");
  graph::HostTensor at = graph::HostTensor::zeros(
      mlir::RankedTensorType::get({frames, length}, e.i64Type()));
  for (int64_t i = 0; i < frames * length; ++i)
    at.integers[i] = i / length * (*step)[0] + i % length;
  Value cut = e.gather(signal, e.constant(at), 1); // [batch, frames, length, parts]
  if (window && cut)
    cut = e.mul(cut, e.along(fitLength(e, window, 0, length), shapeOf(cut), 2));
  return n.out(transform(e, cut, n.i("onesided", 1) ? length / 2 + 1 : length, false));
}

/// a0 - a1 cos(2 pi t / N) + a2 cos(4 pi t / N)
LogicalResult cosineWindow(Node &n, double a0, double a1, double a2) {
  auto size = n.ints(0);
  Type type = elementType(n.e.context(), int32_t(n.i("output_datatype", 1)));
  if (!size || size->size() != 1 || (*size)[0] < 0 || (*size)[0] > foldLarge || !type)
    return n.fail("the size is not known or out of range");
  int64_t count = (*size)[0];
  double period = n.i("periodic", 1) ? double(count) : double(count - 1);
  auto window = graph::HostTensor::zeros(mlir::RankedTensorType::get({count}, n.e.f32()));
  for (int64_t t = 0; t < count; ++t) {
    double angle = 2 * pi * double(t) / period;
    window.reals[t] = a0 - a1 * std::cos(angle) + a2 * std::cos(2 * angle);
  }
  return n.out(n.e.cast(n.e.constant(window), type));
}
LogicalResult importHann(Node &n) { return cosineWindow(n, 0.5, 0.5, 0); }
LogicalResult importHamming(Node &n) { return cosineWindow(n, 25.0 / 46, 21.0 / 46, 0); }
LogicalResult importBlackman(Node &n) { return cosineWindow(n, 0.42, 0.5, 0.08); }

LogicalResult importMelWeights(Node &n) {
  Ints p;
  llvm::SmallVector<double> edges;
  for (int i = 0; i < 5; ++i) {
    auto v = n.constant(i);
    if (!v || v->size() != 1)
      return failure();
    double number = v->isReal() ? v->reals[0] : double(v->integers[0]);
    i < 3 ? p.push_back(toInteger(number)) : edges.push_back(number);
  }
  int64_t mels = p[0], length = p[1], rate = p[2], bins = length / 2 + 1;
  if (mels < 1 || length < 1 || rate < 1 || elementCount({bins, mels}) > foldLarge)
    return n.fail("the sizes are out of range");
  auto toMel = [](double hz) { return 2595 * std::log10(1 + hz / 700); };
  double low = toMel(edges[0]), stride = (toMel(edges[1]) - low) / double(mels + 2);
  std::vector<int64_t> bin;
  for (int64_t i = 0; i < mels + 2; ++i) {
    double hz = 700 * (std::pow(10, (double(i) * stride + low) / 2595) - 1);
    bin.push_back(toInteger(double(length + 1) * hz / double(rate)));
  }
  auto matrix =
      graph::HostTensor::zeros(mlir::RankedTensorType::get({bins, mels}, n.e.f32()));
  for (int64_t m = 0; m < mels; ++m) {
    int64_t left = bin[m], centre = bin[m + 1], right = bin[m + 2];
    auto set = [&](int64_t k, double v) {
      if (k >= 0 && k < bins)
        matrix.reals[k * mels + m] = v;
    };
    if (centre == left)
      set(centre, 1);
    for (int64_t k = left; k <= centre && centre > left && k < bins; ++k)
      set(k, double(k - left) / double(centre - left));
    for (int64_t k = centre; k < right && k < bins; ++k)
      set(k, double(right - k) / double(right - centre));
  }
  Type type = elementType(n.e.context(), int32_t(n.i("output_datatype", 1)));
  return type ? n.out(n.e.cast(n.e.constant(matrix), type)) : failure();
}

} // namespace

void addSignal(OpTable &table) {
  table["DFT"] = importDft;
  table["STFT"] = importStft;
  table["HannWindow"] = importHann;
  table["HammingWindow"] = importHamming;
  table["BlackmanWindow"] = importBlackman;
  table["MelWeightMatrix"] = importMelWeights;
}

} // namespace sluice::frontend
