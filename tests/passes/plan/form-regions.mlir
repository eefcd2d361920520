// RUN: sluice-opt --form-regions %s | FileCheck %s
// RUN: sluice-opt --form-regions=fuse=false %s | FileCheck %s --check-prefix=SPLIT

// CHECK-LABEL: @bias_and_relu
// SPLIT-LABEL: @bias_and_relu
func.func @bias_and_relu(%x: tensor<4x8xf32>, %b: tensor<8xf32>) -> tensor<4x8xf32> {
  // CHECK: %[[R:.*]] = graph.region
  // CHECK: graph.broadcast
  // CHECK: graph.add
  // CHECK: graph.relu
  // CHECK: graph.yield %{{.*}} : tensor<4x8xf32>
  // CHECK: return %[[R]]
  // SPLIT-COUNT-3: graph.region
  %0 = graph.broadcast %b {shape = array<i64: 4, 8>} : (tensor<8xf32>) -> tensor<4x8xf32>
  %1 = graph.add %x, %0 : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %2 = graph.relu %1 : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %2 : tensor<4x8xf32>
}

// Mean and variance are summed up and used in one walk over the rows.
// CHECK-LABEL: @layer_norm_is_one_region
func.func @layer_norm_is_one_region(%x: tensor<16x64xf32>, %g: tensor<64xf32>) -> tensor<16x64xf32> {
  // CHECK: graph.region(
  // CHECK-NOT: graph.region(
  // CHECK: return
  %n = graph.constant dense<1.562500e-02> : tensor<16x1xf32>
  %s = graph.reduce %x {kind = "sum", axes = array<i64: 1>, keep} : (tensor<16x64xf32>) -> tensor<16x1xf32>
  %m = graph.mul %s, %n : (tensor<16x1xf32>, tensor<16x1xf32>) -> tensor<16x1xf32>
  %mb = graph.broadcast %m {shape = array<i64: 16, 64>} : (tensor<16x1xf32>) -> tensor<16x64xf32>
  %d = graph.sub %x, %mb : (tensor<16x64xf32>, tensor<16x64xf32>) -> tensor<16x64xf32>
  %q = graph.mul %d, %d : (tensor<16x64xf32>, tensor<16x64xf32>) -> tensor<16x64xf32>
  %v = graph.reduce %q {kind = "sum", axes = array<i64: 1>, keep} : (tensor<16x64xf32>) -> tensor<16x1xf32>
  %r = graph.rsqrt %v : (tensor<16x1xf32>) -> tensor<16x1xf32>
  %rb = graph.broadcast %r {shape = array<i64: 16, 64>} : (tensor<16x1xf32>) -> tensor<16x64xf32>
  %h = graph.mul %d, %rb : (tensor<16x64xf32>, tensor<16x64xf32>) -> tensor<16x64xf32>
  %gb = graph.broadcast %g {shape = array<i64: 16, 64>} : (tensor<64xf32>) -> tensor<16x64xf32>
  %y = graph.mul %h, %gb : (tensor<16x64xf32>, tensor<16x64xf32>) -> tensor<16x64xf32>
  return %y : tensor<16x64xf32>
}

// A value with two users is computed once, with the first of them.
// CHECK-LABEL: @second_user_reads_memory
func.func @second_user_reads_memory(%x: tensor<8x8xf32>, %w: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  // CHECK: %[[R:.*]]:2 = graph.region
  // CHECK: %[[P:.*]] = graph.contract %[[R]]#
  // CHECK: graph.region({{.*}}%[[P]]
  %e = graph.exp %x : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %a = graph.tanh %e : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %p = graph.contract %a, %w {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %b = graph.mul %p, %e : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %a, %b : tensor<8x8xf32>, tensor<8x8xf32>
}

// exp must not move behind the product that needs it, nor the product's user before it.
// CHECK-LABEL: @no_cycles
func.func @no_cycles(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  // CHECK: %[[E:.*]] = graph.region
  // CHECK: %[[P:.*]] = graph.contract %[[E]], %[[E]]
  // CHECK: %[[Y:.*]] = graph.region(%{{.*}}%[[P]]
  // CHECK: return %[[Y]]
  %e = graph.exp %x : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %p = graph.contract %e, %e {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %y = graph.add %e, %p : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %y : tensor<8x8xf32>
}

// The scale is one number: both regions compute it.
// CHECK-LABEL: @scalars_are_repeated
func.func @scalars_are_repeated(%s: tensor<f32>, %x: tensor<8xf32>, %y: tensor<5xf32>) -> (tensor<8xf32>, tensor<5xf32>) {
  // CHECK-COUNT-2: graph.sqrt %{{.*}} : (tensor<f32>) -> tensor<f32>
  %r = graph.sqrt %s : (tensor<f32>) -> tensor<f32>
  %a = graph.broadcast %r {shape = array<i64: 8>} : (tensor<f32>) -> tensor<8xf32>
  %b = graph.broadcast %r {shape = array<i64: 5>} : (tensor<f32>) -> tensor<5xf32>
  %u = graph.mul %x, %a : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %v = graph.mul %y, %b : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
  return %u, %v : tensor<8xf32>, tensor<5xf32>
}
