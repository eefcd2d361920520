#ifndef SLUICE_IR_GRAPH_CONTRACT_TD
#define SLUICE_IR_GRAPH_CONTRACT_TD
include "ir/graph/GraphBase.td"

def Graph_ContractOp : Graph_PureOp<"contract", [Graph_Differentiates, Graph_Costs, Graph_HasPrecision]> {
  let summary = "Sum of products over paired dimensions (any matrix product)";
  let description = [{
    `lhs_batch[i]` is paired with `rhs_batch[i]` and kept, `lhs_contract[i]` with `rhs_contract[i]` and summed over. Result dimensions:
    batch, then the free ones of lhs, then those of rhs, each in the order of their operand. Operands of 16 bits (bf16, f16) are summed in f32 and give f32, or with `round_to` that sum rounded once to the type.
  }];
  let arguments = (ins Graph_NumTensor:$lhs, Graph_NumTensor:$rhs, DenseI64ArrayAttr:$lhs_batch, DenseI64ArrayAttr:$rhs_batch,
    DenseI64ArrayAttr:$lhs_contract, DenseI64ArrayAttr:$rhs_contract, OptionalAttr<TypeAttr>:$round_to);
  let results = (outs Graph_NumTensor:$y);
  let builders = [OpBuilder<(ins "::mlir::Value":$lhs, "::mlir::Value":$rhs, "::llvm::ArrayRef<int64_t>":$lhs_batch, "::llvm::ArrayRef<int64_t>":$rhs_batch,
      "::llvm::ArrayRef<int64_t>":$lhs_contract, "::llvm::ArrayRef<int64_t>":$rhs_contract), [{
    build($_builder, $_state, lhs, rhs, lhs_batch, rhs_batch, lhs_contract, rhs_contract, ::mlir::TypeAttr());
  }]>];
}

// Operands of 16 bits and `round_to` as of contractions.
// Convolutions: x [N, C, spatial...], w [M, C / groups, kernel...], y [N, M, spatial...]; 1 to 3 spatial dimensions.
class Graph_ConvLike<string mnemonic, dag operands> : Graph_PureOp<mnemonic, [Graph_Differentiates, Graph_Costs, Graph_HasPrecision]> {
  dag geometry = (ins DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$dilations, DenseI64ArrayAttr:$pads_begin,
    DenseI64ArrayAttr:$pads_end, I64Attr:$groups);
  let arguments = !con(operands, geometry, (ins OptionalAttr<TypeAttr>:$round_to));
  let results = (outs Graph_FloatTensor:$y);
}
// Without `round_to`.
class Graph_ConvBuilder<dag operands, string names>
    : OpBuilder<!con(operands, (ins "::llvm::ArrayRef<int64_t>":$strides, "::llvm::ArrayRef<int64_t>":$dilations, "::llvm::ArrayRef<int64_t>":$pads_begin,
        "::llvm::ArrayRef<int64_t>":$pads_end, "uint64_t":$groups)), "build($_builder, $_state, " # names # ", strides, dilations, pads_begin, pads_end, groups, ::mlir::TypeAttr());">;
def Graph_ConvOp : Graph_ConvLike<"conv", (ins Graph_FloatTensor:$x, Graph_FloatTensor:$w)> {
  let summary = "Cross-correlation of x with the kernels w";
  let builders = [Graph_ConvBuilder<(ins "::mlir::Value":$x, "::mlir::Value":$w), "x, w">];
}
def Graph_ConvInputGradOp : Graph_ConvLike<"conv_input_grad",
    (ins Graph_FloatTensor:$dy, Graph_FloatTensor:$w, DenseI64ArrayAttr:$shape)> {
  let summary = "Adjoint of `conv` in x; `shape` is the spatial shape of x. Also the transposed convolution";
  let builders = [Graph_ConvBuilder<(ins "::mlir::Value":$dy, "::mlir::Value":$w, "::llvm::ArrayRef<int64_t>":$shape), "dy, w, shape">];
}
def Graph_ConvWeightGradOp : Graph_ConvLike<"conv_weight_grad",
    (ins Graph_FloatTensor:$x, Graph_FloatTensor:$dy, DenseI64ArrayAttr:$shape)> {
  let summary = "Adjoint of `conv` in w; `shape` is the spatial shape of w";
  let builders = [Graph_ConvBuilder<(ins "::mlir::Value":$x, "::mlir::Value":$dy, "::llvm::ArrayRef<int64_t>":$shape), "x, dy, shape">];
}
#endif
