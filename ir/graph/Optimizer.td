#ifndef SLUICE_IR_GRAPH_OPTIMIZER_TD
#define SLUICE_IR_GRAPH_OPTIMIZER_TD
include "ir/graph/GraphBase.td"

// Updates of one parameter w by its mean gradient g. Every operation is rounded on its own, none is fused; the decompositions
// define the bits. `state` holds the moments that the attributes ask for, in the order given.
// `hyper` are scalars that stand in place of attributes, so that they can change between updates: `hyper_names` says which, where
// NAME_rest is 1 - NAME, rounded once. What is not named is the attribute. Attributes that decide which state there is stay.
class Graph_Update<string mnemonic, list<Trait> traits = []>
    : Graph_PureOp<mnemonic, !listconcat([Graph_Decomposes], traits)>;

def Graph_SgdOp : Graph_Update<"sgd", [AttrSizedOperandSegments]> {
  let summary = "SGD: g += decay * w; v = momentum * v + (1 - dampening) * g; w -= lr * (nesterov ? g + momentum * v : v) (PyTorch)";
  let description = [{
    Without a velocity, w -= lr * g. At the first update (update == 0) nothing is dampened, as PyTorch; `update` is a scalar read from control/update.
    Bits: every product and every sum is rounded on its own, in the order written.
  }];
  let arguments = (ins Graph_FloatTensor:$w, Graph_FloatTensor:$g, Optional<Graph_FloatTensor>:$v, Graph_F32Scalar:$lr, Graph_I64Scalar:$update,
    F64Attr:$momentum, F64Attr:$dampening, F64Attr:$weight_decay, UnitAttr:$nesterov,
    Variadic<Graph_F32Scalar>:$hyper, OptionalAttr<StrArrayAttr>:$hyper_names);
  let results = (outs Graph_FloatTensor:$new_w, Optional<Graph_FloatTensor>:$new_v);
}
def Graph_AdamOp : Graph_Update<"adam", [AttrSizedOperandSegments]> {
  let summary = "Adam (Kingma and Ba), with `decoupled` AdamW (Loshchilov and Hutter), with `max_v` AMSGrad (Reddi et al.)";
  let description = [{
    g += decay * w unless decoupled, else w -= lr * decay * w first. m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2. bc1 = 1 - b1^t, bc2 = 1 - b2^t.
    w -= lr / bc1 * m / (sqrt(v / bc2) + eps); with `eps_before` (ONNX) w -= lr * sqrt(bc2) / bc1 * m / (sqrt(v) + eps). With `max_v` (AMSGrad),
    max_v = max(max_v, v) stands in place of v in the last line.
    Bits: every operation is rounded on its own, none is fused. Scalars first: step = lr / bc1 (or lr * sqrt(bc2) / bc1), inverse = 1 / bc2, keep = 1 - lr * decay; then per element
    m = b1 * m + (1 - b1) * g; v = b2 * v + ((1 - b2) * g) * g; w = w * keep - (m / (sqrt(v * inverse) + eps)) * step.
  }];
  let arguments = (ins Graph_FloatTensor:$w, Graph_FloatTensor:$g, Graph_FloatTensor:$m, Graph_FloatTensor:$v, Graph_F32Scalar:$lr, Graph_F32Scalar:$bc1,
    Graph_F32Scalar:$bc2, Optional<Graph_FloatTensor>:$max_v, F64Attr:$beta1, F64Attr:$beta2, F64Attr:$epsilon, F64Attr:$weight_decay, UnitAttr:$decoupled,
    UnitAttr:$eps_before,
    Variadic<Graph_F32Scalar>:$hyper, OptionalAttr<StrArrayAttr>:$hyper_names);
  let results = (outs Graph_FloatTensor:$new_w, Graph_FloatTensor:$new_m, Graph_FloatTensor:$new_v, Optional<Graph_FloatTensor>:$new_max_v);
}
def Graph_NadamOp : Graph_Update<"nadam"> {
  let summary = "NAdam (Dozat): Adam with Nesterov's momentum (PyTorch)";
  let description = [{
    m and v as `adam`. mu_t = b1 * (1 - 0.96^(t * momentum_decay) / 2) and P_t = mu_1 * ... * mu_t are known before the update: nadam_g = (1 - mu_t) / (1 - P_t),
    nadam_m = mu_(t+1) / (1 - P_(t+1)). w = w * keep - ((g * nadam_g + m * nadam_m) / (sqrt(v * (1 / bc2)) + eps)) * lr.
  }];
  let arguments = (ins Graph_FloatTensor:$w, Graph_FloatTensor:$g, Graph_FloatTensor:$m, Graph_FloatTensor:$v, Graph_F32Scalar:$lr, Graph_F32Scalar:$bc2,
    Graph_F32Scalar:$nadam_g, Graph_F32Scalar:$nadam_m, F64Attr:$beta1, F64Attr:$beta2, F64Attr:$epsilon, F64Attr:$weight_decay, UnitAttr:$decoupled,
    Variadic<Graph_F32Scalar>:$hyper, OptionalAttr<StrArrayAttr>:$hyper_names);
  let results = (outs Graph_FloatTensor:$new_w, Graph_FloatTensor:$new_m, Graph_FloatTensor:$new_v);
}
def Graph_RadamOp : Graph_Update<"radam"> {
  let summary = "RAdam (Liu et al.): Adam without its variance until that can be trusted (PyTorch)";
  let description = [{
    m and v as `adam`. `radam_r` is the rectification sqrt((rho_t - 4)(rho_t - 2) rho_inf / ((rho_inf - 4)(rho_inf - 2) rho_t)), or 0 while rho_t <= 5. Where it is 0,
    w = w * keep - m * (lr / bc1), else w = w * keep - (m / (sqrt(v) + eps)) * (lr / bc1 * (sqrt(bc2) * radam_r)).
  }];
  let arguments = (ins Graph_FloatTensor:$w, Graph_FloatTensor:$g, Graph_FloatTensor:$m, Graph_FloatTensor:$v, Graph_F32Scalar:$lr, Graph_F32Scalar:$bc1,
    Graph_F32Scalar:$bc2, Graph_F32Scalar:$radam_r, F64Attr:$beta1, F64Attr:$beta2, F64Attr:$epsilon, F64Attr:$weight_decay, UnitAttr:$decoupled,
    Variadic<Graph_F32Scalar>:$hyper, OptionalAttr<StrArrayAttr>:$hyper_names);
  let results = (outs Graph_FloatTensor:$new_w, Graph_FloatTensor:$new_m, Graph_FloatTensor:$new_v);
}
def Graph_LambOp : Graph_Update<"lamb"> {
  let summary = "LAMB (You et al.): AdamW with a trust ratio per tensor";
  let description = [{
    m and v as `adam`, decay in the direction: r = (m * (1 / bc1)) / (sqrt(v * (1 / bc2)) + eps) + decay * w. trust = |w| / |r|, 1 where either norm is 0; w -= r * (lr * trust).
  }];
  let arguments = (ins Graph_FloatTensor:$w, Graph_FloatTensor:$g, Graph_FloatTensor:$m, Graph_FloatTensor:$v, Graph_F32Scalar:$lr, Graph_F32Scalar:$bc1,
    Graph_F32Scalar:$bc2, F64Attr:$beta1, F64Attr:$beta2, F64Attr:$epsilon, F64Attr:$weight_decay,
    Variadic<Graph_F32Scalar>:$hyper, OptionalAttr<StrArrayAttr>:$hyper_names);
  let results = (outs Graph_FloatTensor:$new_w, Graph_FloatTensor:$new_m, Graph_FloatTensor:$new_v);
}
def Graph_LionOp : Graph_Update<"lion"> {
  let summary = "Lion (Chen et al.): w = w * (1 - lr * decay) - lr * sign(b1 * m + (1 - b1) * g); m = b2 * m + (1 - b2) * g";
  let arguments = (ins Graph_FloatTensor:$w, Graph_FloatTensor:$g, Graph_FloatTensor:$m, Graph_F32Scalar:$lr, F64Attr:$beta1, F64Attr:$beta2,
    F64Attr:$weight_decay,
    Variadic<Graph_F32Scalar>:$hyper, OptionalAttr<StrArrayAttr>:$hyper_names);
  let results = (outs Graph_FloatTensor:$new_w, Graph_FloatTensor:$new_m);
}
def Graph_AdagradOp : Graph_Update<"adagrad"> {
  let summary = "Adagrad (Duchi et al.): g += decay * w; s += g * g; w -= (g / (sqrt(s) + eps)) * (lr / (1 + update * lr_decay)) (PyTorch, ONNX)";
  let arguments = (ins Graph_FloatTensor:$w, Graph_FloatTensor:$g, Graph_FloatTensor:$s, Graph_F32Scalar:$lr, Graph_I64Scalar:$update,
    F64Attr:$lr_decay, F64Attr:$epsilon, F64Attr:$weight_decay,
    Variadic<Graph_F32Scalar>:$hyper, OptionalAttr<StrArrayAttr>:$hyper_names);
  let results = (outs Graph_FloatTensor:$new_w, Graph_FloatTensor:$new_s);
}
def Graph_RmspropOp : Graph_Update<"rmsprop", [AttrSizedOperandSegments]> {
  let summary = "RMSprop (Tieleman and Hinton; PyTorch), optionally centered and with momentum";
  let description = [{
    g += decay * w; s = alpha * s + ((1 - alpha) * g) * g; centered: a = alpha * a + (1 - alpha) * g. d = g / (sqrt(centered ? max(s - a * a, 0) : s) + eps); with momentum
    b = momentum * b + d and w -= b * lr, else w -= d * lr. State: b (momentum != 0), a (centered).
  }];
  let arguments = (ins Graph_FloatTensor:$w, Graph_FloatTensor:$g, Graph_FloatTensor:$s, Graph_F32Scalar:$lr, Variadic<Graph_FloatTensor>:$state,
    F64Attr:$alpha, F64Attr:$epsilon, F64Attr:$momentum, F64Attr:$weight_decay, UnitAttr:$centered,
    Variadic<Graph_F32Scalar>:$hyper, OptionalAttr<StrArrayAttr>:$hyper_names);
  let results = (outs Graph_FloatTensor:$new_w, Graph_FloatTensor:$new_s, Variadic<Graph_FloatTensor>:$new_state);
}
def Graph_AdafactorOp : Graph_Update<"adafactor", [AttrSizedOperandSegments]> {
  let summary = "Adafactor (Shazeer and Stern), as torch.optim.Adafactor";
  let description = [{
    t = update + 1; share = t^beta2_decay; rate = max(eps2, |w| / sqrt(n)) * min(lr, 1 / sqrt(t)). State of a tensor of rank 2 and above: row_var [..., R, 1] and col_var [..., 1, C],
    moving averages (new share `share`) of the row and column means of g^2, whose product over the mean of row_var (at least eps1) estimates the variance; else `variance`, their average itself.
    u = g / sqrt(max(estimate, eps1^2)); w = w * (1 - lr * decay) - u * (rate / max(1, |u| / (sqrt(n) * d))).
  }];
  let arguments = (ins Graph_FloatTensor:$w, Graph_FloatTensor:$g, Graph_F32Scalar:$lr, Graph_I64Scalar:$update, Variadic<Graph_FloatTensor>:$state,
    F64Attr:$beta2_decay, F64Attr:$eps1, F64Attr:$eps2, F64Attr:$d, F64Attr:$weight_decay,
    Variadic<Graph_F32Scalar>:$hyper, OptionalAttr<StrArrayAttr>:$hyper_names);
  let results = (outs Graph_FloatTensor:$new_w, Variadic<Graph_FloatTensor>:$new_state);
}
def Graph_MuonOp : Graph_Update<"muon"> {
  let summary = "Muon (Jordan et al.), as torch.optim.Muon in f32: momentum, orthogonalised by a Newton-Schulz iteration";
  let description = [{
    For tensors of rank 2 and above, read as a matrix [A, B] with A the first dimension. b = momentum * b + (1 - momentum) * g; x = nesterov ? (1 - momentum) * g + momentum * b : b; x /= max(|x|, eps);
    `ns_steps` times x = 3.4445 x - 4.775 (x x') x + 2.0315 (x x')^2 x, with x' x on the right where A > B; w = w * (1 - lr * decay) - x * (lr * scale), scale = sqrt(max(1, A / B)), or 0.2 sqrt(max(A, B)) with `match_rms_adamw`.
  }];
  let arguments = (ins Graph_FloatTensor:$w, Graph_FloatTensor:$g, Graph_FloatTensor:$b, Graph_F32Scalar:$lr, F64Attr:$momentum, F64Attr:$epsilon,
    F64Attr:$weight_decay, I64Attr:$ns_steps, UnitAttr:$nesterov, UnitAttr:$match_rms_adamw,
    Variadic<Graph_F32Scalar>:$hyper, OptionalAttr<StrArrayAttr>:$hyper_names);
  let results = (outs Graph_FloatTensor:$new_w, Graph_FloatTensor:$new_b);
}
#endif
