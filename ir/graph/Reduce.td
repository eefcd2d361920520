#ifndef SLUICE_IR_GRAPH_REDUCE_TD
#define SLUICE_IR_GRAPH_REDUCE_TD
include "ir/graph/GraphBase.td"

def Graph_ReduceOp : Graph_PureOp<"reduce", [Graph_Differentiates, Graph_Costs]> {
  let summary = "Reduces over `axes`: sum, max, min or prod";
  let description = [{
    `axes` is sorted. With `keep` the reduced dimensions stay as 1. Over no elements: 0, -inf, inf, 1. max and min keep NaN; their gradient is
    shared evenly among ties.
  }];
  let arguments = (ins Graph_NumTensor:$x, StrAttr:$kind, DenseI64ArrayAttr:$axes, UnitAttr:$keep);
  let results = (outs Graph_NumTensor:$y);
}
def Graph_ArgMaxOp : Graph_PureOp<"argmax", [Graph_Costs]> {
  let summary = "Index of the largest (with `minimum`, smallest) element along an axis, the first (with `last`, the last) of equals";
  let arguments = (ins Graph_NumTensor:$x, I64Attr:$axis, UnitAttr:$minimum, UnitAttr:$last, UnitAttr:$keep);
  let results = (outs Graph_IntTensor:$y);
}
def Graph_CumSumOp : Graph_PureOp<"cumsum", [Graph_Differentiates, Graph_Costs]> {
  let summary = "Running sum along an axis";
  let arguments = (ins Graph_NumTensor:$x, I64Attr:$axis, UnitAttr:$exclusive, UnitAttr:$reverse);
  let results = (outs Graph_NumTensor:$y);
}
#endif
