#ifndef SLUICE_IR_GRAPH_STORED_TD
#define SLUICE_IR_GRAPH_STORED_TD
include "ir/graph/GraphBase.td"

// Forms of a few bits that tensors are stored in (kernels/StoredFormats.h). What stands between `quantize` and `dequantize` is codes;
// values beside them are f32. They are built behind the gradients: what a rounding has in place of one is that of the value itself.

def Graph_QuantizeOp : Graph_PureOp<"quantize", [Graph_Decomposes]> {
  let summary = "Codes of x in a stored format, and what scales them";
  let description = [{
    Results: codes (16 bits: the values; 8 bits: i8 of the shape of x; 4 bits: i8, half as many, element i in the lower half of byte i, element i + n / 2 in its upper), then the scales: none; f32 per block (largest
    magnitude / largest number); i8 per block (E8M0, the least power of two that holds the block); or i8 per block (e4m3) and an f32 for the tensor. Blocks of 1 x n are n elements in row-major order, tiles those of the matrix
    that has dimension 0 as rows. A scale below 2^-126 is 0, and so are the codes under it; the codes of a block with NaN or infinity decode to nothing finite.
    Inputs: x; with `given` the f32 scale of the whole tensor, larger values counting as the largest; with `stochastic` random numbers in [0, 1) of the shape of x, else codes are the nearest, ties to even.
  }];
  let arguments = (ins Variadic<Graph_FloatTensor>:$inputs, StrAttr:$format, UnitAttr:$given, UnitAttr:$stochastic);
  let results = (outs Variadic<Graph_NumTensor>:$stored);
  let extraClassDeclaration = [{
    ::mlir::Value getX() { return getInputs().front(); }
    ::mlir::Value getScale() { return getGiven() ? getInputs()[1] : ::mlir::Value(); }
    ::mlir::Value getNoise() { return getStochastic() ? getInputs().back() : ::mlir::Value(); }
  }];
}
def Graph_DequantizeOp : Graph_PureOp<"dequantize", [Graph_Decomposes]> {
  let summary = "The f32 values of what `quantize` gives";
  let description = [{
    `site` tells readers apart: values of different sites are not shared, so that what is decoded need not be kept from one to the other.
  }];
  let arguments = (ins Variadic<Graph_NumTensor>:$stored, StrAttr:$format, DenseI64ArrayAttr:$shape, DefaultValuedAttr<I64Attr, "0">:$site);
  let results = (outs Graph_FloatTensor:$y);
}

def Graph_MiniEncodeOp : Graph_ElementwiseOp<"mini_encode"> {
  let summary = "Code (i8) of x times 1 / scale in e4m3, e5m2 or e2m1; larger magnitudes count as the largest";
  let description = [{
    To nearest, ties to even; with `noise`, uniform in [0, 1), up where the place between the two neighbours and the noise are 1 or more. A scale below 2^-126 gives zeros. NaN is 0x7F, and 0 in e2m1.
  }];
  let arguments = (ins Graph_FloatTensor:$x, Graph_FloatTensor:$scale, Optional<Graph_FloatTensor>:$noise, StrAttr:$format);
  let results = (outs Graph_IntTensor:$y);
}
def Graph_MiniDecodeOp : Graph_ElementwiseOp<"mini_decode"> {
  let summary = "What a code of `mini_encode` stands for: its value times scale, f32";
  let arguments = (ins Graph_IntTensor:$x, Graph_FloatTensor:$scale, StrAttr:$format, DefaultValuedAttr<I64Attr, "0">:$site);
  let results = (outs Graph_FloatTensor:$y);
}
def Graph_PowerCodeOp : Graph_ElementwiseOp<"power_code"> {
  let summary = "E8M0 (i8) of the least power of two that brings magnitudes up to x within e4m3 or e2m1; 2^-126 at least, NaN (255) for infinity and NaN";
  let arguments = (ins Graph_FloatTensor:$x, StrAttr:$format);
  let results = (outs Graph_IntTensor:$y);
}
def Graph_PowerValueOp : Graph_ElementwiseOp<"power_value"> {
  let summary = "The power of two that a code of `power_code` stands for, f32";
  let arguments = (ins Graph_IntTensor:$x);
  let results = (outs Graph_FloatTensor:$y);
}
def Graph_PackNibblesOp : Graph_ElementwiseOp<"pack_nibbles"> {
  let summary = "Bytes (i8) of two codes of 4 bits";
  let arguments = (ins Graph_IntTensor:$low, Graph_IntTensor:$high);
  let results = (outs Graph_IntTensor:$y);
}
def Graph_UnpackNibbleOp : Graph_ElementwiseOp<"unpack_nibble"> {
  let summary = "The lower (with `high`, the upper) code of 4 bits of a byte";
  let arguments = (ins Graph_IntTensor:$x, UnitAttr:$high);
  let results = (outs Graph_IntTensor:$y);
}
def Graph_RoundHalfOp : Graph_ElementwiseOp<"round_half"> {
  let summary = "`round_stochastic` to f16; what is larger than its largest number becomes that";
  let arguments = (ins Graph_FloatTensor:$x, Graph_FloatTensor:$random);
  let results = (outs Graph_FloatTensor:$y);
}
#endif
