// RUN: sluice-opt --spec %S/inputs/train.yaml --build-update %s | FileCheck %s
// RUN: sluice-opt --spec %S/inputs/train.yaml --set accumulate=2 --build-update %s | FileCheck %s --check-prefix=MICRO
// RUN: sluice-opt --spec %S/inputs/train.yaml --set accumulate.count=4 --set accumulate.as_ranks=4 --build-update %s | FileCheck %s --check-prefix=RANKS
// RUN: sluice-opt --spec %S/inputs/train.yaml --set precision.loss_scale=dynamic --set clip.kind=global_norm --set clip.max=1 --build-update %s | FileCheck %s --check-prefix=SCALED

module attributes {graph.groups = [{name = "default", kind = "sgd", lr = 0.1 : f64, momentum = 0.9 : f64, dampening = 0.0 : f64, weight_decay = 0.0 : f64, members = ["param/w"]}]} {
  graph.parameter @"param/w" : tensor<3xf32> "parameter" {group = "default", trainable}
  // CHECK: graph.parameter @"opt/w/velocity" : tensor<3xf32> "moment" {group = "default"}
  // CHECK-LABEL: func.func @step
  // CHECK-SAME: %[[G:[a-z0-9]+]]: tensor<3xf32>
  // CHECK-SAME: %[[N:[a-z0-9]+]]: tensor<f32>
  // The sum is divided once, by the count, before the optimizer sees it.
  // CHECK: %[[INV:.*]] = graph.div
  // CHECK: %[[SAFE:.*]] = graph.select %{{.*}}, %[[INV]]
  // CHECK: %[[SPREAD:.*]] = graph.broadcast %[[SAFE]]
  // CHECK: %[[MEAN:.*]] = graph.mul %[[G]], %[[SPREAD]]
  // CHECK: %[[NEW:.*]], %[[V:.*]] = graph.sgd %{{.*}}, %[[MEAN]],
  // A group that is frozen while training keeps its values.
  // CHECK: %[[KEPT:.*]] = graph.select %{{.*}}, %[[NEW]], %{{.*}}
  // CHECK: graph.write @"param/w", %[[KEPT]]
  // CHECK: %[[KEPT_V:.*]] = graph.select %{{.*}}, %[[V]], %{{.*}}
  // CHECK: graph.write @"opt/w/velocity", %[[KEPT_V]]
  func.func @step(%g: tensor<3xf32> {graph.name = "g"}, %n: tensor<f32> {graph.name = "n"}) -> (tensor<f32> {graph.name = "loss_sum"}, tensor<f32> {graph.name = "loss_count"}, tensor<3xf32> {graph.name = "grad/w"}) {
    return %n, %n, %g : tensor<f32>, tensor<f32>, tensor<3xf32>
  }
  // Unscaled with the division by the count, then checked, then clipped.
  // SCALED-LABEL: func.func @step
  // SCALED: %[[SCALE:.*]] = graph.read @"scale/value"
  // SCALED: %[[INVERSE:.*]] = graph.div %{{.*}}, %[[SCALE]]
  // SCALED: %[[FACTOR:.*]] = graph.broadcast %[[INVERSE]]
  // SCALED: %[[MEAN:.*]] = graph.mul %{{.*}}, %[[FACTOR]]
  // SCALED: %[[SIZE:.*]] = graph.abs %[[MEAN]]
  // SCALED: graph.compare %[[SIZE]], %{{.*}} {predicate = "lt"}
  // SCALED: %[[FIRST:.*]] = graph.select {{.*}} -> tensor<i64>
  // SCALED: %[[FINITE:.*]] = graph.compare %[[FIRST]], %{{.*}} {predicate = "lt"}
  // SCALED: graph.write @"scale/value"
  // SCALED: %[[WIDE:.*]] = graph.cast %[[MEAN]] {element_type = f64}
  // SCALED: graph.mul %[[WIDE]], %[[WIDE]]
  // SCALED: graph.sgd
  // SCALED: graph.and %{{.*}}, %[[FINITE]]
  // SCALED: graph.write @"param/w"
  // MICRO-LABEL: func.func @micro
  // MICRO-SAME: %[[G:[a-z0-9]+]]: tensor<3xf32>
  // MICRO: %[[ACC:.*]] = graph.read @"grad/w"
  // MICRO: %[[SUM:.*]] = graph.add %[[ACC]], %[[G]]
  // MICRO: graph.write @"grad/w", %[[SUM]]
  // MICRO-LABEL: func.func @update()
  // MICRO: graph.write @"param/w"
  // MICRO: %[[ZERO:.*]] = graph.constant dense<0.000000e+00> : tensor<3xf32>
  // MICRO: graph.write @"grad/w", %[[ZERO]]
  // In the order of ranks a finished sum waits for its right neighbour.
  // RANKS: graph.parameter @"sum1/w" : tensor<3xf32> "accumulator" {group = "default"}
  // RANKS: graph.parameter @"sum2/w"
  // RANKS-NOT: @"sum4/w"
  // RANKS-LABEL: func.func @close_rank()
  // RANKS: graph.read @"control/rank"
  // RANKS: graph.write @"sum1/w"
  // RANKS: graph.write @"sum2/w"
  // RANKS-LABEL: func.func @update()
  // RANKS: %[[OWN:.*]] = graph.read @"grad/w"
  // RANKS: %[[PAIR:.*]] = graph.add %[[LEFT:.*]], %[[OWN]]
  // RANKS: graph.add %{{.*}}, %[[PAIR]]
  func.func @micro(%g: tensor<3xf32> {graph.name = "g"}, %n: tensor<f32> {graph.name = "n"}) -> (tensor<f32> {graph.name = "loss_sum"}, tensor<f32> {graph.name = "loss_count"}, tensor<3xf32> {graph.name = "grad/w"}) {
    return %n, %n, %g : tensor<f32>, tensor<f32>, tensor<3xf32>
  }
}
