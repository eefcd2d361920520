#ifndef SLUICE_IR_GRAPH_NORMALIZE_TD
#define SLUICE_IR_GRAPH_NORMALIZE_TD
include "ir/graph/GraphBase.td"

class Graph_Composite<string mnemonic, list<Trait> traits = []>
    : Graph_PureOp<mnemonic, !listconcat([Graph_Differentiates, Graph_Decomposes], traits)>;

def Graph_SoftmaxOp : Graph_Composite<"softmax"> {
  let summary = "e^(x - max) / sum along one axis; a row that is -inf throughout gives 0";
  let arguments = (ins Graph_FloatTensor:$x, I64Attr:$axis);
  let results = (outs Graph_FloatTensor:$y);
}
def Graph_LogSoftmaxOp : Graph_Composite<"log_softmax"> {
  let summary = "x - max - log(sum(e^(x - max))) along one axis";
  let arguments = (ins Graph_FloatTensor:$x, I64Attr:$axis);
  let results = (outs Graph_FloatTensor:$y);
}
def Graph_LayerNormOp : Graph_Composite<"layer_norm"> {
  let summary = "(x - mean) / sqrt(variance + epsilon) over dimensions axis.., times scale plus bias";
  let description = "scale and bias have the shape x.shape[axis:]; mean and rstd keep the reduced dimensions as 1. Population variance.";
  let arguments = (ins Graph_FloatTensor:$x, Graph_FloatTensor:$scale, Optional<Graph_FloatTensor>:$bias, I64Attr:$axis, F64Attr:$epsilon);
  let results = (outs Graph_FloatTensor:$y, Graph_FloatTensor:$mean, Graph_FloatTensor:$rstd);
}
def Graph_RmsNormOp : Graph_Composite<"rms_norm"> {
  let summary = "x / sqrt(mean(x^2) + epsilon) over dimensions axis.., times scale";
  let arguments = (ins Graph_FloatTensor:$x, Graph_FloatTensor:$scale, I64Attr:$axis, F64Attr:$epsilon);
  let results = (outs Graph_FloatTensor:$y, Graph_FloatTensor:$rstd);
}
def Graph_BatchNormOp : Graph_Composite<"batch_norm"> {
  let summary = "Normalises dimension 1 with the given statistics (evaluation)";
  let arguments = (ins Graph_FloatTensor:$x, Graph_FloatTensor:$scale, Graph_FloatTensor:$bias, Graph_FloatTensor:$mean,
    Graph_FloatTensor:$variance, F64Attr:$epsilon);
  let results = (outs Graph_FloatTensor:$y);
}
def Graph_BatchNormTrainOp : Graph_Composite<"batch_norm_train",
    [DeclareOpInterfaceMethods<Graph_TrainingMode, ["recordStatistics"]>]> {
  let summary = "Normalises dimension 1 with the statistics of the batch; mean and population variance are results";
  let description = [{
    A training step updates the buffers named by `running_mean` and `running_variance` (or none):
    running = momentum * running + (1 - momentum) * batch, with the population variance (the ONNX convention).
    With `valid`, rows of dimension 0 from there on are padding (set by the train stage): they count for nothing, give 0 and get no gradient.
  }];
  let arguments = (ins Graph_FloatTensor:$x, Graph_FloatTensor:$scale, Graph_FloatTensor:$bias, Optional<Graph_I64Scalar>:$valid, F64Attr:$epsilon,
    DefaultValuedAttr<F64Attr, "0.9">:$momentum, OptionalAttr<FlatSymbolRefAttr>:$running_mean,
    OptionalAttr<FlatSymbolRefAttr>:$running_variance);
  let results = (outs Graph_FloatTensor:$y, Graph_FloatTensor:$mean, Graph_FloatTensor:$variance);
  let builders = [OpBuilder<(ins "::mlir::Value":$x, "::mlir::Value":$scale, "::mlir::Value":$bias, "::llvm::APFloat":$epsilon,
      "::llvm::APFloat":$momentum, "::mlir::FlatSymbolRefAttr":$running_mean, "::mlir::FlatSymbolRefAttr":$running_variance), [{
    build($_builder, $_state, x, scale, bias, ::mlir::Value(), epsilon, momentum, running_mean, running_variance);
  }]>];
}
#endif
