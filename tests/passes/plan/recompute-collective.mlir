// RUN: sluice-opt --spec %S/../train/inputs/train.yaml --set memory.recompute=sqrt --place-recompute %s | FileCheck %s
// RUN: sluice-opt --spec %S/../train/inputs/train.yaml --set memory.recompute=sqrt --set memory.keep=[a] --place-recompute %s | FileCheck %s --check-prefix=KEEP
// RUN: sluice-opt --cse --canonicalize --cse %s | FileCheck %s --check-prefix=CSE

// An all-reduce between values that are computed again runs once: every rank would have
// to run it again at the same time. What the spec keeps is kept.
// CHECK-LABEL: func.func @step
// CHECK-COUNT-1: graph.all_reduce
// CHECK-NOT: graph.all_reduce
// CHECK: recompute = 1
// CHECK-NOT: graph.all_reduce
// CHECK: return

// KEEP-LABEL: func.func @step
// KEEP-NOT: recompute =
// KEEP: return

// Nor are equal ones joined, or one removed that nothing reads: ranks count them.
// CSE-LABEL: func.func @step
// CSE-COUNT-1: graph.all_reduce
// CSE-LABEL: func.func @twice
// CSE-COUNT-3: graph.all_reduce
func.func @step(%x: tensor<8x64xf32> {graph.name = "x"}) -> (tensor<f32> {graph.name = "loss_sum"}, tensor<f32> {graph.name = "loss_count"}, tensor<8x64xf32> {graph.name = "dx"}) {
  %count = graph.constant dense<8.0> : tensor<f32>
  %a = graph.region(%x) {
  ^bb0(%i: tensor<8x64xf32>):
    %y = graph.neg %i : (tensor<8x64xf32>) -> tensor<8x64xf32> loc("a")
    graph.yield %y : tensor<8x64xf32>
  } : (tensor<8x64xf32>) -> tensor<8x64xf32>
  %r = graph.all_reduce %a {name = "r"} : (tensor<8x64xf32>) -> tensor<8x64xf32>
  %b = graph.region(%r) {
  ^bb0(%i: tensor<8x64xf32>):
    %y = graph.neg %i : (tensor<8x64xf32>) -> tensor<8x64xf32> loc("b")
    graph.yield %y : tensor<8x64xf32>
  } : (tensor<8x64xf32>) -> tensor<8x64xf32>
  %c = graph.region(%b) {
  ^bb0(%i: tensor<8x64xf32>):
    %y = graph.neg %i : (tensor<8x64xf32>) -> tensor<8x64xf32> loc("c")
    graph.yield %y : tensor<8x64xf32>
  } : (tensor<8x64xf32>) -> tensor<8x64xf32>
  %d = graph.region(%c) {
  ^bb0(%i: tensor<8x64xf32>):
    %y = graph.neg %i : (tensor<8x64xf32>) -> tensor<8x64xf32> loc("d")
    graph.yield %y : tensor<8x64xf32>
  } : (tensor<8x64xf32>) -> tensor<8x64xf32>
  %loss = graph.region(%d) {
  ^bb0(%i: tensor<8x64xf32>):
    %y = graph.reduce %i {axes = array<i64: 0, 1>, kind = "sum"} : (tensor<8x64xf32>) -> tensor<f32>
    graph.yield %y : tensor<f32>
  } : (tensor<8x64xf32>) -> tensor<f32>
  %g = graph.region(%loss, %d, %c) {
  ^bb0(%l: tensor<f32>, %i: tensor<8x64xf32>, %j: tensor<8x64xf32>):
    %s = graph.broadcast %l {shape = array<i64: 8, 64>} : (tensor<f32>) -> tensor<8x64xf32>
    %t = graph.mul %s, %i : (tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>
    %y = graph.mul %t, %j : (tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>
    graph.yield %y : tensor<8x64xf32>
  } : (tensor<f32>, tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>
  %h = graph.region(%g, %b, %r) {
  ^bb0(%i: tensor<8x64xf32>, %j: tensor<8x64xf32>, %k: tensor<8x64xf32>):
    %t = graph.mul %i, %j : (tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>
    %y = graph.mul %t, %k : (tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>
    graph.yield %y : tensor<8x64xf32>
  } : (tensor<8x64xf32>, tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>
  %dx = graph.region(%h, %a) {
  ^bb0(%i: tensor<8x64xf32>, %j: tensor<8x64xf32>):
    %y = graph.mul %i, %j : (tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>
    graph.yield %y : tensor<8x64xf32>
  } : (tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>
  return %loss, %count, %dx : tensor<f32>, tensor<f32>, tensor<8x64xf32>
}

func.func @twice(%x: tensor<4xf32> {graph.name = "x"}) -> (tensor<4xf32> {graph.name = "y"}) {
  %a = graph.all_reduce %x {name = "a"} : (tensor<4xf32>) -> tensor<4xf32>
  %b = graph.all_reduce %x {name = "a"} : (tensor<4xf32>) -> tensor<4xf32>
  %unused = graph.all_reduce %x {name = "a"} : (tensor<4xf32>) -> tensor<4xf32>
  %y = graph.add %a, %b : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
