// RUN: sluice-opt --spec %S/inputs/train.yaml --set precision.compute=amp_bf16 --assign-precision %s | FileCheck %s
// RUN: sluice-opt --spec %S/inputs/train.yaml --set precision.compute=amp_fp16 --assign-precision %s | FileCheck %s --check-prefix=HALF
// RUN: sluice-opt --spec %S/inputs/train.yaml --assign-precision %s | FileCheck %s --check-prefix=SINGLE

// Weights that products read are stored in 16 bits beside the rest of them; others stay.
// CHECK: graph.parameter @"param/w" : tensor<4x2xbf16> "parameter" {group = "default", init = dense<{{.*}}> : tensor<4x2xbf16>, trainable}
// CHECK: graph.parameter @"param/b" : tensor<2xf32> "parameter"
// CHECK: graph.parameter @"master/w/low" : tensor<4x2xi16> "master" {group = "default"
// HALF: graph.parameter @"param/w" : tensor<4x2xf16>
// HALF: graph.parameter @"master/w" : tensor<4x2xf32> "master" {group = "default", init = dense<1.000000e+00>
// SINGLE-NOT: graph.cast
graph.parameter @"param/w" : tensor<4x2xf32> "parameter" {group = "default", init = dense<1.0> : tensor<4x2xf32>, trainable}
graph.parameter @"param/b" : tensor<2xf32> "parameter" {group = "default", trainable}

// CHECK-LABEL: func.func @step
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<3x4xf32>
// CHECK-SAME: %[[D:[a-z0-9]+]]: tensor<3x2xf32>
func.func @step(%x: tensor<3x4xf32> {graph.name = "x"}, %dy: tensor<3x2xf32> {graph.name = "dy"})
    -> (tensor<3x2xf32> {graph.name = "y"}, tensor<4x2xf32> {graph.name = "grad/w"}, tensor<4x3xf32> {graph.name = "dx"}) {
  // An operand is rounded once, where it comes from, for all of its readers.
  // CHECK-DAG: %[[DR:.+]] = graph.cast %[[D]] {element_type = bf16}
  // CHECK-DAG: %[[XR:.+]] = graph.cast %[[X]] {element_type = bf16}
  // CHECK-DAG: %[[XW:.+]] = graph.cast %[[XR]] {element_type = f32}
  // CHECK: %[[W:.+]] = graph.read @"param/w" : tensor<4x2xbf16>
  %w = graph.read @"param/w" : tensor<4x2xf32>
  %b = graph.read @"param/b" : tensor<2xf32>
  // CHECK: %[[P:.+]] = graph.contract %[[XR]], %[[W]] {{.*}}round_to = bf16} : (tensor<3x4xbf16>, tensor<4x2xbf16>) -> tensor<3x2xbf16>
  // CHECK: %[[PW:.+]] = graph.cast %[[P]] {element_type = f32}
  %0 = graph.contract %x, %w {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 0>} : (tensor<3x4xf32>, tensor<4x2xf32>) -> tensor<3x2xf32>
  %1 = graph.broadcast %b {shape = array<i64: 3, 2>} : (tensor<2xf32>) -> tensor<3x2xf32>
  // CHECK: graph.add %[[PW]], {{.*}} tensor<3x2xf32>
  %2 = graph.add %0, %1 : (tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<3x2xf32>
  // Transposes carry 16 bits; the gradient of a parameter is an f32 sum.
  // CHECK: %[[XT:.+]] = graph.transpose %[[XR]] {{.*}} -> tensor<4x3xbf16>
  %3 = graph.transpose %x {permutation = array<i64: 1, 0>} : (tensor<3x4xf32>) -> tensor<4x3xf32>
  // CHECK: %[[G:.+]] = graph.contract %[[XT]], %[[DR]] {{.*}} -> tensor<4x2xf32>
  // CHECK-NOT: graph.cast %[[G]]
  %4 = graph.contract %3, %dy {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 0>} : (tensor<4x3xf32>, tensor<3x2xf32>) -> tensor<4x2xf32>
  // CHECK: graph.exp
  // CHECK-SAME: tensor<4x3xf32>
  %5 = graph.exp %3 : (tensor<4x3xf32>) -> tensor<4x3xf32>
  return %2, %4, %5 : tensor<3x2xf32>, tensor<4x2xf32>, tensor<4x3xf32>
}

// A maximum is copied for products: the gradient finds its element by comparing.
// CHECK-LABEL: func.func @eval
// CHECK-SAME: %[[MX:[a-z0-9]+]]: tensor<3x4xf32>
func.func @eval(%x: tensor<3x4xf32> {graph.name = "x"})
    -> (tensor<3x2xf32> {graph.name = "y"}, tensor<3x4xi1> {graph.name = "hit"}) {
  // CHECK: %[[M:.+]] = graph.reduce %[[MX]] {{.*}} "max"
  // CHECK: %[[MR:.+]] = graph.cast %[[M]] {element_type = bf16}
  // CHECK-DAG: %[[EXACT:.+]] = graph.broadcast %[[M]] {{.*}} -> tensor<3x4xf32>
  // CHECK-DAG: %[[COPY:.+]] = graph.broadcast %[[MR]] {{.*}} -> tensor<3x4xbf16>
  // CHECK: graph.contract %[[COPY]]
  // CHECK: graph.compare %[[MX]], %[[EXACT]]
  %w = graph.read @"param/w" : tensor<4x2xf32>
  %m = graph.reduce %x {kind = "max", axes = array<i64: 1>, keep} : (tensor<3x4xf32>) -> tensor<3x1xf32>
  %0 = graph.broadcast %m {shape = array<i64: 3, 4>} : (tensor<3x1xf32>) -> tensor<3x4xf32>
  %1 = graph.contract %0, %w {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 0>} : (tensor<3x4xf32>, tensor<4x2xf32>) -> tensor<3x2xf32>
  %2 = graph.compare %x, %0 {predicate = "eq"} : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xi1>
  return %1, %2 : tensor<3x2xf32>, tensor<3x4xi1>
}

// In a batch of one a bias has the gradient of the layer, which products read too.
// CHECK-LABEL: func.func @micro
// CHECK: %[[P:.+]] = graph.contract {{.*}}round_to = bf16} {{.*}} -> tensor<1x4xbf16>
// CHECK: graph.contract %[[P]]
func.func @micro(%x: tensor<1x2xf32> {graph.name = "x"})
    -> (tensor<1x4xf32> {graph.name = "grad/b1"}, tensor<1x2xf32> {graph.name = "dx"}) {
  %w = graph.read @"param/w" : tensor<4x2xf32>
  %0 = graph.contract %x, %w {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<1x2xf32>, tensor<4x2xf32>) -> tensor<1x4xf32>
  %1 = graph.contract %0, %w {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 0>} : (tensor<1x4xf32>, tensor<4x2xf32>) -> tensor<1x2xf32>
  return %0, %1 : tensor<1x4xf32>, tensor<1x2xf32>
}
