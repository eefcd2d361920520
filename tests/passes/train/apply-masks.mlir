// RUN: sluice-opt --spec %S/inputs/masks.yaml --apply-masks --build-update %s | FileCheck %s
// RUN: sluice-opt --spec %S/inputs/masks.yaml --set continual.masks.kind=supermask --apply-masks %s | FileCheck %s --check-prefix=SUPER

module attributes {graph.groups = [{name = "default", kind = "sgd", lr = 0.1 : f64, momentum = 0.9 : f64, dampening = 0.0 : f64, weight_decay = 0.0 : f64, members = ["param/b", "param/w"]}]} {
  graph.parameter @"param/b" : tensor<9xf32> "parameter" {group = "default", trainable}
  graph.parameter @"param/w" : tensor<3x9xf32> "parameter" {group = "default", trainable}
  // Vectors are each task's own; matrices have a task per element.
  // CHECK: graph.parameter @"task/own/b" : tensor<2x9xf32> "continual"
  // CHECK: graph.parameter @"mask/w" : tensor<3x9xi8> "continual" {fill = 1.270000e+02 : f64}
  // SUPER: graph.parameter @"param/w" : tensor<3x9xf32> "parameter"
  // SUPER-NOT: trainable
  // SUPER: graph.parameter @"task/own/b" : tensor<2x9xf32>
  // SUPER: graph.parameter @"param/w.score" : tensor<3x9xf32> "parameter" {group = "default", {{.*}}trainable}
  // 27 elements, 8 in a byte.
  // SUPER: graph.parameter @"mask/a/w" : tensor<4xi8> "continual"
  // SUPER: graph.parameter @"mask/b/w" : tensor<4xi8> "continual"

  // CHECK-LABEL: func.func @step
  // SUPER-LABEL: func.func @step
  func.func @step(%g: tensor<3x9xf32> {graph.name = "g"}, %n: tensor<f32> {graph.name = "n"}) -> (tensor<f32> {graph.name = "loss_sum"}, tensor<f32> {graph.name = "loss_count"}, tensor<3x9xf32> {graph.name = "grad/w"}) {
    %w = graph.read @"param/w" : tensor<3x9xf32>
    %m = graph.mul %g, %w : (tensor<3x9xf32>, tensor<3x9xf32>) -> tensor<3x9xf32>
    // What trains is the task's alone: no gradient, no update, no momentum elsewhere.
    // CHECK: %[[MEAN:.*]] = graph.mul %{{.*}}, %{{.*}}
    // CHECK: %[[TRAINS:.*]] = graph.compare %{{.*}}, %{{.*}} {predicate = "eq"}
    // CHECK: %[[G:.*]] = graph.select %[[TRAINS]]
    // CHECK: %[[NEW:.*]], %[[V:.*]] = graph.sgd %{{.*}}, %[[G]],
    // CHECK: graph.select %{{.*}}, %[[NEW]], %{{.*}}
    // CHECK: graph.write @"param/w"
    // CHECK: graph.select %{{.*}}, %[[V]], %{{.*}}
    // CHECK: graph.write @"opt/w/velocity"
    // The model reads masked weights; the gradient of a score is theirs times the weight.
    // SUPER-DAG: %[[S:.*]] = graph.read @"param/w.score"
    // SUPER-DAG: %[[W:.*]] = graph.read @"param/w" :
    // SUPER: %[[ON:.*]] = graph.compare %[[S]], %{{.*}} {predicate = "gt"}
    // SUPER: %[[MASKED:.*]] = graph.select %[[ON]], %[[W]], %{{.*}}
    // SUPER: %[[GRADIENT:.*]] = graph.mul %{{.*}}, %[[MASKED]]
    // SUPER: %[[SCORE:.*]] = graph.mul %[[GRADIENT]], %[[W]]
    // SUPER: return %{{.*}}, %{{.*}}, %[[SCORE]]
    return %n, %n, %m : tensor<f32>, tensor<f32>, tensor<3x9xf32>
  }
  // Evaluation sees elements of tasks up to one.
  // CHECK-LABEL: func.func @infer
  // CHECK: %[[W:.*]] = graph.read @"param/w"
  // CHECK: %[[COUNTS:.*]] = graph.compare %{{.*}}, %{{.*}} {predicate = "le"}
  // CHECK: %[[SEEN:.*]] = graph.select %[[COUNTS]], %[[W]], %{{.*}}
  // CHECK: return %[[SEEN]]
  func.func @infer() -> (tensor<3x9xf32> {graph.name = "y"}) {
    %w = graph.read @"param/w" : tensor<3x9xf32>
    return %w : tensor<3x9xf32>
  }
}
