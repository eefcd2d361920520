#ifndef SLUICE_IR_GRAPH_SHAPE_TD
#define SLUICE_IR_GRAPH_SHAPE_TD
include "ir/graph/GraphBase.td"

class Graph_ShapeOp<string mnemonic> : Graph_PureOp<mnemonic, [Graph_Differentiates, Graph_HasPrecision]> {
  let arguments = (ins Graph_Tensor:$x);
  let results = (outs Graph_Tensor:$y);
}
def Graph_ReshapeOp : Graph_ShapeOp<"reshape"> {
  let summary = "Same elements in row-major order under another shape; a view";
  let arguments = (ins Graph_Tensor:$x, DenseI64ArrayAttr:$shape);
  let hasFolder = 1;
}
def Graph_TransposeOp : Graph_ShapeOp<"transpose"> {
  let summary = "y.dim(i) = x.dim(permutation[i])";
  let arguments = (ins Graph_Tensor:$x, DenseI64ArrayAttr:$permutation);
  let hasFolder = 1;
}
def Graph_BroadcastOp : Graph_ShapeOp<"broadcast"> {
  let summary = "Repeats dimensions of size 1; shapes are aligned at the last dimension, as NumPy does";
  let arguments = (ins Graph_Tensor:$x, DenseI64ArrayAttr:$shape);
  let hasFolder = 1;
}
def Graph_SliceOp : Graph_ShapeOp<"slice"> {
  let summary = "y[i] = x[starts + i * steps], `sizes` elements per dimension; steps may be negative";
  let arguments = (ins Graph_Tensor:$x, DenseI64ArrayAttr:$starts, DenseI64ArrayAttr:$sizes, DenseI64ArrayAttr:$steps);
  let hasFolder = 1;
}
def Graph_PadOp : Graph_ShapeOp<"pad"> {
  let summary = "Surrounds x by `value`; `low` and `high` elements per dimension, none negative";
  let arguments = (ins Graph_Tensor:$x, DenseI64ArrayAttr:$low, DenseI64ArrayAttr:$high, F64Attr:$value);
}
def Graph_ConcatOp : Graph_PureOp<"concat", [Graph_Differentiates, Graph_HasPrecision]> {
  let summary = "Joins tensors along a dimension";
  let arguments = (ins Variadic<Graph_Tensor>:$inputs, I64Attr:$axis);
  let results = (outs Graph_Tensor:$y);
}
#endif
