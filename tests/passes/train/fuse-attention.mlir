// RUN: sluice-opt %s --fuse-attention | FileCheck %s

// The scale behind the product, keys turned before it, a triangle that is a constant.
// CHECK-LABEL: func.func @forward
// CHECK: %[[KEY:.*]] = graph.transpose %{{.*}} {permutation = array<i64: 0, 2, 1, 3>}
// CHECK: %{{.*}}, %{{.*}} = graph.attention %{{.*}}, %{{.*}}, %{{.*}} {{{.*}}causal = 0 : i64{{.*}}scale = 2.500000e-01 : f64
// CHECK-NOT: graph.softmax
// CHECK: return
func.func @forward(%x: tensor<8x32x4x16xf32> {graph.name = "x"}, %y: tensor<8x32x4x16xf32> {graph.name = "y"}) -> (tensor<8x4x32x16xf32> {graph.name = "z"}) {
  %q = graph.transpose %x {permutation = array<i64: 0, 2, 1, 3>} : (tensor<8x32x4x16xf32>) -> tensor<8x4x32x16xf32>
  %k = graph.transpose %y {permutation = array<i64: 0, 2, 3, 1>} : (tensor<8x32x4x16xf32>) -> tensor<8x4x16x32xf32>
  %v = graph.transpose %y {permutation = array<i64: 0, 2, 1, 3>} : (tensor<8x32x4x16xf32>) -> tensor<8x4x32x16xf32>
  %s = graph.contract %q, %k {lhs_batch = array<i64: 0, 1>, rhs_batch = array<i64: 0, 1>, lhs_contract = array<i64: 3>, rhs_contract = array<i64: 2>} : (tensor<8x4x32x16xf32>, tensor<8x4x16x32xf32>) -> tensor<8x4x32x32xf32>
  %c = graph.constant dense<4.0> : tensor<8x4x32x32xf32>
  %d = graph.div %s, %c : (tensor<8x4x32x32xf32>, tensor<8x4x32x32xf32>) -> tensor<8x4x32x32xf32>
  %i = graph.iota {shape = array<i64: 32, 32>, axis = 0 : i64} : tensor<32x32xi64>
  %j = graph.iota {shape = array<i64: 32, 32>, axis = 1 : i64} : tensor<32x32xi64>
  %h = graph.compare %j, %i {predicate = "gt"} : (tensor<32x32xi64>, tensor<32x32xi64>) -> tensor<32x32xi1>
  %m = graph.broadcast %h {shape = array<i64: 8, 4, 32, 32>} : (tensor<32x32xi1>) -> tensor<8x4x32x32xi1>
  %n = graph.constant dense<0xFF800000> : tensor<8x4x32x32xf32>
  %t = graph.select %m, %n, %d : (tensor<8x4x32x32xi1>, tensor<8x4x32x32xf32>, tensor<8x4x32x32xf32>) -> tensor<8x4x32x32xf32>
  %p = graph.softmax %t {axis = 3 : i64} : (tensor<8x4x32x32xf32>) -> tensor<8x4x32x32xf32>
  %z = graph.contract %p, %v {lhs_batch = array<i64: 0, 1>, rhs_batch = array<i64: 0, 1>, lhs_contract = array<i64: 3>, rhs_contract = array<i64: 2>} : (tensor<8x4x32x32xf32>, tensor<8x4x32x16xf32>) -> tensor<8x4x32x16xf32>
  return %z : tensor<8x4x32x16xf32>
}
