// RUN: sluice-opt --form-regions --lower-graph-to-plan %s | FileCheck %s

// Average pools and sums of rows read 16 bits: no buffer holds them widened.
module attributes {graph.threads = 1 : i64} {
  // CHECK-LABEL: plan.program @infer
  // CHECK-DAG: %[[HALF:.*]] = plan.buffer {{.*}} size 576 {plan.element = bf16}
  // CHECK-DAG: %[[ROWS:.*]] = plan.buffer {{.*}} size 70 {plan.element = f16}
  // CHECK-DAG: %[[POOLED:.*]] = plan.buffer "pooled" "io" size 288
  // CHECK-DAG: %[[SUMS:.*]] = plan.buffer "sums" "io" size 112
  // CHECK: plan.queue @compute
  // CHECK-DAG: plan.stage @avg_pool_f32 ins(%[[HALF]]) outs(%[[POOLED]])
  // CHECK-DAG: plan.stage @scatter_add_f32 ins(%{{.*}}, %[[ROWS]]) outs(%[[SUMS]])
  func.func @infer(%x: tensor<2x3x6x8xf32> {graph.name = "x"}, %u: tensor<5x7xf32> {graph.name = "u"}, %i: tensor<5xi64> {graph.name = "i"}) -> (tensor<2x3x3x4xf32> {graph.name = "pooled"}, tensor<4x7xf32> {graph.name = "sums"}) {
    %0 = graph.cast %x {element_type = bf16} : (tensor<2x3x6x8xf32>) -> tensor<2x3x6x8xbf16>
    %1 = graph.cast %0 {element_type = f32} : (tensor<2x3x6x8xbf16>) -> tensor<2x3x6x8xf32>
    %2 = graph.avg_pool %1 {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads_begin = array<i64: 0, 0>, pads_end = array<i64: 0, 0>, output = array<i64: 3, 4>} : (tensor<2x3x6x8xf32>) -> tensor<2x3x3x4xf32>
    %3 = graph.cast %u {element_type = f16} : (tensor<5x7xf32>) -> tensor<5x7xf16>
    %4 = graph.cast %3 {element_type = f32} : (tensor<5x7xf16>) -> tensor<5x7xf32>
    %5 = graph.scatter_add %i, %4 {axis = 0 : i64, size = 4 : i64} : (tensor<5xi64>, tensor<5x7xf32>) -> tensor<4x7xf32>
    return %2, %5 : tensor<2x3x3x4xf32>, tensor<4x7xf32>
  }

  // What scatter_add reads narrow must be computed before it: %h stays out of the region behind.
  // CHECK-LABEL: plan.program @eval
  // CHECK: plan.stage @scatter_add_f32
  // CHECK: plan.stage
  func.func @eval(%u: tensor<5x7xf32> {graph.name = "u"}, %i: tensor<5xi64> {graph.name = "i"}) -> (tensor<5x7xf32> {graph.name = "y"}) {
    %h = graph.cast %u {element_type = bf16} : (tensor<5x7xf32>) -> tensor<5x7xbf16>
    %w = graph.cast %h {element_type = f32} : (tensor<5x7xbf16>) -> tensor<5x7xf32>
    %s = graph.scatter_add %i, %w {axis = 0 : i64, size = 5 : i64} : (tensor<5xi64>, tensor<5x7xf32>) -> tensor<5x7xf32>
    %z = graph.cast %s {element_type = bf16} : (tensor<5x7xf32>) -> tensor<5x7xbf16>
    %a = graph.add %z, %h : (tensor<5x7xbf16>, tensor<5x7xbf16>) -> tensor<5x7xbf16>
    %y = graph.cast %a {element_type = f32} : (tensor<5x7xbf16>) -> tensor<5x7xf32>
    return %y : tensor<5x7xf32>
  }

  // Products too: rows of x by a weight of 16 bits.
  // CHECK-LABEL: plan.program @probe
  // CHECK-DAG: %[[WEIGHT:.*]] = plan.buffer {{.*}} size 24 {plan.element = bf16}
  // CHECK-DAG: %[[PRODUCT:.*]] = plan.buffer "product" "io" size 32
  // CHECK: plan.stage @gemm_f32 ins(%{{.*}}, %[[WEIGHT]]) outs(%[[PRODUCT]]
  func.func @probe(%x: tensor<2x3xf32> {graph.name = "x"}, %w: tensor<3x4xf32> {graph.name = "w"}) -> (tensor<2x4xf32> {graph.name = "product"}) {
    %0 = graph.cast %w {element_type = bf16} : (tensor<3x4xf32>) -> tensor<3x4xbf16>
    %1 = graph.cast %0 {element_type = f32} : (tensor<3x4xbf16>) -> tensor<3x4xf32>
    %2 = graph.contract %x, %1 {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 0>} : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
    return %2 : tensor<2x4xf32>
  }

  // And convolutions; but two casts do not make one of f32 a convolution of bf16 by bf16, which has other bits: its weights are
  // widened.
  // CHECK-LABEL: plan.program @step
  // CHECK-DAG: %[[X:.*]] = plan.buffer {{.*}} size 300 {plan.element = bf16}
  // CHECK-DAG: %[[W:.*]] = plan.buffer "" "activations" size 432 {plan.element = f32}
  // CHECK-DAG: %[[Y:.*]] = plan.buffer "y" "io" size 288
  // CHECK: plan.stage @conv_forward_f32 ins(%[[X]], %[[W]]) outs(%[[Y]]
  func.func @step(%x: tensor<2x3x5x5xf32> {graph.name = "x"}, %w: tensor<4x3x3x3xf32> {graph.name = "w"}) -> (tensor<2x4x3x3xf32> {graph.name = "y"}) {
    %0 = graph.cast %x {element_type = bf16} : (tensor<2x3x5x5xf32>) -> tensor<2x3x5x5xbf16>
    %1 = graph.cast %0 {element_type = f32} : (tensor<2x3x5x5xbf16>) -> tensor<2x3x5x5xf32>
    %2 = graph.cast %w {element_type = bf16} : (tensor<4x3x3x3xf32>) -> tensor<4x3x3x3xbf16>
    %3 = graph.cast %2 {element_type = f32} : (tensor<4x3x3x3xbf16>) -> tensor<4x3x3x3xf32>
    %4 = graph.conv %1, %3 {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_begin = array<i64: 0, 0>, pads_end = array<i64: 0, 0>, groups = 1 : i64} : (tensor<2x3x5x5xf32>, tensor<4x3x3x3xf32>) -> tensor<2x4x3x3xf32>
    return %4 : tensor<2x4x3x3xf32>
  }
}
