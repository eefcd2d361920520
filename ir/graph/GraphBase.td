#ifndef SLUICE_IR_GRAPH_BASE_TD
#define SLUICE_IR_GRAPH_BASE_TD

include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "ir/graph/GraphInterfaces.td"

def Graph_Dialect : Dialect {
  let name = "graph";
  let summary = "What is computed: a model, then its whole training step, over tensor values";
  let description = [{
    One `func` per entry point. Values are tensors of static shape in row-major order. Operands of elementwise
    operations have equal shapes (`graph.broadcast` is explicit), state is named by symbols and
    read and written by explicit operations, everything between is pure.
  }];
  let cppNamespace = "::sluice::graph";
  let dependentDialects = [];
}

// All tensors are ranked with static dimensions; rank 0 is a scalar.
def Graph_Tensor : StaticShapeTensorOf<[AnyType]>;
def Graph_FloatTensor : StaticShapeTensorOf<[AnyFloat]>;
def Graph_IntTensor : StaticShapeTensorOf<[AnySignlessInteger]>;
def Graph_BoolTensor : StaticShapeTensorOf<[I1]>;
def Graph_NumTensor : StaticShapeTensorOf<[AnyFloat, AnySignlessInteger]>;
def Graph_F32Scalar : 0DTensorOf<[F32]>;
def Graph_I64Scalar : 0DTensorOf<[I64]>;

class Graph_Op<string mnemonic, list<Trait> traits = []> : Op<Graph_Dialect, mnemonic, traits>;

// An operation without side effects that the interpreter can run. Result types are inferred.
class Graph_PureOp<string mnemonic, list<Trait> traits = []>
    : Graph_Op<mnemonic, !listconcat([Pure, InferTypeOpAdaptor,
        DeclareOpInterfaceMethods<Graph_Evaluable>], traits)> {
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}

def Graph_Differentiates : DeclareOpInterfaceMethods<Graph_Differentiable>;
def Graph_Decomposes : DeclareOpInterfaceMethods<Graph_Decomposable>;
def Graph_HasPrecision : DeclareOpInterfaceMethods<Graph_PrecisionRule>;
def Graph_Costs : DeclareOpInterfaceMethods<Graph_Costed>;

class Graph_ElementwiseOp<string mnemonic, list<Trait> traits = []>
    : Graph_PureOp<mnemonic, !listconcat([Graph_Differentiates, Graph_Costs,
        DeclareOpInterfaceMethods<Graph_Elementwise, ["isExpensive"]>], traits)>;

#endif
