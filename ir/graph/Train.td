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

def Graph_SgdOp : Graph_PureOp<"sgd", [Graph_Decomposes]> {
  let summary = "SGD: g += decay * w; v = momentum * v + (1 - dampening) * g; w -= lr * (nesterov ? g + momentum * v : v) (PyTorch)";
  let description = [{
    Without a velocity, w -= lr * g. At the first update (update == 0) v = g, as PyTorch; `update` is a scalar read from control/update.
    Bits: every product and every sum is rounded on its own, in the order written.
  }];
  let arguments = (ins Graph_FloatTensor:$w, Graph_FloatTensor:$g, Optional<Graph_FloatTensor>:$v, Graph_F32Scalar:$lr, Graph_I64Scalar:$update,
    F64Attr:$momentum, F64Attr:$dampening, F64Attr:$weight_decay, UnitAttr:$nesterov);
  let results = (outs Graph_FloatTensor:$new_w, Optional<Graph_FloatTensor>:$new_v);
}
def Graph_AdamOp : Graph_PureOp<"adam", [Graph_Decomposes]> {
  let summary = "Adam (Kingma and Ba), with `decoupled` AdamW (Loshchilov and Hutter)";
  let description = [{
    g += decay * w unless decoupled, else w -= lr * decay * w first. m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2. bc1 = 1 - b1^t, bc2 = 1 - b2^t.
    w -= lr / bc1 * m / (sqrt(v / bc2) + eps); with `eps_before` (ONNX) w -= lr * sqrt(bc2) / bc1 * m / (sqrt(v) + eps).
    Bits: every operation is rounded on its own, none is fused. Scalars first: step = lr / bc1 (or lr * sqrt(bc2) / bc1), inverse = 1 / bc2, keep = 1 - lr * decay; then per element
    m = b1 * m + (1 - b1) * g; v = b2 * v + ((1 - b2) * g) * g; w = w * keep - (m / (sqrt(v * inverse) + eps)) * step.
  }];
  let arguments = (ins Graph_FloatTensor:$w, Graph_FloatTensor:$g, Graph_FloatTensor:$m, Graph_FloatTensor:$v, Graph_F32Scalar:$lr, Graph_F32Scalar:$bc1,
    Graph_F32Scalar:$bc2, F64Attr:$beta1, F64Attr:$beta2, F64Attr:$epsilon, F64Attr:$weight_decay, UnitAttr:$decoupled, UnitAttr:$eps_before);
  let results = (outs Graph_FloatTensor:$new_w, Graph_FloatTensor:$new_m, Graph_FloatTensor:$new_v);
}
#endif
