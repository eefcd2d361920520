// RUN: sluice-opt --spec %S/inputs/train.yaml --build-entries %s | FileCheck %s

module attributes {graph.logits_output = "logits"} {
  graph.parameter @"param/mean" : tensor<3xf32> "buffer"
  graph.parameter @"param/var" : tensor<3xf32> "buffer" {fill = 1.0 : f64}
  graph.parameter @"param/w" : tensor<3xf32> "parameter"
  // CHECK-NOT: @forward
  func.func @forward(%x: tensor<4x3xf32> {graph.name = "x"}, %n: tensor<f32> {graph.name = "labels"}) -> (tensor<f32> {graph.name = "loss_sum"}, tensor<f32> {graph.name = "loss_count"}, tensor<4x3xf32> {graph.name = "logits"}, tensor<4x3xf32> {graph.name = "features"}) {
    %w = graph.read @"param/w" : tensor<3xf32>
    %y, %m, %v = graph.batch_norm_train %x, %w, %w {epsilon = 1.0e-5 : f64, running_mean = @"param/mean", running_variance = @"param/var"} : (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>)
    %z, %zm, %zv = graph.batch_norm_train %y, %w, %w {epsilon = 1.0e-5 : f64} : (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>)
    return %n, %n, %z, %x : tensor<f32>, tensor<f32>, tensor<4x3xf32>, tensor<4x3xf32>
  }
}

// CHECK-LABEL: func.func @eval
// CHECK-SAME: {graph.name = "labels"}
// CHECK-SAME: -> (tensor<f32> {graph.name = "loss_sum"}, tensor<f32> {graph.name = "loss_count"}, tensor<4x3xf32> {graph.name = "logits"})
// CHECK: graph.read @"param/mean"
// CHECK: graph.batch_norm %
// Where no statistics are kept, those of the batch serve.
// CHECK: graph.batch_norm_train %

// The labels are needed by the loss alone.
// CHECK-LABEL: func.func @infer(
// CHECK-NOT: labels
// CHECK-SAME: -> (tensor<4x3xf32> {graph.name = "logits"}, tensor<4x3xf32> {graph.name = "features"})
// CHECK: graph.batch_norm %
