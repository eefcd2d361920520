// RUN: sluice-opt --verify-train --split-input-file --verify-diagnostics %s

// expected-error @+1 {{'forward' is still there after the train stage}}
func.func @forward() {
  return
}

// -----

graph.parameter @"control/valid" : tensor<i64> "control"
func.func @step(%x: tensor<i64> {graph.name = "x"}) {
  // expected-error @+1 {{'step' writes the control 'control/valid', which the runtime sets}}
  graph.write @"control/valid", %x : tensor<i64>
  return
}

// -----

graph.parameter @"param/w" : tensor<f32> "parameter"
func.func @step(%x: tensor<f32> {graph.name = "x"}) {
  // expected-error @+1 {{'step' writes 'param/w', which is frozen}}
  graph.write @"param/w", %x : tensor<f32>
  return
}

// -----

graph.parameter @"grad/count" : tensor<f32> "accumulator"
func.func @eval(%x: tensor<f32> {graph.name = "x"}) {
  // expected-error @+1 {{'eval' writes 'grad/count', expected state to change in step, micro, close_rank and update only}}
  graph.write @"grad/count", %x : tensor<f32>
  return
}

// -----

// expected-error @+1 {{'param/w' is trainable, but 'step' does not write it}}
graph.parameter @"param/w" : tensor<f32> "parameter" {trainable}
func.func @step() {
  return
}

// -----

// expected-error @+1 {{argument 0 of 'infer' has the name '', expected one of its own}}
func.func @infer(%x: tensor<f32>) {
  return
}
