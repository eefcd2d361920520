#ifndef SLUICE_IR_GRAPH_COLLECTIVE_TD
#define SLUICE_IR_GRAPH_COLLECTIVE_TD
include "ir/graph/GraphBase.td"

// The effects keep every rank's sequence of collectives as it was built: none is joined with another, removed, run again or moved into a region.
class Graph_CollectiveOp<string mnemonic, list<Trait> traits = []>
    : Graph_Op<mnemonic, !listconcat([MemoryEffects<[MemRead, MemWrite]>, InferTypeOpAdaptor, DeclareOpInterfaceMethods<Graph_Evaluable>,
        DeclareOpInterfaceMethods<Graph_Collective>], traits)>;

def Graph_AllReduceOp : Graph_CollectiveOp<"all_reduce"> {
  let summary = "The sum over all ranks, the same on each";
  let description = [{
    Every rank runs the same all-reduces, told apart by `name`, in the same order. The sum is the binomial tree of docs/numerics.md: it
    depends on the number of ranks and on nothing else. Interpreted for one rank it is its operand.
  }];
  let arguments = (ins Graph_NumTensor:$x, StrAttr:$name);
  let results = (outs Graph_NumTensor:$y);
  let assemblyFormat = "$x attr-dict `:` functional-type(operands, results)";
}
#endif
