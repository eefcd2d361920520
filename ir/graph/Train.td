#ifndef SLUICE_IR_GRAPH_TRAIN_TD
#define SLUICE_IR_GRAPH_TRAIN_TD
include "ir/graph/GraphBase.td"

def Graph_CrossEntropyOp : Graph_PureOp<"cross_entropy", [Graph_Differentiates, Graph_Decomposes]> {
  let summary = "Unnormalised softmax cross entropy and the count it is divided by";
  let description = [{
    logits [N, C], labels [N] (class indices), weights [C]. loss = sum over rows of weight * -log softmax (with `smoothing` s: (1 - s) of the
    label plus s / C of every class, as PyTorch), count = sum of the labels' weights. Rows whose label is `ignore_index` count for nothing.
  }];
  let arguments = (ins Graph_FloatTensor:$logits, Graph_IntTensor:$labels, Optional<Graph_FloatTensor>:$weights, I64Attr:$ignore_index,
    F64Attr:$smoothing);
  let results = (outs Graph_FloatTensor:$loss, Graph_FloatTensor:$count);
}

class Graph_Ctc<string mnemonic, list<Trait> traits = []> : Graph_PureOp<mnemonic, !listconcat([Graph_Costs], traits)> {
  let arguments = (ins Graph_FloatTensor:$log_probs, Graph_IntTensor:$targets, Graph_IntTensor:$input_lengths, Graph_IntTensor:$target_lengths,
    I64Attr:$blank, UnitAttr:$zero_infinity, UnitAttr:$per_label);
}
def Graph_CtcLossOp : Graph_Ctc<"ctc_loss", [Graph_Differentiates]> {
  let summary = "Connectionist temporal classification: -log of the probability of all alignments of each sample's target";
  let description = [{
    log_probs [N, T, C], targets [N, L], lengths [N]; loss [N]. Lengths are cut to T and L, and a target ends at its first label outside
    [0, C). A sample without an alignment is infinite, or with `zero_infinity` 0, its gradient too. `per_label` divides each loss by the
    length of its target (at least 1), as PyTorch's mean. The gradient is that in log_probs themselves; PyTorch's adds e^log_probs, which
    behind a log_softmax is the same.
  }];
  let results = (outs Graph_FloatTensor:$loss);
}
def Graph_CtcLossGradOp : Graph_Ctc<"ctc_loss_grad"> {
  let summary = "The gradient of each sample's `ctc_loss` in its log probabilities";
  let results = (outs Graph_FloatTensor:$dlog_probs);
}

def Graph_RandomUniformOp : Graph_PureOp<"random_uniform"> {
  let summary = "f32 in [0, 1) from Philox4x32-10, keyed by seed, update, the op's stable id, sample and element";
  let description = [{
    With `batched`, dimension 0 counts samples and row i has the key sample + i; else the whole tensor is element-indexed under key
    sample 0. Counter words: (element / 4, sample, update, id), key: (seed low, seed high); word element % 4; value = (word >> 8) * 2^-24.
  }];
  let arguments = (ins Graph_I64Scalar:$seed, Graph_I64Scalar:$update, Graph_I64Scalar:$sample, DenseI64ArrayAttr:$shape, I64Attr:$id, UnitAttr:$batched);
  let results = (outs Graph_FloatTensor:$y);
}

def Graph_DropoutOp : Graph_PureOp<"dropout", [Graph_Differentiates, Graph_Decomposes,
    DeclareOpInterfaceMethods<Graph_TrainingMode>]> {
  let summary = "Zeroes elements with probability `ratio` and scales the rest by 1 / (1 - ratio)";
  let description = [{
    Keeps an element where `random_uniform` is at least `ratio`. Dimension 0 is split evenly over `samples` samples, each with a key of its own
    (set by the train stage); with 0 the tensor does not belong to samples, and all micro-batches of an update share the mask.
  }];
  let arguments = (ins Graph_FloatTensor:$x, Graph_I64Scalar:$seed, Graph_I64Scalar:$update, Graph_I64Scalar:$sample, F64Attr:$ratio, I64Attr:$id,
    DefaultValuedAttr<I64Attr, "0">:$samples);
  let results = (outs Graph_FloatTensor:$y, Graph_BoolTensor:$mask);
}
#endif
