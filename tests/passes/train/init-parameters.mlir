// RUN: sluice-opt --spec %S/inputs/train.yaml --set init.from=zeros --init-parameters %s | FileCheck %s
// RUN: sluice-opt --spec %S/inputs/train.yaml --set init.from=kaiming --init-parameters %s | FileCheck %s --check-prefix=KAIMING

// KAIMING: graph.report = ["init: 1 parameters by kaiming, seed 0", "init: 1 parameters below rank 2 keep the model's values{{.*}}"]

// CHECK: graph.parameter @"param/w" : tensor<2x2xf32> "parameter"{{$}}
// KAIMING: graph.parameter @"param/w" : tensor<2x2xf32> "parameter" {init = dense<{{\[\[}}{{.*}}> : tensor<2x2xf32>}
graph.parameter @"param/w" : tensor<2x2xf32> "parameter" {init = dense<3.0> : tensor<2x2xf32>}
// CHECK: graph.parameter @"param/b" : tensor<2xf32> "parameter"{{$}}
// KAIMING: graph.parameter @"param/b" : tensor<2xf32> "parameter" {fill = 5.000000e-01 : f64}
graph.parameter @"param/b" : tensor<2xf32> "parameter" {fill = 0.5 : f64}
// Statistics are no weights.
// CHECK: graph.parameter @"param/mean" : tensor<2xf32> "buffer" {fill = 1.000000e+00 : f64}
graph.parameter @"param/mean" : tensor<2xf32> "buffer" {fill = 1.0 : f64}
