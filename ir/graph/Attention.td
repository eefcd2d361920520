#ifndef SLUICE_IR_GRAPH_ATTENTION_TD
#define SLUICE_IR_GRAPH_ATTENTION_TD
include "ir/graph/GraphBase.td"

class Graph_AttentionLike<string mnemonic, dag before, dag outs, list<Trait> traits>
    : Graph_PureOp<mnemonic, !listconcat([AttrSizedOperandSegments, Graph_Costs,
        DeclareOpInterfaceMethods<Graph_PrecisionRule, ["roundedOperands", "roundedResults"]>], traits)> {
  let arguments = !con(before, (ins Optional<Graph_FloatTensor>:$mask, Variadic<Graph_I64Scalar>:$random, F64Attr:$scale, OptionalAttr<I64Attr>:$causal,
    DefaultValuedAttr<F64Attr, "0.0">:$ratio, DefaultValuedAttr<I64Attr, "0">:$id, DefaultValuedAttr<I64Attr, "0">:$samples, OptionalAttr<TypeAttr>:$round_to));
  let results = outs;
}

def Graph_AttentionOp : Graph_AttentionLike<"attention", (ins Graph_FloatTensor:$q, Graph_FloatTensor:$k, Graph_FloatTensor:$v),
    (outs Graph_FloatTensor:$out, Graph_FloatTensor:$stats), [Graph_Differentiates, DeclareOpInterfaceMethods<Graph_TrainingMode>]> {
  let summary = "Scaled dot-product attention: softmax(scale * q k + mask) v, whose scores are never stored";
  let description = [{
    q [B, H, Tq, D], k [B, G, Tk, D], v [B, G, Tk, E] where G divides H: query head h reads key head h / (H / G). `mask` is added to the scores; its
    dimensions are those of [B, H, Tq, Tk] or 1. With `causal` c, query i sees the keys j <= i + c. A row that sees nothing (all scores -inf) gives 0.
    With `random` (seed, update, sample) probabilities are dropped as `graph.dropout` drops a [B, H, Tq, Tk] (`ratio`, `id`, `samples`).
    `stats` [B, H, 2, Tq] is the largest score of each row and the sum of e^(score - largest); a log-sum-exp of scores about -3e38 would lose the sum.
    Operands of 16 bits are summed in f32 and what is multiplied by v is rounded to their type; `out` is f32, or rounded once to `round_to`; mask and
    stats are f32.
  }];
  let extraClassDeclaration = [{
    /// The same with core operations and a softmax: the reference. One value per result.
    ::llvm::SmallVector<::mlir::Value> reference(::mlir::OpBuilder &builder);
  }];
}

def Graph_AttentionGradOp : Graph_AttentionLike<"attention_grad", (ins Graph_FloatTensor:$q, Graph_FloatTensor:$k, Graph_FloatTensor:$v,
    Graph_FloatTensor:$dout, Graph_FloatTensor:$out, Graph_FloatTensor:$stats),
    (outs Graph_FloatTensor:$dq, Graph_FloatTensor:$dk, Graph_FloatTensor:$dv), []> {
  let summary = "The gradients of `attention` in q, k and v; probabilities are computed again from stats, what was dropped is drawn again";
}
#endif
