// RUN: sluice-opt --stream-offload --plan-memory --verify-plan --split-input-file %s | FileCheck %s

// A value that a late launch reads leaves the device in between. The copy begins behind
// its last early use; the way back ends when it is needed.
// CHECK-LABEL: plan.program @step
// CHECK-SAME: host_bound_bytes = 128 : i64, host_bytes = 128 : i64
// CHECK-DAG: %[[HOST:.*]] = plan.buffer "h" "activations" in "host" size 128 at 0 live[0, 1]
// CHECK-DAG: %[[EARLY:.*]] = plan.buffer "h" "activations" size 128 at {{.*}} live[0, 1] {offloaded}
// CHECK-DAG: %[[LATE:.*]] = plan.buffer "h" "activations" size 128 at {{.*}} live[3, 4] {offloaded}
// CHECK: plan.queue @compute
// CHECK: plan.stage @fill outs(%[[EARLY]])
// CHECK: plan.signal 1
// CHECK: plan.launch "b"
// CHECK: plan.wait @copy 1
// CHECK: plan.launch "c"
// CHECK: plan.signal 3
// CHECK: plan.launch "d"
// CHECK: plan.wait @copy 2
// CHECK: plan.stage @k ins(%[[LATE]])
// CHECK: plan.queue @copy
// CHECK-NEXT: plan.wait @compute 1
// CHECK-NEXT: plan.copy "h" %[[EARLY]] to %[[HOST]]
// CHECK-NEXT: plan.signal 1
// CHECK-NEXT: plan.wait @compute 3
// CHECK-NEXT: plan.copy "h" %[[HOST]] to %[[LATE]]
// CHECK-NEXT: plan.signal 2
plan.kernel @fill
plan.kernel @k {
^bb0(%a: tensor<32xf32>):
  %r = graph.region(%a) {
  ^bb0(%b: tensor<32xf32>):
    %y = graph.neg %b : (tensor<32xf32>) -> tensor<32xf32>
    graph.yield %y : tensor<32xf32>
  } : (tensor<32xf32>) -> tensor<32xf32>
}
plan.program @step {
  %h = plan.buffer "h" "activations" size 128 {offload}
  %t = plan.buffer "t" "activations" size 128
  %y = plan.buffer "y" "io" size 128
  plan.output "y", %y : tensor<32xf32>
  plan.queue @compute {
    plan.launch "a" units 1 chunk 1 node "" attributes {predicted_us = 1.0 : f64} {
      plan.stage @fill outs(%h) {params = array<i64: 4, 0, 32, 16384>}
    }
    plan.launch "b" units 1 chunk 1 node "" attributes {predicted_us = 10.0 : f64} {
      plan.stage @fill outs(%t) {params = array<i64: 4, 0, 32, 16384>}
    }
    plan.launch "c" units 1 chunk 1 node "" attributes {predicted_us = 10.0 : f64} {
      plan.stage @fill outs(%t) {params = array<i64: 4, 0, 32, 16384>}
    }
    plan.launch "d" units 1 chunk 1 node "" attributes {predicted_us = 10.0 : f64} {
      plan.stage @fill outs(%t) {params = array<i64: 4, 0, 32, 16384>}
    }
    plan.launch "e" units 1 chunk 1 node "" attributes {predicted_us = 1.0 : f64} {
      plan.stage @k ins(%h) outs(%y)
    }
  }
}

// -----

// State in the host's memory comes before its update and goes back behind it.
// CHECK-LABEL: plan.state @"opt/w/m"
// CHECK: plan.program @update
// CHECK: %[[HOST:.*]] = plan.state_buffer @"opt/w/m"
// CHECK-NEXT: %[[HERE:.*]] = plan.buffer "opt/w/m" "optimizer" size 1024 at 0 live[0, 1] {offloaded}
// CHECK: plan.wait @copy 1
// CHECK: plan.stage @fill outs(%[[HERE]])
// CHECK: plan.queue @copy
// CHECK-NEXT: plan.copy "opt/w/m" %[[HOST]] to %[[HERE]]
// CHECK-NEXT: plan.signal 1
// CHECK-NEXT: plan.wait @compute 1
// CHECK-NEXT: plan.copy "opt/w/m" %[[HERE]] to %[[HOST]]
plan.state @"opt/w/m" : tensor<256xf32> "moment" at 0 size 1024 {space = "host"}
plan.kernel @fill
plan.program @update {
  %m = plan.state_buffer @"opt/w/m"
  plan.queue @compute {
    plan.launch "a" units 1 chunk 1 node "" {
      plan.stage @fill outs(%m) {params = array<i64: 4, 0, 256, 16384>}
    }
  }
}
