#ifndef SLUICE_IR_PLAN_TD
#define SLUICE_IR_PLAN_TD

include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/RegionKindInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Plan_Dialect : Dialect {
  let name = "plan";
  let summary = "When and where: every launch, every byte offset of a training step";
  let description = [{
    One `plan.program` per entry point. Values are ranges of bytes in one of the two reservations: *state* (the
    same offsets in every program) and *step*, on the device or, with `space = "host"`, in the host's memory. The
    operations correspond one to one to the tables of the plan file (runtime/plan.fbs).
  }];
  let cppNamespace = "::sluice::plan";
  let useDefaultTypePrinterParser = 1;
}

def Plan_BufferType : TypeDef<Plan_Dialect, "Buffer"> {
  let mnemonic = "buffer";
  let summary = "A range of bytes in a reservation";
}

class Plan_Op<string mnemonic, list<Trait> traits = []> : Op<Plan_Dialect, mnemonic, traits>;

def Plan_StateOp : Plan_Op<"state", [Symbol]> {
  let summary = "One named tensor of the state reservation";
  let description = [{
    `init` is zeros, fill (every element is `fill`) or file (`value`, written beside the plan). `saved` tensors are part
    of checkpoints. Offset and size are in bytes; the size is without padding. `space` is "host" for what lies in the
    host's memory: copies bring it to the device where launches need it.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttr:$type, StrAttr:$role, I64Attr:$offset, I64Attr:$size,
    UnitAttr:$trainable, UnitAttr:$saved, DefaultValuedAttr<StrAttr, "\"zeros\"">:$init,
    DefaultValuedAttr<F64Attr, "0.0">:$fill, OptionalAttr<ElementsAttr>:$value, OptionalAttr<StrAttr>:$group,
    OptionalAttr<StrAttr>:$space, OptionalAttr<StrAttr>:$sym_visibility);
  let assemblyFormat = "$sym_name `:` $type $role `at` $offset `size` $size attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::RankedTensorType getTensorType();
    bool isOnHost() { return getSpace().has_value() && *getSpace() == "host"; }
  }];
}

def Plan_KernelOp : Plan_Op<"kernel", [Symbol, NoTerminator, IsolatedFromAbove]> {
  let summary = "A kernel: hand-written (no body, the name is in the catalogue) or generated from its body";
  let description = [{
    The body's arguments are the inputs; it holds one `graph.region` over them. Buffers of a launch: the inputs, the
    results of the region, then a workspace of `scratch` bytes for each worker, if any. One whose region has
    `kernel = "elastic"` takes any number of elements, its only parameter, instead of those of its types.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, DefaultValuedAttr<I64Attr, "0">:$scratch,
    OptionalAttr<StrAttr>:$sym_visibility);
  let regions = (region MaxSizedRegion<1>:$body);
  let assemblyFormat = "$sym_name attr-dict-with-keyword ($body^)?";
  let hasVerifier = 1;
  let extraClassDeclaration = "bool isGenerated() { return !getBody().empty(); }";
}

def Plan_ProgramOp : Plan_Op<"program", [NoTerminator, IsolatedFromAbove, SingleBlock]> {
  let summary = "An entry point: step, micro, update, eval or infer";
  let description = [{
    `step_bytes` is the part of the step reservation it needs, `bound_bytes` a lower bound of it (no placement of
    these live ranges is smaller), `peak` the bytes by category at the instant that needs most; `host_bytes` and
    `host_bound_bytes` are those of the host's reservation. No symbol: a tensor of the state may have the same name.

    The launches run in the queue `compute`. What moves between device and host runs beside them, in the queue `copy`, and what
    ranks do together in the queue `comm`.
  }];
  let arguments = (ins SymbolNameAttr:$entry, DefaultValuedAttr<I64Attr, "0">:$step_bytes,
    DefaultValuedAttr<I64Attr, "0">:$bound_bytes, DefaultValuedAttr<F64Attr, "0.0">:$predicted_us,
    OptionalAttr<DictionaryAttr>:$peak, DefaultValuedAttr<I64Attr, "0">:$host_bytes,
    DefaultValuedAttr<I64Attr, "0">:$host_bound_bytes);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$entry attr-dict-with-keyword $body";
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    /// The queue of the launches.
    QueueOp queue();
    /// The queue of the copies; null where nothing is copied.
    QueueOp copyQueue();
    /// The queue of the collectives; null where ranks have nothing to say to each other.
    QueueOp commQueue();
  }];
}

def Plan_BufferOp : Plan_Op<"buffer", [Pure]> {
  let summary = "Bytes of the step reservation, for the launches [first, last]";
  let description = [{
    `offset` and the live range are absent until memory is planned. `first` is -1 for an input of the program; `last` is
    the number of launches for an output. Categories: activations, gradients, optimizer, workspace, io, parameters. A
    buffer `in "host"` lies in the host's step reservation, and its live range counts copies. `offload` asks for a
    buffer to be in the host's memory while no launch needs it (stream-offload); then `offloaded` names a part of its
    life on the device.
  }];
  let arguments = (ins StrAttr:$label, StrAttr:$category, I64Attr:$size, OptionalAttr<I64Attr>:$offset,
    OptionalAttr<I64Attr>:$first, OptionalAttr<I64Attr>:$last, OptionalAttr<StrAttr>:$space,
    UnitAttr:$offload, UnitAttr:$offloaded);
  let results = (outs Plan_BufferType:$buffer);
  let assemblyFormat = [{
    $label $category (`in` $space^)? `size` $size (`at` $offset^)? (`live` `[` $first^ `,` $last `]`)? attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    bool isOnHost() { return getSpace().has_value() && *getSpace() == "host"; }
  }];
}

def Plan_StateBufferOp : Plan_Op<"state_buffer", [Pure, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "The bytes of a tensor of the state";
  let arguments = (ins FlatSymbolRefAttr:$symbol);
  let results = (outs Plan_BufferType:$buffer);
  let assemblyFormat = "$symbol attr-dict";
}

def Plan_SliceOp : Plan_Op<"slice", [Pure]> {
  let summary = "`size` bytes of a buffer from `offset` on";
  let arguments = (ins Plan_BufferType:$source, I64Attr:$offset, I64Attr:$size);
  let results = (outs Plan_BufferType:$buffer);
  let assemblyFormat = "$source `at` $offset `size` $size attr-dict";
  let hasVerifier = 1;
}

def Plan_InputOp : Plan_Op<"input", [ParentOneOf<["ProgramOp"]>]> {
  let summary = "A named input that the runtime fills before the program runs";
  let description = "`batched`: dimension 0 counts samples. Integer inputs with `bounds` must lie in [lo, hi] or equal `ignored`.";
  let arguments = (ins StrAttr:$name, Plan_BufferType:$buffer, TypeAttr:$type, UnitAttr:$batched,
    OptionalAttr<DenseI64ArrayAttr>:$bounds, OptionalAttr<I64Attr>:$ignored);
  let assemblyFormat = "$name `,` $buffer `:` $type attr-dict";
  let hasVerifier = 1;
}

def Plan_OutputOp : Plan_Op<"output", [ParentOneOf<["ProgramOp"]>]> {
  let summary = "A named result that may be read after the program ran";
  let arguments = (ins StrAttr:$name, Plan_BufferType:$buffer, TypeAttr:$type);
  let assemblyFormat = "$name `,` $buffer `:` $type attr-dict";
  let hasVerifier = 1;
}

def Plan_QueueOp : Plan_Op<"queue", [NoTerminator, SingleBlock, ParentOneOf<["ProgramOp"]>]> {
  let summary = "Launches, copies, or collectives, that run one after the other";
  let description = [{
    `plan.signal` says how many launches (or copies) of its queue are done; `plan.wait` holds its queue until another
    one has said so many.

    ```mlir
    plan.queue @compute {
      plan.launch "gelu" ...
      plan.signal 1
      plan.wait @copy 2
      plan.launch "gelu'" ...
    }
    plan.queue @copy {
      plan.wait @compute 1
      plan.copy "h" %h to %host
      plan.signal 1
      plan.copy "h" %host to %h2
      plan.signal 2
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name attr-dict-with-keyword $body";
}

def Plan_LaunchOp : Plan_Op<"launch", [NoTerminator, SingleBlock, ParentOneOf<["QueueOp"]>]> {
  let summary = "Work that the team of workers shares: `units` cut into chunks of `chunk` units";
  let description = [{
    A chunk [b, e) runs every stage in turn on one worker, stage s over the units [b * unit_scale, e * unit_scale). `label`
    says what it computes, `node` which nodes of the model it comes from.

    In a launch over parts every stage has a `part`, and together they are the launch's units in order: the same kernel
    over many tensors. A chunk then runs only the stages whose units it has.
  }];
  let arguments = (ins StrAttr:$label, StrAttr:$node, I64Attr:$units, I64Attr:$chunk,
    DefaultValuedAttr<F64Attr, "0.0">:$flops, DefaultValuedAttr<F64Attr, "0.0">:$bytes,
    DefaultValuedAttr<F64Attr, "0.0">:$predicted_us);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$label `units` $units `chunk` $chunk `node` $node attr-dict-with-keyword $body";
  let hasVerifier = 1;
}

def Plan_CopyOp : Plan_Op<"copy", [ParentOneOf<["QueueOp"]>]> {
  let summary = "All bytes of a buffer moved to another one, between the device and the host";
  let arguments = (ins StrAttr:$label, Plan_BufferType:$source, Plan_BufferType:$target,
    DefaultValuedAttr<F64Attr, "0.0">:$predicted_us);
  let assemblyFormat = "$label $source `to` $target attr-dict";
  let hasVerifier = 1;
}

def Plan_CollectiveOp : Plan_Op<"collective", [ParentOneOf<["QueueOp"]>, SameVariadicOperandSize]> {
  let summary = "One message of all ranks: a bucket of buffers";
  let description = [{
    `all_reduce`: output i becomes the sum of input i over the ranks, elements of type `element`; they may be the same bytes. `names` has one name
    per buffer, equal on all ranks.
  }];
  let arguments = (ins StrAttr:$kind, StrArrayAttr:$names, TypeAttr:$element, Variadic<Plan_BufferType>:$ins, Variadic<Plan_BufferType>:$outs,
    DefaultValuedAttr<F64Attr, "0.0">:$predicted_us);
  let assemblyFormat = "$kind $names `of` $element `ins` `(` $ins `)` `outs` `(` $outs `)` attr-dict";
  let hasVerifier = 1;
}

def Plan_WaitOp : Plan_Op<"wait", [ParentOneOf<["QueueOp"]>]> {
  let summary = "Holds this queue until `queue` has signalled `value`";
  let arguments = (ins FlatSymbolRefAttr:$queue, I64Attr:$value);
  let assemblyFormat = "$queue $value attr-dict";
}

def Plan_SignalOp : Plan_Op<"signal", [ParentOneOf<["QueueOp"]>]> {
  let summary = "The first `value` launches or copies of this queue are done";
  let arguments = (ins I64Attr:$value);
  let assemblyFormat = "$value attr-dict";
}

def Plan_StageOp : Plan_Op<"stage", [AttrSizedOperandSegments, ParentOneOf<["LaunchOp"]>,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "One call of a kernel on the units of a chunk";
  let description = [{
    The kernel's buffers are `ins`, `outs`, `scratch` in this order. The address of an operand is that of its buffer plus
    worker * worker_strides[i] - first unit * unit_strides[i] (both absent when all are 0). `in_place` lists
    pairs (input, output) that may share their bytes; memory planning uses it up. `part` is the stage's first unit of the
    launch and how many units it has; its kernel counts them from 0.
  }];
  let arguments = (ins FlatSymbolRefAttr:$kernel, Variadic<Plan_BufferType>:$ins, Variadic<Plan_BufferType>:$outs,
    Variadic<Plan_BufferType>:$scratch, DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$params,
    DefaultValuedAttr<I64Attr, "1">:$unit_scale, OptionalAttr<DenseI64ArrayAttr>:$worker_strides,
    OptionalAttr<DenseI64ArrayAttr>:$unit_strides, OptionalAttr<DenseI64ArrayAttr>:$in_place,
    OptionalAttr<DenseI64ArrayAttr>:$part);
  let assemblyFormat = [{
    $kernel (`ins` `(` $ins^ `)`)? (`outs` `(` $outs^ `)`)? (`scratch` `(` $scratch^ `)`)? attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Units of the launch that it runs.
    int64_t units();
  }];
}
#endif
