// RUN: sluice-opt --spec %S/inputs/stored.yaml --assign-storage %s | FileCheck %s

// Each product decodes the weight for itself, transposed or not: a decoded value is not
// kept from the forward to the backward part.
graph.parameter @"param/w" : tensor<64x32xf32> "parameter" {group = "default", trainable}

// CHECK-LABEL: func.func @step
func.func @step(%x: tensor<4x32xf32>, %dy: tensor<4x64xf32>) -> (tensor<4x64xf32>, tensor<4x32xf32>) {
  // CHECK: %[[CODES:.*]] = graph.read @"param/w" : tensor<64x32xi8>
  // CHECK: %[[ONE:.*]] = graph.dequantize %[[CODES]]
  // CHECK-NOT: graph.dequantize
  // CHECK: %[[T1:.*]] = graph.transpose
  // CHECK: graph.contract %{{.*}}, %[[T1]]
  // CHECK: graph.dequantize %[[CODES]]{{.*}} site = 1
  // CHECK: %[[T2:.*]] = graph.transpose
  // CHECK: graph.contract %{{.*}}, %[[T2]]
  %w = graph.read @"param/w" : tensor<64x32xf32>
  %t = graph.transpose %w {permutation = array<i64: 1, 0>} : (tensor<64x32xf32>) -> tensor<32x64xf32>
  %y = graph.contract %x, %t {lhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_batch = array<i64>, rhs_contract = array<i64: 0>} : (tensor<4x32xf32>, tensor<32x64xf32>) -> tensor<4x64xf32>
  %dx = graph.contract %dy, %t {lhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_batch = array<i64>, rhs_contract = array<i64: 1>} : (tensor<4x64xf32>, tensor<32x64xf32>) -> tensor<4x32xf32>
  return %y, %dx : tensor<4x64xf32>, tensor<4x32xf32>
}
