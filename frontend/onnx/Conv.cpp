// Convolutions and their geometry.
#include "frontend/onnx/Limits.h"
#include "frontend/onnx/OpTable.h"
#include "frontend/onnx/Window.h"

namespace sluice::frontend {

std::optional<Window> readWindow(Node &n, llvm::ArrayRef<int64_t> spatial,
                                 std::optional<Ints> kernel) {
  size_t rank = spatial.size();
  auto bad = [&](const llvm::Twine &text) {
    n.e.fail(text);
    return std::nullopt;
  };
  Window w;
  auto given = n.is("kernel_shape");
  if (!kernel && !given)
    return bad("attribute 'kernel_shape' is missing");
  w.kernel = kernel ? *kernel : *given;
  if (given && kernel && *given != *kernel)
    return bad("attribute 'kernel_shape' differs from the weights' shape");
  w.strides = n.is("strides").value_or(Ints(rank, 1));
  w.dilations = n.is("dilations").value_or(Ints(rank, 1));
  Ints pads = n.is("pads").value_or(Ints(2 * rank, 0));
  if (rank < 1 || rank > 3)
    return bad(llvm::Twine(rank) + " spatial dimensions, expected 1 to 3");
  if (w.kernel.size() != rank || w.strides.size() != rank || w.dilations.size() != rank ||
      pads.size() != 2 * rank)
    return bad("kernel_shape, strides, dilations or pads do not fit " +
               llvm::Twine(rank) + " spatial dimensions");
  auto outside = [](int64_t low) {
    return [low](int64_t v) { return v < low || v > (int64_t(1) << 31); };
  };
  if (llvm::any_of(w.kernel, outside(1)) || llvm::any_of(w.strides, outside(1)) ||
      llvm::any_of(w.dilations, outside(1)) || llvm::any_of(pads, outside(0)))
    return bad("kernel_shape, strides, dilations or pads have a value out of range");
  for (size_t i = 0; i < rank; ++i)
    if (w.extent(i) > int64_t(1) << 31)
      return bad("the window reaches over more than 2^31 elements");
  w.begin.assign(pads.begin(), pads.begin() + rank);
  w.end.assign(pads.begin() + rank, pads.end());
  std::string mode = n.s("auto_pad", "NOTSET");
  if (mode == "VALID")
    w.begin.assign(rank, 0), w.end.assign(rank, 0);
  if (mode != "SAME_UPPER" && mode != "SAME_LOWER")
    return w;
  for (size_t i = 0; i < rank; ++i) {
    int64_t out = (spatial[i] + w.strides[i] - 1) / w.strides[i];
    int64_t total =
        std::max<int64_t>((out - 1) * w.strides[i] + w.extent(i) - spatial[i], 0);
    w.begin[i] = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
    w.end[i] = total - w.begin[i];
  }
  return w;
}

std::optional<Ints> windowOutput(Node &n, const Window &w,
                                 llvm::ArrayRef<int64_t> spatial, bool ceil) {
  Ints output;
  for (size_t i = 0; i < spatial.size(); ++i) {
    int64_t room = spatial[i] + w.begin[i] + w.end[i] - w.extent(i);
    if (room < 0 && !(ceil && room > -w.strides[i])) {
      n.e.fail("the window (" + shapeText(w.kernel) +
               ") is larger than the padded operand (" + shapeText(spatial) + ")");
      return std::nullopt;
    }
    int64_t count = (room + (ceil ? w.strides[i] - 1 : 0)) / w.strides[i] + 1;
    if (ceil && (count - 1) * w.strides[i] >= spatial[i] + w.begin[i])
      --count; // a window that starts in the padding behind the operand
    output.push_back(count);
  }
  return output;
}

llvm::SmallVector<mlir::NamedAttribute> windowAttributes(Emitter &e, const Window &w) {
  return {e.i64s("strides", w.strides), e.i64s("dilations", w.dilations),
          e.i64s("pads_begin", w.begin), e.i64s("pads_end", w.end)};
}

Value convolution(Node &n, Value x, Value w, Value bias) {
  if (!x || !w)
    return {};
  int64_t groups = n.i("group", 1), rank = rankOf(x);
  if (rank < 3 || rankOf(w) != rank)
    return n.e.fail("operands have shapes " + shapeText(shapeOf(x)) + " and " +
                    shapeText(shapeOf(w)) + ", expected equal ranks of 3 or more");
  if (groups < 1 || dimOf(x, 1) != dimOf(w, 1) * groups || dimOf(w, 0) % groups != 0)
    return n.e.fail("operand 1 has shape " + shapeText(shapeOf(w)) +
                    ", which does not fit " + llvm::Twine(dimOf(x, 1)) + " channels in " +
                    llvm::Twine(groups) + " groups");
  auto spatial = shapeOf(x).drop_front(2);
  auto window = readWindow(n, spatial, Ints(shapeOf(w).drop_front(2)));
  if (!window || !windowOutput(n, *window, spatial, false))
    return {};
  auto attributes = windowAttributes(n.e, *window);
  attributes.push_back(n.e.i64("groups", groups));
  n.e.roundTo16(x, attributes);
  Value y = n.e.op("conv", {x, w}, attributes);
  return y && bias ? n.e.add(y, n.e.along(bias, shapeOf(y), 1)) : y;
}

namespace {

LogicalResult importConv(Node &n) {
  return n.out(convolution(n, n.in(0), n.in(1), n.has(2) ? n.in(2) : Value()));
}

/// Spatial shape and padding of a transposed convolution; `extra` elements of zeros
/// follow where output_padding or output_shape ask for more than the kernel reaches.
struct Transposed {
  Window window;
  Ints output, extra;
};
std::optional<Transposed> readTransposed(Node &n, llvm::ArrayRef<int64_t> spatial,
                                         Ints kernel) {
  size_t rank = spatial.size();
  Ints extra = n.is("output_padding").value_or(Ints(rank, 0));
  auto asked = n.is("output_shape");
  std::string mode = n.s("auto_pad", "NOTSET");
  auto window = readWindow(n, spatial, std::move(kernel));
  if (!window)
    return std::nullopt;
  if (asked && asked->size() == rank + 2)
    asked->erase(asked->begin(), asked->begin() + 2);
  if (extra.size() != rank || (asked && asked->size() != rank) ||
      llvm::any_of(extra, [](int64_t v) { return v < 0 || v > (1 << 20); })) {
    n.e.fail("output_padding or output_shape do not fit");
    return std::nullopt;
  }
  if (asked && llvm::any_of(*asked, [](int64_t v) { return v < 1 || v > maxElements; })) {
    n.e.fail("output_shape is out of range");
    return std::nullopt;
  }
  Transposed t{*window, {}, {}};
  Window &w = t.window;
  bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
  for (size_t i = 0; i < rank; ++i) {
    if (elementCount({spatial[i], w.strides[i]}) > maxElements) {
      n.e.fail("the output would be too large");
      return std::nullopt;
    }
    int64_t full = w.strides[i] * (spatial[i] - 1) + w.extent(i);
    if (asked || same) {
      int64_t size = asked ? (*asked)[i] : spatial[i] * w.strides[i];
      int64_t total = full + extra[i] - size;
      w.begin[i] = total <= 0 ? 0 : mode == "SAME_UPPER" ? total / 2 : total - total / 2;
      w.end[i] = total <= 0 ? 0 : total - w.begin[i];
      extra[i] = total < 0 ? extra[i] - total : extra[i];
    }
    int64_t reached = std::min(extra[i], w.strides[i] - 1);
    t.output.push_back(full - w.begin[i] - w.end[i] + reached);
    t.extra.push_back(extra[i] - reached);
    if (t.output[i] <= 0) {
      n.e.fail("the padding is larger than the output");
      return std::nullopt;
    }
  }
  return t;
}

LogicalResult importConvTranspose(Node &n) {
  Value x = n.in(0), w = n.in(1);
  if (!x || !w)
    return failure();
  int64_t groups = n.i("group", 1), rank = rankOf(x);
  if (rank < 3 || rankOf(w) != rank || groups < 1 || dimOf(x, 1) != dimOf(w, 0) ||
      dimOf(x, 1) % groups != 0)
    return n.fail("operands have shapes " + shapeText(shapeOf(x)) + " and " +
                  shapeText(shapeOf(w)) + ", which do not fit each other");
  auto t = readTransposed(n, shapeOf(x).drop_front(2), Ints(shapeOf(w).drop_front(2)));
  if (!t)
    return failure();
  auto attributes = windowAttributes(n.e, t->window);
  attributes.push_back(n.e.i64("groups", groups));
  n.e.roundTo16(x, attributes);
  attributes.push_back(n.e.i64s("shape", t->output));
  Value y = n.e.op("conv_input_grad", {x, w}, attributes);
  Ints low(rank, 0), high = {0, 0};
  high.append(t->extra.begin(), t->extra.end());
  y = n.e.pad(y, low, high, 0);
  if (y && n.has(2))
    y = n.e.add(y, n.e.along(n.in(2), shapeOf(y), 1));
  return n.out(y);
}

} // namespace

void addConv(OpTable &table) {
  table["Conv"] = importConv;
  table["ConvTranspose"] = importConvTranspose;
}

} // namespace sluice::frontend
