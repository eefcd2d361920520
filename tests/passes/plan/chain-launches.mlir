// RUN: sluice-opt --form-regions --lower-graph-to-plan --chain-launches %s | FileCheck %s
// RUN: sluice-opt --form-regions --plan %s | FileCheck %s --check-prefix=PLAN

module attributes {graph.threads = 2 : i64, graph.batch = 256 : i64} {
  graph.parameter @"param/w" : tensor<96x64xf32> "parameter"
  graph.parameter @"param/b" : tensor<96xf32> "parameter"

  // CHECK: plan.program @dense
  // CHECK: plan.launch "pack"
  // CHECK: plan.launch "contract+add+relu" units 8 chunk 1
  // CHECK-NEXT: plan.stage @gemm_packed_f32 ins(%{{.*}}) outs(%[[H:[0-9]+]])
  // CHECK-NEXT: plan.stage @kernel_{{.*}} ins(%{{.*}}, %[[H]]) outs(%{{.*}}) {{.*}}unit_scale = 32 : i64
  // CHECK-NOT: plan.launch
  // The region writes over the product's rows.
  // PLAN: plan.program @dense
  // PLAN: plan.stage @gemm_packed_f32 ins(%{{.*}}) outs(%[[Y:[0-9]+]])
  // PLAN-NEXT: plan.stage @kernel_{{.*}} outs(%[[Y]])
  func.func @dense(%x: tensor<256x64xf32> {graph.name = "x", graph.batched}) -> (tensor<256x96xf32> {graph.name = "y"}) {
    %w = graph.read @"param/w" : tensor<96x64xf32>
    %b = graph.read @"param/b" : tensor<96xf32>
    %h = graph.contract %x, %w {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<256x64xf32>, tensor<96x64xf32>) -> tensor<256x96xf32>
    %bb = graph.broadcast %b {shape = array<i64: 256, 96>} : (tensor<96xf32>) -> tensor<256x96xf32>
    %s = graph.add %h, %bb : (tensor<256x96xf32>, tensor<256x96xf32>) -> tensor<256x96xf32>
    %y = graph.relu %s : (tensor<256x96xf32>) -> tensor<256x96xf32>
    return %y : tensor<256x96xf32>
  }

  // Channels of an image are the rows of a convolution.
  // CHECK: plan.program @convolution
  // CHECK: plan.launch "conv+add+relu"
  // CHECK-NEXT: plan.stage @conv_forward_f32
  // CHECK-NEXT: plan.stage @kernel_
  func.func @convolution(%x: tensor<2x3x8x8xf32> {graph.name = "x"}, %k: tensor<8x3x3x3xf32> {graph.name = "k"}, %b: tensor<8x1x1xf32> {graph.name = "b"}) -> (tensor<2x8x8x8xf32> {graph.name = "y"}) {
    %h = graph.conv %x, %k {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_begin = array<i64: 1, 1>, pads_end = array<i64: 1, 1>, groups = 1 : i64} : (tensor<2x3x8x8xf32>, tensor<8x3x3x3xf32>) -> tensor<2x8x8x8xf32>
    %bb = graph.broadcast %b {shape = array<i64: 2, 8, 8, 8>} : (tensor<8x1x1xf32>) -> tensor<2x8x8x8xf32>
    %s = graph.add %h, %bb : (tensor<2x8x8x8xf32>, tensor<2x8x8x8xf32>) -> tensor<2x8x8x8xf32>
    %y = graph.relu %s : (tensor<2x8x8x8xf32>) -> tensor<2x8x8x8xf32>
    return %y : tensor<2x8x8x8xf32>
  }

  // The bias gradient needs all rows of the product before it has one result.
  // CHECK: plan.program @column_sums
  // CHECK-NOT: contract+
  func.func @column_sums(%x: tensor<256x64xf32> {graph.name = "x"}) -> (tensor<96xf32> {graph.name = "y"}) {
    %w = graph.read @"param/w" : tensor<96x64xf32>
    %h = graph.contract %x, %w {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<256x64xf32>, tensor<96x64xf32>) -> tensor<256x96xf32>
    %y = graph.reduce %h {kind = "sum", axes = array<i64: 0>} : (tensor<256x96xf32>) -> tensor<96xf32>
    return %y : tensor<96xf32>
  }
}
