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

def Graph_ReduceScatterOp : Graph_CollectiveOp<"reduce_scatter"> {
  let summary = "The own rows of the sum over all ranks";
  let description = [{
    `x` is [rows, ...]. Rank r has rows / ranks of them, in order of the ranks, and one more where r < rows % ranks; the result has
    ceil(rows / ranks), and zeros where a rank has one less. Sums are those of `all_reduce`. Interpreted for one rank it is rank 0's part.
  }];
  let arguments = (ins Graph_NumTensor:$x, StrAttr:$name, I64Attr:$ranks);
  let results = (outs Graph_NumTensor:$y);
  let assemblyFormat = "$x attr-dict `:` functional-type(operands, results)";
}

def Graph_AllGatherOp : Graph_CollectiveOp<"all_gather"> {
  let summary = "The rows of all ranks, the same on each";
  let description = [{
    The result is [rows, ...], put together from what `reduce_scatter` calls each rank's own rows; of an operand that has a row more than its
    rank, the last one is left out. Interpreted for one rank the others' rows are zeros.
  }];
  let arguments = (ins Graph_Tensor:$x, StrAttr:$name, I64Attr:$ranks, I64Attr:$rows);
  let results = (outs Graph_Tensor:$y);
  let assemblyFormat = "$x attr-dict `:` functional-type(operands, results)";
}
#endif
