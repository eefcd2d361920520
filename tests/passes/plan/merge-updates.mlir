// RUN: sluice-opt --split-input-file --form-regions --plan %s | FileCheck %s

// Tensors of all shapes, one kernel; tails and a single element too. The group of `d` has
// a rate of its own, which is another operand of the same kernel. A number is no tensor.
module attributes {graph.threads = 2 : i64} {
  graph.parameter @"param/a" : tensor<70x513xf32> "parameter" {trainable}
  graph.parameter @"param/b" : tensor<1xf32> "parameter" {trainable}
  graph.parameter @"param/c" : tensor<3x3x1x3xf32> "parameter" {trainable}
  graph.parameter @"param/d" : tensor<4096xf32> "parameter" {trainable}
  graph.parameter @"param/e" : tensor<f32> "parameter" {trainable}
  graph.parameter @"control/0/lr" : tensor<f32> "control"
  graph.parameter @"control/1/lr" : tensor<f32> "control"

  // CHECK-LABEL: plan.program @update
  // CHECK-DAG: %[[LR:.*]] = plan.state_buffer @"control/0/lr"
  // CHECK-DAG: %[[OTHER:.*]] = plan.state_buffer @"control/1/lr"
  // CHECK-DAG: %[[A:.*]] = plan.state_buffer @"param/a"
  // CHECK-DAG: %[[D:.*]] = plan.state_buffer @"param/d"
  // CHECK: plan.launch "mul+sub" units 1 chunk 1 node ""
  // CHECK-NEXT: plan.stage @[[SCALAR:kernel_[0-9]+]]
  // CHECK: plan.launch "mul+sub" units 12 chunk 10 node "a+b+c+d" attributes
  // CHECK-NEXT: plan.stage @[[KERNEL:kernel_[0-9]+]] ins(%[[A]], %[[LR]], %{{.*}}) outs(%[[A]]) {params = array<i64: 35910>, part = array<i64: 0, 9>}
  // CHECK-NEXT: plan.stage @[[KERNEL]] {{.*}} {params = array<i64: 1>, part = array<i64: 9, 1>}
  // CHECK-NEXT: plan.stage @[[KERNEL]] {{.*}} {params = array<i64: 27>, part = array<i64: 10, 1>}
  // CHECK-NEXT: plan.stage @[[KERNEL]] ins(%[[D]], %[[OTHER]], %{{.*}}) outs(%[[D]]) {params = array<i64: 4096>, part = array<i64: 11, 1>}
  // CHECK-NOT: plan.launch
  // CHECK: plan.kernel @[[KERNEL]]
  // CHECK: graph.region
  // CHECK: kernel = "elastic"
  // CHECK-NOT: kernel = "elastic"
  func.func @update(%ga: tensor<70x513xf32> {graph.name = "ga"}, %gb: tensor<1xf32> {graph.name = "gb"}, %gc: tensor<3x3x1x3xf32> {graph.name = "gc"}, %gd: tensor<4096xf32> {graph.name = "gd"}, %ge: tensor<f32> {graph.name = "ge"}) {
    %lr = graph.read @"control/0/lr" : tensor<f32>
    %other = graph.read @"control/1/lr" : tensor<f32>
    %a = graph.read @"param/a" : tensor<70x513xf32>
    %b = graph.read @"param/b" : tensor<1xf32>
    %c = graph.read @"param/c" : tensor<3x3x1x3xf32>
    %d = graph.read @"param/d" : tensor<4096xf32>
    %e = graph.read @"param/e" : tensor<f32>
    %e0 = graph.mul %lr, %ge : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %e1 = graph.sub %e, %e0 : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %la = graph.broadcast %lr {shape = array<i64: 70, 513>} : (tensor<f32>) -> tensor<70x513xf32>
    %sa = graph.mul %la, %ga : (tensor<70x513xf32>, tensor<70x513xf32>) -> tensor<70x513xf32>
    %a1 = graph.sub %a, %sa : (tensor<70x513xf32>, tensor<70x513xf32>) -> tensor<70x513xf32>
    %lb = graph.broadcast %lr {shape = array<i64: 1>} : (tensor<f32>) -> tensor<1xf32>
    %sb = graph.mul %lb, %gb : (tensor<1xf32>, tensor<1xf32>) -> tensor<1xf32>
    %b1 = graph.sub %b, %sb : (tensor<1xf32>, tensor<1xf32>) -> tensor<1xf32>
    %lc = graph.broadcast %lr {shape = array<i64: 3, 3, 1, 3>} : (tensor<f32>) -> tensor<3x3x1x3xf32>
    %sc = graph.mul %lc, %gc : (tensor<3x3x1x3xf32>, tensor<3x3x1x3xf32>) -> tensor<3x3x1x3xf32>
    %c1 = graph.sub %c, %sc : (tensor<3x3x1x3xf32>, tensor<3x3x1x3xf32>) -> tensor<3x3x1x3xf32>
    %ld = graph.broadcast %other {shape = array<i64: 4096>} : (tensor<f32>) -> tensor<4096xf32>
    %sd = graph.mul %ld, %gd : (tensor<4096xf32>, tensor<4096xf32>) -> tensor<4096xf32>
    %d1 = graph.sub %d, %sd : (tensor<4096xf32>, tensor<4096xf32>) -> tensor<4096xf32>
    graph.write @"param/e", %e1 : tensor<f32>
    graph.write @"param/a", %a1 : tensor<70x513xf32>
    graph.write @"param/b", %b1 : tensor<1xf32>
    graph.write @"param/c", %c1 : tensor<3x3x1x3xf32>
    graph.write @"param/d", %d1 : tensor<4096xf32>
    return
  }
}

// -----

// The same computation written down in another order, with what it repeats, is the same
// kernel; another one is not.
module attributes {graph.threads = 1 : i64} {
  graph.parameter @"param/a" : tensor<5xf32> "parameter" {trainable}
  graph.parameter @"opt/a/m" : tensor<5xf32> "moment"
  graph.parameter @"param/b" : tensor<2x3xf32> "parameter" {trainable}
  graph.parameter @"opt/b/m" : tensor<2x3xf32> "moment"
  graph.parameter @"param/c" : tensor<7xf32> "parameter" {trainable}
  graph.parameter @"opt/c/m" : tensor<7xf32> "moment"

  // CHECK-LABEL: plan.program @step
  // CHECK-DAG: plan.launch "add+sub" units 1 chunk 1 node "c"
  // CHECK-DAG: plan.launch "sub+add" units 2 chunk 2 node "a+b"
  // CHECK-COUNT-2: kernel = "elastic"
  // CHECK-NOT: kernel = "elastic"
  func.func @step(%ga: tensor<5xf32> {graph.name = "ga"}, %gb: tensor<2x3xf32> {graph.name = "gb"}, %gc: tensor<7xf32> {graph.name = "gc"}) {
    %a = graph.read @"param/a" : tensor<5xf32>
    %ma = graph.read @"opt/a/m" : tensor<5xf32>
    %ma1 = graph.sub %ma, %ga : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
    %a1 = graph.add %a, %ma1 : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
    graph.write @"param/a", %a1 : tensor<5xf32>
    graph.write @"opt/a/m", %ma1 : tensor<5xf32>
    %mb = graph.read @"opt/b/m" : tensor<2x3xf32>
    %b = graph.read @"param/b" : tensor<2x3xf32>
    %mb1 = graph.sub %mb, %gb : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    %b1 = graph.add %b, %mb1 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    graph.write @"opt/b/m", %mb1 : tensor<2x3xf32>
    graph.write @"param/b", %b1 : tensor<2x3xf32>
    %c = graph.read @"param/c" : tensor<7xf32>
    %mc = graph.read @"opt/c/m" : tensor<7xf32>
    %mc1 = graph.add %mc, %gc : (tensor<7xf32>, tensor<7xf32>) -> tensor<7xf32>
    %c1 = graph.sub %c, %mc1 : (tensor<7xf32>, tensor<7xf32>) -> tensor<7xf32>
    graph.write @"param/c", %c1 : tensor<7xf32>
    graph.write @"opt/c/m", %mc1 : tensor<7xf32>
    return
  }
}

// -----

// Accumulated gradients are read and start anew in the same launch.
module attributes {graph.threads = 1 : i64} {
  graph.parameter @"param/a" : tensor<5xf32> "parameter" {trainable}
  graph.parameter @"grad/a" : tensor<5xf32> "accumulator"
  graph.parameter @"param/b" : tensor<2x3xf32> "parameter" {trainable}
  graph.parameter @"grad/b" : tensor<2x3xf32> "accumulator"

  // CHECK-LABEL: plan.program @update
  // CHECK-DAG: %[[A:.*]] = plan.state_buffer @"param/a"
  // CHECK-DAG: %[[G:.*]] = plan.state_buffer @"grad/a"
  // CHECK: plan.launch "sub" units 2 chunk 2 node "a+b"
  // CHECK-NEXT: plan.stage @{{.*}} ins(%[[A]], %[[G]]) outs(%[[A]], %[[G]])
  // CHECK-NOT: plan.launch
  func.func @update() {
    %zero = graph.constant dense<0.0> : tensor<5xf32>
    %zeros = graph.constant dense<0.0> : tensor<2x3xf32>
    %a = graph.read @"param/a" : tensor<5xf32>
    %ga = graph.read @"grad/a" : tensor<5xf32>
    %a1 = graph.sub %a, %ga : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
    %b = graph.read @"param/b" : tensor<2x3xf32>
    %gb = graph.read @"grad/b" : tensor<2x3xf32>
    %b1 = graph.sub %b, %gb : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    graph.write @"param/a", %a1 : tensor<5xf32>
    graph.write @"param/b", %b1 : tensor<2x3xf32>
    graph.write @"grad/a", %zero : tensor<5xf32>
    graph.write @"grad/b", %zeros : tensor<2x3xf32>
    return
  }
}
