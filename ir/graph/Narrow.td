#ifndef SLUICE_IR_GRAPH_NARROW_TD
#define SLUICE_IR_GRAPH_NARROW_TD
include "ir/graph/GraphBase.td"

// Forms in which state is stored in fewer bytes than it is computed in. Values between are f32.

def Graph_SplitHighOp : Graph_ElementwiseOp<"split_high"> {
  let summary = "The bf16 half of an f32 that `split_low` completes: its bits plus 0x8000, cut to the upper 16";
  let description = [{
    Ties round up in magnitude, so this is not `cast` to bf16 (nearest even) where the lower 16 bits are 0x8000: with those the remainder would not fit.
    NaN whose bits are from 0x7fff8000 on become 0; the pair is exact for them too.
  }];
  let arguments = (ins Graph_FloatTensor:$x);
  let results = (outs Graph_FloatTensor:$y);
}
def Graph_SplitLowOp : Graph_ElementwiseOp<"split_low"> {
  let summary = "The other half: the bits of x minus those of `split_high` of x, as i16";
  let arguments = (ins Graph_FloatTensor:$x);
  let results = (outs Graph_IntTensor:$y);
}
def Graph_JoinSplitOp : Graph_ElementwiseOp<"join_split"> {
  let summary = "The f32 that `split_high` and `split_low` took apart, bit for bit";
  let arguments = (ins Graph_FloatTensor:$high, Graph_IntTensor:$low);
  let results = (outs Graph_FloatTensor:$y);
}
def Graph_RoundStochasticOp : Graph_ElementwiseOp<"round_stochastic"> {
  let summary = "x as one of the two bf16 beside it, the upper one in magnitude with a probability equal to x's place between";
  let description = [{
    `random` is uniform in [0, 1) and counts in steps of 2^-16: floor(random * 2^16) is added to the bits of x, the upper 16 are the result. What bf16 holds stays; infinity and NaN stay.
  }];
  let arguments = (ins Graph_FloatTensor:$x, Graph_FloatTensor:$random);
  let results = (outs Graph_FloatTensor:$y);
}
def Graph_DynamicEncodeOp : Graph_ElementwiseOp<"dynamic_encode"> {
  let summary = "Code (i8) of the nearest value of the 8-bit dynamic map (Dettmers et al., 2022); x in [-1, 1], or [0, 1] with `positive`";
  let description = [{
    Seven decades below 1; decade 10^(i - 6), i = 0 to 6, is cut into 2^i equal parts (2^(i + 1) with `positive`) and its values are their middles; 0 and 1 complete the map. Codes: 0 is 0,
    -128 (`positive`: -1) is 1, else sign times 2^i + part (`positive`: the low 8 bits of 2^(i + 1) + part - 1). Between two values the nearer, on ties the larger in magnitude.
  }];
  let arguments = (ins Graph_FloatTensor:$x, UnitAttr:$positive);
  let results = (outs Graph_IntTensor:$y);
}
def Graph_DynamicDecodeOp : Graph_ElementwiseOp<"dynamic_decode"> {
  let summary = "The value that a code of `dynamic_encode` stands for, f32";
  let arguments = (ins Graph_IntTensor:$x, UnitAttr:$positive);
  let results = (outs Graph_FloatTensor:$y);
}
def Graph_RangeScaleOp : Graph_ElementwiseOp<"range_scale"> {
  let summary = "Scale of a block for `range_encode`, from its largest magnitude and the least that is not 0";
  let description = [{
    The largest magnitude with n in place of its last three bits: magnitudes relative to it are stored to the power k = 2^(n - 2). n is the largest of 2 to 5 (0 to 5 with `positive`) for which (least / largest)^k
    is not below 2^-9 / 448, what e4m3 can tell from 0 (range expansion of COAT, Xi et al., 2024, with powers of two), else the first. Below 2^-126 the scale is 0.
  }];
  let arguments = (ins Graph_FloatTensor:$largest, Graph_FloatTensor:$least, UnitAttr:$positive);
  let results = (outs Graph_FloatTensor:$y);
}
def Graph_RangeEncodeOp : Graph_ElementwiseOp<"range_encode"> {
  let summary = "Code (i8) of x in 8-bit floating point e4m3: 448 * (|x| / scale)^k, nearest, ties to even, with the sign of x";
  let description = [{
    `scale` and k come from `range_scale`. The power is square roots or products; more than 1 counts as 1. Codes are those of e4m3 but for -0 and NaN, which there are none of. With `positive` nothing
    above 0 becomes 0. All are 0 where the scale is below 2^-126 or NaN.
  }];
  let arguments = (ins Graph_FloatTensor:$x, Graph_FloatTensor:$scale, UnitAttr:$positive);
  let results = (outs Graph_IntTensor:$y);
}
def Graph_RangeDecodeOp : Graph_ElementwiseOp<"range_decode"> {
  let summary = "What a code of `range_encode` stands for: sign * (e4m3 / 448)^(1 / k) * scale, f32";
  let arguments = (ins Graph_IntTensor:$x, Graph_FloatTensor:$scale);
  let results = (outs Graph_FloatTensor:$y);
}
#endif
