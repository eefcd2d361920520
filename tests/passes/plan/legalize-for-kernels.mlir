// RUN: sluice-opt --legalize-for-kernels --canonicalize %s | FileCheck %s

// CHECK-LABEL: @operand_transpose_is_folded
func.func @operand_transpose_is_folded(%x: tensor<3x8xf32>, %w: tensor<4x8xf32>) -> tensor<3x4xf32> {
  // CHECK-NOT: graph.transpose
  // CHECK: graph.contract %{{.*}}, %{{.*}} {{.*}}rhs_contract = array<i64: 1>
  %t = graph.transpose %w {permutation = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %y = graph.contract %x, %t {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 0>} : (tensor<3x8xf32>, tensor<8x4xf32>) -> tensor<3x4xf32>
  return %y : tensor<3x4xf32>
}

// CHECK-LABEL: @result_transpose_swaps_operands
// CHECK-SAME: (%[[X:.*]]: tensor<3x8xf32>, %[[W:.*]]: tensor<4x8xf32>)
func.func @result_transpose_swaps_operands(%x: tensor<3x8xf32>, %w: tensor<4x8xf32>) -> tensor<4x3xf32> {
  // CHECK: %[[Y:.*]] = graph.contract %[[W]], %[[X]]
  // CHECK-NEXT: return %[[Y]]
  %y = graph.contract %x, %w {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<3x8xf32>, tensor<4x8xf32>) -> tensor<3x4xf32>
  %t = graph.transpose %y {permutation = array<i64: 1, 0>} : (tensor<3x4xf32>) -> tensor<4x3xf32>
  return %t : tensor<4x3xf32>
}

// Heads in the middle are two batch dimensions: no transpose is needed.
// CHECK-LABEL: @attention_scores
func.func @attention_scores(%q: tensor<2x5x3x4xf32>, %k: tensor<2x5x3x4xf32>) -> tensor<2x3x5x5xf32> {
  // CHECK-NOT: graph.transpose
  // CHECK: graph.contract {{.*}}lhs_batch = array<i64: 0, 2>, lhs_contract = array<i64: 3>, rhs_batch = array<i64: 0, 2>, rhs_contract = array<i64: 3>
  %qt = graph.transpose %q {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x5x3x4xf32>) -> tensor<2x3x5x4xf32>
  %kt = graph.transpose %k {permutation = array<i64: 0, 2, 3, 1>} : (tensor<2x5x3x4xf32>) -> tensor<2x3x4x5xf32>
  %y = graph.contract %qt, %kt {lhs_batch = array<i64: 0, 1>, rhs_batch = array<i64: 0, 1>, lhs_contract = array<i64: 3>, rhs_contract = array<i64: 2>} : (tensor<2x3x5x4xf32>, tensor<2x3x4x5xf32>) -> tensor<2x3x5x5xf32>
  return %y : tensor<2x3x5x5xf32>
}

// Two dimensions summed over that are not one run need an explicit transpose.
// CHECK-LABEL: @split_sum_is_transposed
func.func @split_sum_is_transposed(%x: tensor<2x3x4xf32>, %w: tensor<2x5x4xf32>) -> tensor<3x5xf32> {
  // CHECK-COUNT-2: graph.transpose
  // CHECK: graph.contract
  %y = graph.contract %x, %w {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 0, 2>, rhs_contract = array<i64: 0, 2>} : (tensor<2x3x4xf32>, tensor<2x5x4xf32>) -> tensor<3x5xf32>
  return %y : tensor<3x5xf32>
}

// CHECK-LABEL: @large_sum_is_split
func.func @large_sum_is_split(%x: tensor<1048576xf32>) -> tensor<f32> {
  // CHECK: %[[S:.*]] = graph.reshape %{{.*}} {shape = array<i64: 32, 32768>}
  // CHECK: %[[P:.*]] = graph.reduce %[[S]] {axes = array<i64: 1>, kind = "sum"}
  // CHECK: graph.reduce %[[P]] {axes = array<i64: 0>, kind = "sum"}
  %y = graph.reduce %x {kind = "sum", axes = array<i64: 0>} : (tensor<1048576xf32>) -> tensor<f32>
  return %y : tensor<f32>
}

// CHECK-LABEL: @many_rows_are_not_split
func.func @many_rows_are_not_split(%x: tensor<1024x1024xf32>) -> tensor<1024xf32> {
  // CHECK-NOT: graph.reshape
  // CHECK: graph.reduce %{{.*}} {axes = array<i64: 1>, kind = "sum"}
  %y = graph.reduce %x {kind = "sum", axes = array<i64: 1>} : (tensor<1024x1024xf32>) -> tensor<1024xf32>
  return %y : tensor<1024xf32>
}

// CHECK-LABEL: @scattered_axes_move_last
func.func @scattered_axes_move_last(%x: tensor<2x3x4x5x6xf32>) -> tensor<3x5xf32> {
  // CHECK: %[[T:.*]] = graph.transpose %{{.*}} {permutation = array<i64: 1, 3, 0, 2, 4>}
  // CHECK: graph.reduce %[[T]] {axes = array<i64: 2, 3, 4>, kind = "max"}
  %y = graph.reduce %x {kind = "max", axes = array<i64: 0, 2, 4>} : (tensor<2x3x4x5x6xf32>) -> tensor<3x5xf32>
  return %y : tensor<3x5xf32>
}

// CHECK-LABEL: @empty_sum_is_its_neutral_value
func.func @empty_sum_is_its_neutral_value(%x: tensor<2x0xf32>) -> tensor<2xf32> {
  // CHECK: graph.constant dense<0xFF800000>
  // CHECK-NOT: graph.reduce
  %y = graph.reduce %x {kind = "max", axes = array<i64: 1>} : (tensor<2x0xf32>) -> tensor<2xf32>
  return %y : tensor<2xf32>
}

// The gradient of a split into three.
// CHECK-LABEL: @sum_of_pads_is_a_concat
// CHECK-SAME: (%[[A:.*]]: tensor<2x3xf32>, %[[B:.*]]: tensor<2x4xf32>, %[[C:.*]]: tensor<2x5xf32>)
func.func @sum_of_pads_is_a_concat(%a: tensor<2x3xf32>, %b: tensor<2x4xf32>, %c: tensor<2x5xf32>) -> tensor<2x12xf32> {
  // CHECK: %[[Y:.*]] = graph.concat %[[A]], %[[B]], %[[C]] {axis = 1 : i64}
  // CHECK-NEXT: return %[[Y]]
  %0 = graph.pad %a {low = array<i64: 0, 0>, high = array<i64: 0, 9>, value = 0.0 : f64} : (tensor<2x3xf32>) -> tensor<2x12xf32>
  %1 = graph.pad %b {low = array<i64: 0, 3>, high = array<i64: 0, 5>, value = 0.0 : f64} : (tensor<2x4xf32>) -> tensor<2x12xf32>
  %2 = graph.pad %c {low = array<i64: 0, 7>, high = array<i64: 0, 0>, value = 0.0 : f64} : (tensor<2x5xf32>) -> tensor<2x12xf32>
  %3 = graph.add %1, %0 : (tensor<2x12xf32>, tensor<2x12xf32>) -> tensor<2x12xf32>
  %4 = graph.add %3, %2 : (tensor<2x12xf32>, tensor<2x12xf32>) -> tensor<2x12xf32>
  return %4 : tensor<2x12xf32>
}

// The same of gradients stored in 16 bits: sums are f32, and rounded once.
// CHECK-LABEL: @sum_of_narrow_pads_is_a_concat
// CHECK-SAME: (%[[A:.*]]: tensor<2x3xbf16>, %[[B:.*]]: tensor<2x4xbf16>, %[[C:.*]]: tensor<2x5xbf16>)
func.func @sum_of_narrow_pads_is_a_concat(%a: tensor<2x3xbf16>, %b: tensor<2x4xbf16>, %c: tensor<2x5xbf16>) -> (tensor<2x12xbf16>, tensor<2x12xf32>) {
  // CHECK: %[[Y:.*]] = graph.concat %[[A]], %[[B]], %[[C]] {axis = 1 : i64}
  // CHECK: %[[W:.*]] = graph.cast %[[Y]] {element_type = f32}
  // CHECK-NEXT: return %[[Y]], %[[W]]
  %ap = graph.pad %a {low = array<i64: 0, 0>, high = array<i64: 0, 9>, value = 0.0 : f64} : (tensor<2x3xbf16>) -> tensor<2x12xbf16>
  %bp = graph.pad %b {low = array<i64: 0, 3>, high = array<i64: 0, 5>, value = 0.0 : f64} : (tensor<2x4xbf16>) -> tensor<2x12xbf16>
  %cp = graph.pad %c {low = array<i64: 0, 7>, high = array<i64: 0, 0>, value = 0.0 : f64} : (tensor<2x5xbf16>) -> tensor<2x12xbf16>
  %aw = graph.cast %ap {element_type = f32} : (tensor<2x12xbf16>) -> tensor<2x12xf32>
  %bw = graph.cast %bp {element_type = f32} : (tensor<2x12xbf16>) -> tensor<2x12xf32>
  %cw = graph.cast %cp {element_type = f32} : (tensor<2x12xbf16>) -> tensor<2x12xf32>
  %cb = graph.add %cw, %bw : (tensor<2x12xf32>, tensor<2x12xf32>) -> tensor<2x12xf32>
  %sum = graph.add %cb, %aw : (tensor<2x12xf32>, tensor<2x12xf32>) -> tensor<2x12xf32>
  %y = graph.cast %sum {element_type = bf16} : (tensor<2x12xf32>) -> tensor<2x12xbf16>
  %w = graph.cast %y {element_type = f32} : (tensor<2x12xbf16>) -> tensor<2x12xf32>
  return %y, %w : tensor<2x12xbf16>, tensor<2x12xf32>
}

// The parts of a joint projection in front of the batch: products write where they belong.
// CHECK-LABEL: @parts_are_transposed
func.func @parts_are_transposed(%x: tensor<2x7x3xf32>, %y: tensor<5x7x3xf32>, %w: tensor<3x4xf32>) -> tensor<4x7x7xf32> {
  // CHECK: %[[A:.*]] = graph.contract
  // CHECK: %[[B:.*]] = graph.contract
  // CHECK-DAG: %[[AT:.*]] = graph.transpose %[[A]] {permutation = array<i64: 2, 1, 0>}
  // CHECK-DAG: %[[BT:.*]] = graph.transpose %[[B]] {permutation = array<i64: 2, 1, 0>}
  // CHECK: graph.concat %[[AT]], %[[BT]] {axis = 2 : i64}
  %a = graph.contract %x, %w {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 2>, rhs_contract = array<i64: 0>} : (tensor<2x7x3xf32>, tensor<3x4xf32>) -> tensor<2x7x4xf32>
  %b = graph.contract %y, %w {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 2>, rhs_contract = array<i64: 0>} : (tensor<5x7x3xf32>, tensor<3x4xf32>) -> tensor<5x7x4xf32>
  %c = graph.concat %a, %b {axis = 0 : i64} : (tensor<2x7x4xf32>, tensor<5x7x4xf32>) -> tensor<7x7x4xf32>
  %t = graph.transpose %c {permutation = array<i64: 2, 1, 0>} : (tensor<7x7x4xf32>) -> tensor<4x7x7xf32>
  return %t : tensor<4x7x7xf32>
}

// Overlapping pads are a sum.
// CHECK-LABEL: @overlapping_pads_stay
func.func @overlapping_pads_stay(%a: tensor<3xf32>) -> tensor<4xf32> {
  // CHECK-NOT: graph.concat
  // CHECK: graph.add
  %0 = graph.pad %a {low = array<i64: 0>, high = array<i64: 1>, value = 0.0 : f64} : (tensor<3xf32>) -> tensor<4xf32>
  %1 = graph.pad %a {low = array<i64: 1>, high = array<i64: 0>, value = 0.0 : f64} : (tensor<3xf32>) -> tensor<4xf32>
  %2 = graph.add %0, %1 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}

// The gradient of a maximum pool reads what is stored in 16 bits without an f32 copy of it.
// CHECK-LABEL: @pool_gradient_reads_narrow
// CHECK-SAME: (%[[X:.*]]: tensor<1x2x8xbf16>, %[[DY:.*]]: tensor<1x2x4xbf16>)
func.func @pool_gradient_reads_narrow(%x: tensor<1x2x8xbf16>, %dy: tensor<1x2x4xbf16>) -> tensor<1x2x8xf32> {
  // CHECK-NEXT: %[[DX:.*]] = graph.max_pool_grad %[[X]], %[[DY]] {{.*}} -> tensor<1x2x8xf32>
  // CHECK-NEXT: return %[[DX]]
  %wx = graph.cast %x {element_type = f32} : (tensor<1x2x8xbf16>) -> tensor<1x2x8xf32>
  %wdy = graph.cast %dy {element_type = f32} : (tensor<1x2x4xbf16>) -> tensor<1x2x4xf32>
  %dx = graph.max_pool_grad %wx, %wdy {kernel = array<i64: 2>, strides = array<i64: 2>, dilations = array<i64: 1>, pads_begin = array<i64: 0>, pads_end = array<i64: 0>, output = array<i64: 4>} : (tensor<1x2x8xf32>, tensor<1x2x4xf32>) -> tensor<1x2x8xf32>
  return %dx : tensor<1x2x8xf32>
}
