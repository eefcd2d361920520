// RUN: sluice-opt --spec %S/inputs/train.yaml --build-loss %s | FileCheck %s

// CHECK: graph.labels_input = "labels"
// CHECK-SAME: graph.logits_output = "logits"
// CHECK: graph.parameter @"control/valid" : tensor<i64> "control"

// CHECK-LABEL: func.func @forward(
// CHECK-SAME: %[[LOGITS:[a-z0-9]+]]: tensor<4x3xf32> {graph.batched, graph.name = "x"}
// CHECK-SAME: %[[LABELS:[a-z0-9]+]]: tensor<4xi64> {graph.batched, graph.bounds = array<i64: 0, 2>, graph.ignored = -100 : i64, graph.name = "labels"}
// CHECK-SAME: -> (tensor<f32> {graph.name = "loss_sum"}, tensor<f32> {graph.name = "loss_count"}, tensor<4x3xf32> {graph.name = "logits"})
// CHECK: %[[VALID:.*]] = graph.read @"control/valid"
// CHECK: %[[INSIDE:.*]] = graph.compare {{.*}} {predicate = "lt"}
// CHECK: %[[IGNORED:.*]] = graph.constant dense<-100>
// CHECK: %[[MASKED:.*]] = graph.select %[[INSIDE]], %[[LABELS]], %[[IGNORED]]
// CHECK: %[[SUM:.*]], %[[COUNT:.*]] = graph.cross_entropy %[[LOGITS]], %[[MASKED]]
// CHECK: return %[[SUM]], %[[COUNT]], %[[LOGITS]]
func.func @forward(%x: tensor<4x3xf32> {graph.name = "x"}) -> (tensor<4x3xf32> {graph.name = "logits"}) {
  return %x : tensor<4x3xf32>
}
