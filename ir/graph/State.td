#ifndef SLUICE_IR_GRAPH_STATE_TD
#define SLUICE_IR_GRAPH_STATE_TD
include "ir/graph/GraphBase.td"

def Graph_ParameterOp : Graph_Op<"parameter", [Symbol]> {
  let summary = "A named tensor of the state";
  let description = [{
    The symbol is the checkpoint name (`param/NAME`, `opt/NAME/m`, `control/...`). `role` is one of parameter, buffer, moment,
    master, accumulator, control, constant. The initial value is `init` (an elements attribute or a
    `dense_resource`), else a splat of `fill`. `group` names the parameter group of the spec.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttr:$type, StrAttr:$role, UnitAttr:$trainable,
    OptionalAttr<ElementsAttr>:$init, DefaultValuedAttr<F64Attr, "0.0">:$fill, OptionalAttr<StrAttr>:$group,
    OptionalAttr<StrAttr>:$sym_visibility);
  let assemblyFormat = "$sym_name `:` $type $role attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = "::mlir::RankedTensorType getTensorType();";
}

def Graph_ReadOp : Graph_Op<"read", [MemoryEffects<[MemRead]>, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "The value a state tensor has when the entry starts";
  let arguments = (ins FlatSymbolRefAttr:$symbol);
  let results = (outs Graph_Tensor:$value);
  let assemblyFormat = "$symbol attr-dict `:` type($value)";
}

def Graph_WriteOp : Graph_Op<"write", [MemoryEffects<[MemWrite]>, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "The value a state tensor has when the entry ends; at most one per symbol and entry";
  let arguments = (ins FlatSymbolRefAttr:$symbol, Graph_Tensor:$value);
  let assemblyFormat = "$symbol `,` $value attr-dict `:` type($value)";
}

def Graph_ConstantOp : Graph_Op<"constant", [Pure, ConstantLike, InferTypeOpAdaptor, DeclareOpInterfaceMethods<Graph_Evaluable>]> {
  let summary = "A tensor known at compile time (splat, dense or resource)";
  let arguments = (ins ElementsAttr:$value);
  let results = (outs Graph_Tensor:$result);
  let assemblyFormat = "attr-dict $value";
  let hasFolder = 1;
}

def Graph_RegionOp : Graph_Op<"region", [RecursiveMemoryEffects, SingleBlockImplicitTerminator<"YieldOp">]> {
  let summary = "Operations that become one kernel: only inputs are read from and results written to memory";
  let arguments = (ins Variadic<Graph_Tensor>:$inputs, OptionalAttr<StrAttr>:$kernel);
  let results = (outs Variadic<Graph_Tensor>:$outputs);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 0;
  let assemblyFormat = "`(` $inputs `)` $body attr-dict `:` functional-type($inputs, $outputs)";
  let hasVerifier = 1;
}

def Graph_YieldOp : Graph_Op<"yield", [Pure, Terminator, ParentOneOf<["RegionOp"]>]> {
  let summary = "Ends a region";
  let arguments = (ins Variadic<Graph_Tensor>:$values);
  let assemblyFormat = "($values^ `:` type($values))? attr-dict";
  let builders = [OpBuilder<(ins), [{}]>];
}
#endif
