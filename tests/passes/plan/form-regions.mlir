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

// Both layers read the parts; of what was joined nothing is left.
// CHECK-LABEL: @joined_channels_are_read_from_their_parts
// SPLIT-LABEL: @joined_channels_are_read_from_their_parts
func.func @joined_channels_are_read_from_their_parts(%x: tensor<2x3x6x6xf32>, %y: tensor<2x2x6x6xf32>, %z: tensor<2x1x6x6xf32>) -> (tensor<2x5x6x6xf32>, tensor<2x6x6x6xf32>) {
  // CHECK: %[[A:.*]] = graph.region(%arg0, %arg1)
  // CHECK: graph.concat
  // CHECK: %[[B:.*]] = graph.region(%arg0, %arg1, %arg2)
  // CHECK: graph.concat %{{.*}}, %{{.*}}, %{{.*}} {axis = 1
  // CHECK: return %[[A]], %[[B]]
  // SPLIT-COUNT-2: graph.concat
  %0 = graph.concat %x, %y {axis = 1 : i64} : (tensor<2x3x6x6xf32>, tensor<2x2x6x6xf32>) -> tensor<2x5x6x6xf32>
  %a = graph.relu %0 : (tensor<2x5x6x6xf32>) -> tensor<2x5x6x6xf32>
  %1 = graph.concat %0, %z {axis = 1 : i64} : (tensor<2x5x6x6xf32>, tensor<2x1x6x6xf32>) -> tensor<2x6x6x6xf32>
  %b = graph.tanh %1 : (tensor<2x6x6x6xf32>) -> tensor<2x6x6x6xf32>
  return %a, %b : tensor<2x5x6x6xf32>, tensor<2x6x6x6xf32>
}

// A convolution needs the first one in memory, so its other reader reads it there; the
// second is still read from its parts.
// CHECK-LABEL: @what_a_convolution_reads_is_joined
func.func @what_a_convolution_reads_is_joined(%x: tensor<2x3x6x6xf32>, %y: tensor<2x2x6x6xf32>, %z: tensor<2x1x6x6xf32>, %w: tensor<4x5x1x1xf32>) -> (tensor<2x5x6x6xf32>, tensor<2x6x6x6xf32>, tensor<2x4x6x6xf32>) {
  // CHECK: %[[J:.*]] = graph.concat %arg0, %arg1
  // CHECK: graph.region(%[[J]])
  // CHECK: graph.region(%[[J]], %arg2)
  // CHECK: graph.concat %{{.*}}, %{{.*}} {axis = 1
  %0 = graph.concat %x, %y {axis = 1 : i64} : (tensor<2x3x6x6xf32>, tensor<2x2x6x6xf32>) -> tensor<2x5x6x6xf32>
  %c = graph.conv %0, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_begin = array<i64: 0, 0>, pads_end = array<i64: 0, 0>, groups = 1 : i64} : (tensor<2x5x6x6xf32>, tensor<4x5x1x1xf32>) -> tensor<2x4x6x6xf32>
  %a = graph.relu %0 : (tensor<2x5x6x6xf32>) -> tensor<2x5x6x6xf32>
  %1 = graph.concat %0, %z {axis = 1 : i64} : (tensor<2x5x6x6xf32>, tensor<2x1x6x6xf32>) -> tensor<2x6x6x6xf32>
  %b = graph.tanh %1 : (tensor<2x6x6x6xf32>) -> tensor<2x6x6x6xf32>
  return %a, %b, %c : tensor<2x5x6x6xf32>, tensor<2x6x6x6xf32>, tensor<2x4x6x6xf32>
}

// What was joined for a copy in any case is copied from its parts.
// CHECK-LABEL: @a_result_is_copied_from_all_parts
func.func @a_result_is_copied_from_all_parts(%x: tensor<2x3x6x6xf32>, %y: tensor<2x2x6x6xf32>, %z: tensor<2x1x6x6xf32>) -> (tensor<2x5x6x6xf32>, tensor<2x6x6x6xf32>) {
  // CHECK-DAG: graph.region(%arg0, %arg1)
  // CHECK-DAG: graph.concat %arg0, %arg1, %arg2
  %0 = graph.concat %x, %y {axis = 1 : i64} : (tensor<2x3x6x6xf32>, tensor<2x2x6x6xf32>) -> tensor<2x5x6x6xf32>
  %a = graph.relu %0 : (tensor<2x5x6x6xf32>) -> tensor<2x5x6x6xf32>
  %1 = graph.concat %0, %z {axis = 1 : i64} : (tensor<2x5x6x6xf32>, tensor<2x1x6x6xf32>) -> tensor<2x6x6x6xf32>
  return %a, %1 : tensor<2x5x6x6xf32>, tensor<2x6x6x6xf32>
}

// Along the last dimension every vector would have to choose, and rows of four elements
// are copied as fast.
// CHECK-LABEL: @short_rows_are_joined_in_memory
func.func @short_rows_are_joined_in_memory(%x: tensor<8x64xf32>, %y: tensor<8x32xf32>, %p: tensor<8x3x2x2xf32>, %q: tensor<8x1x2x2xf32>) -> (tensor<8x96xf32>, tensor<8x4x2x2xf32>) {
  // CHECK-COUNT-2: %{{.*}} = graph.concat %arg
  %0 = graph.concat %x, %y {axis = 1 : i64} : (tensor<8x64xf32>, tensor<8x32xf32>) -> tensor<8x96xf32>
  %a = graph.relu %0 : (tensor<8x96xf32>) -> tensor<8x96xf32>
  %1 = graph.concat %p, %q {axis = 1 : i64} : (tensor<8x3x2x2xf32>, tensor<8x1x2x2xf32>) -> tensor<8x4x2x2xf32>
  %b = graph.relu %1 : (tensor<8x4x2x2xf32>) -> tensor<8x4x2x2xf32>
  return %a, %b : tensor<8x96xf32>, tensor<8x4x2x2xf32>
}

// Most of the tensor is read where it lies; a small part of it, or one that lies in one
// piece, is not.
// CHECK-LABEL: @large_slices_are_read_where_they_lie
func.func @large_slices_are_read_where_they_lie(%x: tensor<4x8x6x6xf32>) -> (tensor<4x6x6x6xf32>, tensor<4x2x6x6xf32>, tensor<3x8x6x6xf32>) {
  // CHECK-DAG: %[[S:.*]] = graph.slice %arg0 {sizes = array<i64: 4, 2, 6, 6>
  // CHECK-DAG: graph.region(%[[S]])
  // CHECK-DAG: %[[V:.*]] = graph.slice %arg0 {sizes = array<i64: 3, 8, 6, 6>
  // CHECK-DAG: graph.region(%[[V]])
  // CHECK-DAG: graph.region(%arg0)
  %0 = graph.slice %x {starts = array<i64: 0, 0, 0, 0>, sizes = array<i64: 4, 6, 6, 6>, steps = array<i64: 1, 1, 1, 1>} : (tensor<4x8x6x6xf32>) -> tensor<4x6x6x6xf32>
  %1 = graph.slice %x {starts = array<i64: 0, 6, 0, 0>, sizes = array<i64: 4, 2, 6, 6>, steps = array<i64: 1, 1, 1, 1>} : (tensor<4x8x6x6xf32>) -> tensor<4x2x6x6xf32>
  %2 = graph.slice %x {starts = array<i64: 1, 0, 0, 0>, sizes = array<i64: 3, 8, 6, 6>, steps = array<i64: 1, 1, 1, 1>} : (tensor<4x8x6x6xf32>) -> tensor<3x8x6x6xf32>
  %a = graph.relu %0 : (tensor<4x6x6x6xf32>) -> tensor<4x6x6x6xf32>
  %b = graph.relu %1 : (tensor<4x2x6x6xf32>) -> tensor<4x2x6x6xf32>
  %c = graph.relu %2 : (tensor<3x8x6x6xf32>) -> tensor<3x8x6x6xf32>
  return %a, %b, %c : tensor<4x6x6x6xf32>, tensor<4x2x6x6xf32>, tensor<3x8x6x6xf32>
}
