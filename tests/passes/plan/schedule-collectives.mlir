// RUN: sluice-opt --schedule-collectives --plan-memory --verify-plan --split-input-file %s | FileCheck %s
// RUN: sluice-opt --schedule-collectives --split-input-file %s | FileCheck %s --check-prefix=BUDGET

// The sum of a gradient travels while the next gradient is computed; its update comes
// behind that. Both messages begin when their gradient is there.
// CHECK-LABEL: plan.program @step
// CHECK: plan.queue @compute
// CHECK: plan.launch "dw1"
// CHECK: plan.signal 1
// CHECK-NOT: plan.wait
// CHECK: plan.launch "dw2"
// CHECK: plan.signal 2
// CHECK: plan.wait @comm 1
// CHECK: plan.launch "update1"
// CHECK: plan.wait @comm 2
// CHECK: plan.launch "update2"
// CHECK: plan.queue @comm
// CHECK-NEXT: plan.wait @compute 1
// CHECK-NEXT: plan.collective "all_reduce" ["grad/1"] of f32 ins(%[[G:.*]]) outs(%[[G]])
// CHECK-NEXT: plan.signal 1
// CHECK-NEXT: plan.wait @compute 2
// CHECK-NEXT: plan.collective "all_reduce" ["grad/2"] of f32
// CHECK-NEXT: plan.signal 2

// BUDGET-LABEL: plan.program @step
// BUDGET-LABEL: plan.program @step
// Under a budget, an update does not wait where its gradient would raise the peak.
// BUDGET: plan.launch "dw1"
// BUDGET: plan.signal 1
// BUDGET: plan.wait @comm 1
// BUDGET: plan.launch "update1"
// BUDGET: plan.launch "dw2"
module attributes {graph.ranks = 2 : i64, graph.bucket_bytes = 1 : i64} {
plan.kernel @fill
plan.kernel @all_reduce
plan.kernel @k {
^bb0(%a: tensor<32xf32>):
  %r = graph.region(%a) {
  ^bb0(%b: tensor<32xf32>):
    %y = graph.neg %b : (tensor<32xf32>) -> tensor<32xf32>
    graph.yield %y : tensor<32xf32>
  } : (tensor<32xf32>) -> tensor<32xf32>
}
plan.program @step {
  %g1 = plan.buffer "g1" "gradients" size 128
  %s1 = plan.buffer "s1" "gradients" size 128
  %g2 = plan.buffer "g2" "gradients" size 128
  %s2 = plan.buffer "s2" "gradients" size 128
  %y1 = plan.buffer "y1" "io" size 128
  %y2 = plan.buffer "y2" "io" size 128
  plan.output "y1", %y1 : tensor<32xf32>
  plan.output "y2", %y2 : tensor<32xf32>
  plan.queue @compute {
    plan.launch "dw1" units 1 chunk 1 node "" attributes {predicted_us = 100.0 : f64} {
      plan.stage @fill outs(%g1) {params = array<i64: 4, 0, 32, 16384>}
    }
    plan.launch "all_reduce" units 1 chunk 1 node "" attributes {plan.collective = "grad/1", plan.element = f32} {
      plan.stage @all_reduce ins(%g1) outs(%s1) {in_place = array<i64: 0, 0>}
    }
    plan.launch "update1" units 1 chunk 1 node "" attributes {predicted_us = 1.0 : f64} {
      plan.stage @k ins(%s1) outs(%y1)
    }
    plan.launch "dw2" units 1 chunk 1 node "" attributes {predicted_us = 100.0 : f64} {
      plan.stage @fill outs(%g2) {params = array<i64: 4, 0, 32, 16384>}
    }
    plan.launch "all_reduce" units 1 chunk 1 node "" attributes {plan.collective = "grad/2", plan.element = f32} {
      plan.stage @all_reduce ins(%g2) outs(%s2) {in_place = array<i64: 0, 0>}
    }
    plan.launch "update2" units 1 chunk 1 node "" attributes {predicted_us = 1.0 : f64} {
      plan.stage @k ins(%s2) outs(%y2)
    }
  }
}
}

// -----

module attributes {graph.ranks = 2 : i64, graph.bucket_bytes = 1 : i64, graph.has_budget} {
plan.kernel @fill
plan.kernel @all_reduce
plan.kernel @k {
^bb0(%a: tensor<32xf32>):
  %r = graph.region(%a) {
  ^bb0(%b: tensor<32xf32>):
    %y = graph.neg %b : (tensor<32xf32>) -> tensor<32xf32>
    graph.yield %y : tensor<32xf32>
  } : (tensor<32xf32>) -> tensor<32xf32>
}
plan.state @"param/1" : tensor<32xf32> "parameter" at 0 size 128
plan.state @"param/2" : tensor<32xf32> "parameter" at 128 size 128
plan.program @step {
  %w1 = plan.state_buffer @"param/1"
  %w2 = plan.state_buffer @"param/2"
  %g1 = plan.buffer "g1" "gradients" size 128
  %s1 = plan.buffer "s1" "gradients" size 128
  %g2 = plan.buffer "g2" "gradients" size 128
  %s2 = plan.buffer "s2" "gradients" size 128
  plan.queue @compute {
    plan.launch "dw1" units 1 chunk 1 node "" attributes {predicted_us = 100.0 : f64} {
      plan.stage @fill outs(%g1) {params = array<i64: 4, 0, 32, 16384>}
    }
    plan.launch "all_reduce" units 1 chunk 1 node "" attributes {plan.collective = "grad/1", plan.element = f32} {
      plan.stage @all_reduce ins(%g1) outs(%s1) {in_place = array<i64: 0, 0>}
    }
    plan.launch "update1" units 1 chunk 1 node "" attributes {predicted_us = 1.0 : f64} {
      plan.stage @k ins(%s1) outs(%w1)
    }
    plan.launch "dw2" units 1 chunk 1 node "" attributes {predicted_us = 100.0 : f64} {
      plan.stage @fill outs(%g2) {params = array<i64: 4, 0, 32, 16384>}
    }
    plan.launch "all_reduce" units 1 chunk 1 node "" attributes {plan.collective = "grad/2", plan.element = f32} {
      plan.stage @all_reduce ins(%g2) outs(%s2) {in_place = array<i64: 0, 0>}
    }
    plan.launch "update2" units 1 chunk 1 node "" attributes {predicted_us = 1.0 : f64} {
      plan.stage @k ins(%s2) outs(%w2)
    }
  }
}
}

// -----

// The gradient that rows are summed of is free before the next launch that begins when,
// by predicted times, the message is done.
// CHECK-LABEL: plan.program @update
// CHECK: plan.launch "dw1"
// CHECK: plan.launch "dw2"
// CHECK: plan.wait @comm 1
// CHECK-NEXT: plan.launch "dw3"
// CHECK: plan.queue @comm
// CHECK: plan.collective "reduce_scatter" ["grad/1"] of f32 ins(%{{.*}}) outs(%{{.*}}) {{.*}}rows = array<i64: 4>
// CHECK: plan.collective "all_gather" ["param/1"] of f32
module attributes {graph.ranks = 2 : i64, graph.bucket_bytes = 1 : i64} {
plan.kernel @fill
plan.kernel @all_reduce
plan.kernel @k {
^bb0(%a: tensor<16xf32>):
  %r = graph.region(%a) {
  ^bb0(%b: tensor<16xf32>):
    %y = graph.neg %b : (tensor<16xf32>) -> tensor<16xf32>
    graph.yield %y : tensor<16xf32>
  } : (tensor<16xf32>) -> tensor<16xf32>
}
plan.program @update {
  %g1 = plan.buffer "g1" "gradients" size 128
  %s1 = plan.buffer "s1" "gradients" size 64
  %w1 = plan.buffer "w1" "activations" size 64
  %g2 = plan.buffer "g2" "io" size 128
  %g3 = plan.buffer "g3" "io" size 128
  %y1 = plan.buffer "y1" "io" size 128
  plan.output "g2", %g2 : tensor<32xf32>
  plan.output "g3", %g3 : tensor<32xf32>
  plan.output "y1", %y1 : tensor<32xf32>
  plan.queue @compute {
    plan.launch "dw1" units 1 chunk 1 node "" attributes {predicted_us = 100.0 : f64} {
      plan.stage @fill outs(%g1) {params = array<i64: 4, 0, 32, 16384>}
    }
    plan.launch "reduce_scatter" units 1 chunk 1 node "" attributes {plan.collective = "grad/1", plan.collective_kind = "reduce_scatter", plan.collective_rows = 4 : i64, plan.element = f32} {
      plan.stage @all_reduce ins(%g1) outs(%g1, %s1)
    }
    plan.launch "dw2" units 1 chunk 1 node "" attributes {predicted_us = 100000.0 : f64} {
      plan.stage @fill outs(%g2) {params = array<i64: 4, 0, 32, 16384>}
    }
    plan.launch "dw3" units 1 chunk 1 node "" attributes {predicted_us = 1.0 : f64} {
      plan.stage @fill outs(%g3) {params = array<i64: 4, 0, 32, 16384>}
    }
    plan.launch "update1" units 1 chunk 1 node "" attributes {predicted_us = 1.0 : f64} {
      plan.stage @k ins(%s1) outs(%w1)
    }
    plan.launch "all_gather" units 1 chunk 1 node "" attributes {plan.collective = "param/1", plan.collective_kind = "all_gather", plan.collective_rows = 4 : i64, plan.element = f32} {
      plan.stage @all_reduce ins(%w1) outs(%y1)
    }
  }
}
}
