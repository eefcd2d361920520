// RUN: sluice-opt --spec %S/inputs/train.yaml --set "precision.policy={kind: size, budget: 0.7x, formats: [mxfp8, mxfp4]}" --assign-formats %s | FileCheck %s
// RUN: sluice-opt --spec %S/inputs/train.yaml --set "precision.policy={kind: size, budget: 3000, formats: [mxfp4]}" --assign-formats %s | FileCheck %s --check-prefix=LEAST
// RUN: not sluice-opt --spec %S/inputs/train.yaml --set "precision.policy={kind: size, budget: 2900, formats: [mxfp4]}" --assign-formats %s 2>&1 | FileCheck %s --check-prefix=BELOW
// RUN: not sluice-opt --spec %S/inputs/train.yaml --set "precision.policy={kind: importance, from: p, budget: 1x}" --assign-formats %s 2>&1 | FileCheck %s --check-prefix=UNREAD
// RUN: sluice-opt --spec %S/inputs/train.yaml --assign-formats %s | FileCheck %s --check-prefix=OFF

// 16384 + 4096 + 256 bytes of f32: the largest parameter gives what is missing, in the widest format that does.
// CHECK: graph.policy = {bound = 0.000000e+00 : f64, bytes = 8576 : i64, increase = 0.000000e+00 : f64, smallest_bytes = 2976 : i64, walk = array<i64: {{.*}}>, wide_bytes = 20736 : i64}
// CHECK-SAME: policy: formats by size: 1 of 2 parameters stored in other formats, all in 8576 bytes instead of 20736 (budget 14515); numbers change
// CHECK-DAG: graph.parameter @"param/large" {{.*}}graph.assigned_format = "mxfp8"
// LEAST-DAG: graph.parameter @"param/large" {{.*}}graph.assigned_format = "mxfp4"
// BELOW: 'precision.policy.budget' is 2900 bytes, but the smallest formats take 2976 (0.144x), of which 256 are of parameters that keep their form
// UNREAD: 'p' has not been read
// OFF-NOT: assigned_format
graph.parameter @"param/large" : tensor<64x64xf32> "parameter" {group = "default", trainable}
// CHECK-NOT: assigned_format
// LEAST-DAG: graph.parameter @"param/small" {{.*}}graph.assigned_format = "mxfp4"
graph.parameter @"param/small" : tensor<32x32xf32> "parameter" {group = "default", trainable}
// LEAST-NOT: assigned_format
graph.parameter @"param/vector" : tensor<64xf32> "parameter" {group = "default", trainable}
func.func @step() {
  return
}
