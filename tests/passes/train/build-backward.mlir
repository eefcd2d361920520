// RUN: sluice-opt --build-backward %s | FileCheck %s
// RUN: sluice-opt --set precision.loss_scale=dynamic --build-backward %s | FileCheck %s --check-prefix=SCALED

graph.parameter @"param/w" : tensor<3xf32> "parameter" {group = "default", trainable}
graph.parameter @"param/frozen" : tensor<3xf32> "parameter"
func.func @forward(%x: tensor<3xf32> {graph.name = "x"}, %n: tensor<f32> {graph.name = "n"}) -> (tensor<f32> {graph.name = "loss_sum"}, tensor<f32> {graph.name = "loss_count"}) {
  %w = graph.read @"param/w" : tensor<3xf32>
  %f = graph.read @"param/frozen" : tensor<3xf32>
  %0 = graph.mul %w, %f : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %1 = graph.mul %0, %w : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %2 = graph.reduce %1 {kind = "sum", axes = array<i64: 0>} : (tensor<3xf32>) -> tensor<f32>
  return %2, %n : tensor<f32>, tensor<f32>
}

// Two uses of w, one of them through the frozen parameter, which has no gradient itself.
// CHECK-LABEL: func.func @step
// CHECK-SAME: -> (tensor<f32> {graph.name = "loss_sum"}, tensor<f32> {graph.name = "loss_count"}, tensor<3xf32> {graph.name = "grad/w"})
// CHECK: %[[W:.*]] = graph.read @"param/w"
// CHECK: %[[F:.*]] = graph.read @"param/frozen"
// CHECK: %[[P:.*]] = graph.mul %[[W]], %[[F]]
// CHECK: %[[D:.*]] = graph.broadcast
// CHECK: %[[DP:.*]] = graph.mul %[[D]], %[[W]]
// CHECK: %[[DW0:.*]] = graph.mul %[[D]], %[[P]]
// CHECK: %[[DW1:.*]] = graph.mul %[[DP]], %[[F]]
// CHECK: %[[DW:.*]] = graph.add %[[DW0]], %[[DW1]]
// CHECK: return %{{.*}}, %{{.*}}, %[[DW]]

// The gradient of the loss is the scale.
// SCALED: graph.parameter @"scale/value" : tensor<f32> "control" {fill = 6.553600e+04 : f64}
// SCALED-LABEL: func.func @step
// SCALED: %[[SCALE:.*]] = graph.read @"scale/value"
// SCALED: graph.reshape %[[SCALE]]
