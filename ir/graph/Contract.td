#ifndef SLUICE_IR_GRAPH_CONTRACT_TD
#define SLUICE_IR_GRAPH_CONTRACT_TD
include "ir/graph/GraphBase.td"

def Graph_ContractOp : Graph_PureOp<"contract", [Graph_Differentiates, Graph_Costs]> {
  let summary = "Sum of products over paired dimensions (any matrix product)";
  let description = [{
    `lhs_batch[i]` is paired with `rhs_batch[i]` and kept, `lhs_contract[i]` with `rhs_contract[i]` and summed over. Result dimensions:
    batch, then the free ones of lhs, then those of rhs, each in the order of their operand.
  }];
  let arguments = (ins Graph_NumTensor:$lhs, Graph_NumTensor:$rhs, DenseI64ArrayAttr:$lhs_batch, DenseI64ArrayAttr:$rhs_batch,
    DenseI64ArrayAttr:$lhs_contract, DenseI64ArrayAttr:$rhs_contract);
  let results = (outs Graph_NumTensor:$y);
}

// Convolutions: x [N, C, spatial...], w [M, C / groups, kernel...], y [N, M, spatial...]; 1 to 3 spatial dimensions.
class Graph_ConvLike<string mnemonic, dag operands> : Graph_PureOp<mnemonic, [Graph_Differentiates, Graph_Costs]> {
  dag geometry = (ins DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$dilations, DenseI64ArrayAttr:$pads_begin,
    DenseI64ArrayAttr:$pads_end, I64Attr:$groups);
  let arguments = !con(operands, geometry);
  let results = (outs Graph_FloatTensor:$y);
}
def Graph_ConvOp : Graph_ConvLike<"conv", (ins Graph_FloatTensor:$x, Graph_FloatTensor:$w)> {
  let summary = "Cross-correlation of x with the kernels w";
}
def Graph_ConvInputGradOp : Graph_ConvLike<"conv_input_grad",
    (ins Graph_FloatTensor:$dy, Graph_FloatTensor:$w, DenseI64ArrayAttr:$shape)> {
  let summary = "Adjoint of `conv` in x; `shape` is the spatial shape of x. Also the transposed convolution";
}
def Graph_ConvWeightGradOp : Graph_ConvLike<"conv_weight_grad",
    (ins Graph_FloatTensor:$x, Graph_FloatTensor:$dy, DenseI64ArrayAttr:$shape)> {
  let summary = "Adjoint of `conv` in w; `shape` is the spatial shape of w";
}
#endif
