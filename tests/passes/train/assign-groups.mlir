// RUN: sluice-opt --spec %S/inputs/train.yaml --assign-groups %s | FileCheck %s

// CHECK: graph.groups = [{{.*}}members = ["param/fc.bias"]{{.*}}name = "group1"{{.*}}members = ["param/fc.weight"]{{.*}}name = "default"

// CHECK: graph.parameter @"param/fc.bias" : tensor<3xf32> "parameter" {group = "group1", trainable}
graph.parameter @"param/fc.bias" : tensor<3xf32> "parameter"
// CHECK: graph.parameter @"param/fc.weight" : tensor<3x2xf32> "parameter" {group = "default", trainable}
graph.parameter @"param/fc.weight" : tensor<3x2xf32> "parameter"
// CHECK: graph.parameter @"param/stem.weight" : tensor<2xf32> "parameter"{{$}}
graph.parameter @"param/stem.weight" : tensor<2xf32> "parameter"
// Buffers never train.
// CHECK: graph.parameter @"param/bn.mean" : tensor<2xf32> "buffer"{{$}}
graph.parameter @"param/bn.mean" : tensor<2xf32> "buffer"
