// RUN: sluice-opt --spec %S/inputs/train.yaml --set entries=[probe] --build-probe %s | FileCheck %s

module attributes {graph.logits_output = "logits"} {
  graph.parameter @"param/mean" : tensor<3xf32> "buffer"
  graph.parameter @"param/var" : tensor<3xf32> "buffer" {fill = 1.0 : f64}
  graph.parameter @"param/frozen" : tensor<3xf32> "parameter"
  graph.parameter @"param/unused" : tensor<3xf32> "parameter" {trainable}
  graph.parameter @"param/w" : tensor<3xf32> "parameter" {trainable}
  func.func @forward(%x: tensor<4x3xf32> {graph.name = "x"}) -> (tensor<f32> {graph.name = "loss_sum"}, tensor<f32> {graph.name = "loss_count"}, tensor<4x3xf32> {graph.name = "logits"}, tensor<4x3xf32> {graph.name = "features"}) {
    %w = graph.read @"param/w" : tensor<3xf32>
    %f = graph.read @"param/frozen" : tensor<3xf32>
    %y, %m, %v = graph.batch_norm_train %x, %w, %f {epsilon = 1.0e-5 : f64, running_mean = @"param/mean", running_variance = @"param/var"} : (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>)
    %s = graph.reduce %y {kind = "sum", axes = array<i64: 0, 1>} : (tensor<4x3xf32>) -> tensor<f32>
    return %s, %s, %y, %x : tensor<f32>, tensor<f32>, tensor<4x3xf32>, tensor<4x3xf32>
  }
}

// Gradients of what trains and counts, with running statistics, and nothing written.
// CHECK-LABEL: func.func @probe
// CHECK-SAME: -> (tensor<f32> {graph.name = "loss_sum"}, tensor<f32> {graph.name = "loss_count"}, tensor<4x3xf32> {graph.name = "logits"}, tensor<3xf32> {graph.name = "grad/w"})
// CHECK: graph.batch_norm %
// CHECK-NOT: graph.batch_norm_train
// CHECK-NOT: graph.write
