#ifndef SLUICE_IR_GRAPH_INDEX_TD
#define SLUICE_IR_GRAPH_INDEX_TD
include "ir/graph/GraphBase.td"

def Graph_IotaOp : Graph_PureOp<"iota"> {
  let summary = "i64 positions along `axis`, constant along the others";
  let arguments = (ins DenseI64ArrayAttr:$shape, I64Attr:$axis);
  let results = (outs Graph_IntTensor:$y);
  let assemblyFormat = "attr-dict `:` type($y)";
}
def Graph_GatherOp : Graph_PureOp<"gather", [Graph_Differentiates, Graph_HasPrecision]> {
  let summary = "Rows of x along `axis` chosen by indices (ONNX Gather); negative indices count from the end";
  let description = "Result shape: x.shape[:axis] + indices.shape + x.shape[axis+1:]. An index out of range reads as zeros.";
  let arguments = (ins Graph_Tensor:$x, Graph_IntTensor:$indices, I64Attr:$axis);
  let results = (outs Graph_Tensor:$y);
}
def Graph_ScatterAddOp : Graph_PureOp<"scatter_add", [Graph_Differentiates, Graph_Costs]> {
  let summary = "Adjoint of `gather`: adds `updates` into zeros of `size` rows along `axis`, in order of the indices";
  let arguments = (ins Graph_IntTensor:$indices, Graph_NumTensor:$updates, I64Attr:$size, I64Attr:$axis);
  let results = (outs Graph_NumTensor:$y);
}
def Graph_GatherElementsOp : Graph_PureOp<"gather_elements", [Graph_Differentiates]> {
  let summary = "y[..., i, ...] = x[..., indices[..., i, ...], ...] along `axis` (ONNX GatherElements)";
  let arguments = (ins Graph_Tensor:$x, Graph_IntTensor:$indices, I64Attr:$axis);
  let results = (outs Graph_Tensor:$y);
}
def Graph_ScatterElementsOp : Graph_PureOp<"scatter_elements", [Graph_Differentiates, Graph_Costs]> {
  let summary = "x with elements replaced by updates, or combined with them (ONNX ScatterElements)";
  let description = [{
    `reduction` is none (the last update to an element wins), add, mul, max or min. max and min keep NaN; their gradient is shared evenly among ties.
  }];
  let arguments = (ins Graph_Tensor:$x, Graph_IntTensor:$indices, Graph_Tensor:$updates, I64Attr:$axis, DefaultValuedAttr<StrAttr, "\"none\"">:$reduction);
  let results = (outs Graph_Tensor:$y);
}
#endif
