#ifndef SLUICE_IR_GRAPH_POOL_TD
#define SLUICE_IR_GRAPH_POOL_TD
include "ir/graph/GraphBase.td"

// x [N, C, spatial...] -> y [N, C, output...]; `output` is the spatial shape of y (rounding is decided at import).
class Graph_PoolLike<string mnemonic, dag operands, dag more, list<Trait> traits> : Graph_PureOp<mnemonic, !listconcat([Graph_Costs], traits)> {
  dag geometry = (ins DenseI64ArrayAttr:$kernel, DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$dilations, DenseI64ArrayAttr:$pads_begin,
    DenseI64ArrayAttr:$pads_end, DenseI64ArrayAttr:$output);
  let arguments = !con(operands, geometry, more);
  let results = (outs Graph_FloatTensor:$y);
}
def Graph_MaxPoolOp : Graph_PoolLike<"max_pool", (ins Graph_FloatTensor:$x), (ins), [Graph_Differentiates, Graph_HasPrecision]> {
  let summary = "Maximum of each window; padding never wins, NaN does";
}
def Graph_MaxPoolGradOp : Graph_PoolLike<"max_pool_grad", (ins Graph_FloatTensor:$x, Graph_FloatTensor:$dy), (ins), []> {
  let summary = "Adjoint of `max_pool`: dy goes to the first maximum of its window";
}
def Graph_AvgPoolOp : Graph_PoolLike<"avg_pool", (ins Graph_FloatTensor:$x), (ins UnitAttr:$count_include_pad), [Graph_Differentiates]> {
  let summary = "Mean of each window; without `count_include_pad` over the elements inside x";
}
def Graph_AvgPoolGradOp : Graph_PoolLike<"avg_pool_grad", (ins Graph_FloatTensor:$dy),
    (ins UnitAttr:$count_include_pad, DenseI64ArrayAttr:$shape), [Graph_Differentiates]> {
  let summary = "Adjoint of `avg_pool`; `shape` is the spatial shape of x";
}
#endif
