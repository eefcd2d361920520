// RUN: sluice-opt --form-regions --plan %s | FileCheck %s

module attributes {graph.threads = 2 : i64, graph.batch = 4 : i64} {
  // CHECK: plan.state @"param/w" : tensor<8x8xf32> "parameter" at 0 size 256
  // CHECK: plan.state @"opt/w/m" : tensor<8x8xf32> "moment" at 256 size 256
  // CHECK: plan.state @"control/lr" : tensor<f32> "control" at 512 size 4
  graph.parameter @"control/lr" : tensor<f32> "control"
  graph.parameter @"opt/w/m" : tensor<8x8xf32> "moment"
  graph.parameter @"param/w" : tensor<8x8xf32> "parameter" {trainable, fill = 0.5 : f64}

  // The update writes the parameter in place, behind the product that reads the old value.
  // CHECK: plan.program @update
  // CHECK-DAG: %[[W:.*]] = plan.state_buffer @"param/w"
  // CHECK-DAG: %[[M:.*]] = plan.state_buffer @"opt/w/m"
  // CHECK: plan.launch "contract"
  // CHECK-NEXT: plan.stage @gemm_f32 ins(%{{.*}}, %[[W]])
  // CHECK: plan.launch "mul+add+sub"
  // CHECK-NEXT: plan.stage @kernel_{{.*}} ins({{.*}}%[[M]]{{.*}}) outs(%[[W]], %[[M]])
  func.func @update(%x: tensor<4x8xf32> {graph.name = "x", graph.batched}, %g: tensor<8x8xf32> {graph.name = "g"}) -> (tensor<4x8xf32> {graph.name = "y"}) {
    %w = graph.read @"param/w" : tensor<8x8xf32>
    %m = graph.read @"opt/w/m" : tensor<8x8xf32>
    %lr = graph.read @"control/lr" : tensor<f32>
    %c = graph.constant dense<0.9> : tensor<8x8xf32>
    %cm = graph.mul %m, %c : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    %m1 = graph.add %cm, %g : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    %lrb = graph.broadcast %lr {shape = array<i64: 8, 8>} : (tensor<f32>) -> tensor<8x8xf32>
    %s = graph.mul %m1, %lrb : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    %w1 = graph.sub %w, %s : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    graph.write @"param/w", %w1 : tensor<8x8xf32>
    graph.write @"opt/w/m", %m1 : tensor<8x8xf32>
    %y = graph.contract %x, %w {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    return %y : tensor<4x8xf32>
  }

  // A result that is an old value of the state is copied before it changes.
  // CHECK: plan.program @swap
  // CHECK: plan.launch "copy"
  // CHECK-NEXT: plan.stage @copy_strided ins(%[[OLD:.*]]) outs(%[[OUT:.*]])
  // CHECK: plan.launch
  // CHECK-NEXT: plan.stage {{.*}} outs(%[[OLD]])
  func.func @swap() -> (tensor<8x8xf32> {graph.name = "old"}) {
    %w = graph.read @"param/w" : tensor<8x8xf32>
    %n = graph.neg %w : (tensor<8x8xf32>) -> tensor<8x8xf32>
    graph.write @"param/w", %n : tensor<8x8xf32>
    return %w : tensor<8x8xf32>
  }

  // Views and transposes of a product's operands are no work.
  // CHECK: plan.program @attention
  // CHECK-NOT: plan.launch "slice"
  // CHECK-NOT: plan.launch "transpose"
  // CHECK: plan.launch "contract"
  // CHECK-NOT: plan.launch "slice"
  // CHECK-NOT: plan.launch "transpose"
  func.func @attention(%qk: tensor<4x6x32xf32> {graph.name = "qk"}) -> (tensor<4x2x6x6xf32> {graph.name = "scores"}) {
    %q = graph.slice %qk {starts = array<i64: 0, 0, 0>, sizes = array<i64: 4, 6, 16>, steps = array<i64: 1, 1, 1>} : (tensor<4x6x32xf32>) -> tensor<4x6x16xf32>
    %k = graph.slice %qk {starts = array<i64: 0, 0, 16>, sizes = array<i64: 4, 6, 16>, steps = array<i64: 1, 1, 1>} : (tensor<4x6x32xf32>) -> tensor<4x6x16xf32>
    %qh = graph.reshape %q {shape = array<i64: 4, 6, 2, 8>} : (tensor<4x6x16xf32>) -> tensor<4x6x2x8xf32>
    %kh = graph.reshape %k {shape = array<i64: 4, 6, 2, 8>} : (tensor<4x6x16xf32>) -> tensor<4x6x2x8xf32>
    %s = graph.contract %qh, %kh {lhs_batch = array<i64: 0, 2>, rhs_batch = array<i64: 0, 2>, lhs_contract = array<i64: 3>, rhs_contract = array<i64: 3>} : (tensor<4x6x2x8xf32>, tensor<4x6x2x8xf32>) -> tensor<4x2x6x6xf32>
    return %s : tensor<4x2x6x6xf32>
  }
}
