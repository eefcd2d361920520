// RUN: sluice-opt --verify-plan --split-input-file --verify-diagnostics %s

plan.kernel @fill
plan.program @step attributes {step_bytes = 64 : i64, bound_bytes = 64 : i64} {
  // expected-error @+1 {{has no place; run 'plan-memory' before}}
  %0 = plan.buffer "x" "io" size 64
  plan.queue @compute {
    plan.launch "fill" units 1 chunk 1 node "" {
      plan.stage @fill outs(%0) {params = array<i64: 4, 0, 16, 16384>}
    }
  }
}

// -----

// Two buffers live together at the same offset.
plan.kernel @fill
// expected-error @+1 {{the placement is wrong}}
plan.program @step attributes {step_bytes = 128 : i64, bound_bytes = 128 : i64} {
  %0 = plan.buffer "x" "io" size 64 at 0 live [0, 1]
  %1 = plan.buffer "y" "io" size 64 at 0 live [1, 1]
  plan.queue @compute {
    plan.launch "fill" units 1 chunk 1 node "" {
      plan.stage @fill outs(%0) {params = array<i64: 4, 0, 16, 16384>}
    }
    plan.launch "fill" units 1 chunk 1 node "" {
      plan.stage @fill outs(%1) {params = array<i64: 4, 0, 16, 16384>}
    }
  }
}

// -----

// A launch outside of the live range it is given.
plan.kernel @fill
plan.program @step attributes {step_bytes = 64 : i64, bound_bytes = 64 : i64} {
  %0 = plan.buffer "x" "io" size 64 at 0 live [1, 1]
  plan.queue @compute {
    // expected-error @+1 {{launch 0 uses 'x', which is live in [1, 1]}}
    plan.launch "fill" units 1 chunk 1 node "" {
      plan.stage @fill outs(%0) {params = array<i64: 4, 0, 16, 16384>}
    }
  }
}

// -----

// A kernel that would write behind its operand.
plan.kernel @fill
plan.program @step attributes {step_bytes = 64 : i64, bound_bytes = 64 : i64} {
  %0 = plan.buffer "x" "io" size 64 at 0 live [0, 0]
  plan.queue @compute {
    plan.launch "fill" units 1 chunk 1 node "" {
      // expected-error @+1 {{operand 0 of 'fill' has 64 bytes, expected 128}}
      plan.stage @fill outs(%0) {params = array<i64: 4, 0, 32, 16384>}
    }
  }
}

// -----

// A generated kernel with too small an input.
plan.kernel @k {
^bb0(%a: tensor<32xf32>):
  %r = graph.region(%a) {
  ^bb0(%b: tensor<32xf32>):
    %y = graph.neg %b : (tensor<32xf32>) -> tensor<32xf32>
    graph.yield %y : tensor<32xf32>
  } : (tensor<32xf32>) -> tensor<32xf32>
}
plan.program @step attributes {step_bytes = 192 : i64, bound_bytes = 192 : i64} {
  %0 = plan.buffer "x" "io" size 64 at 128 live [-1, 0]
  %1 = plan.buffer "y" "io" size 128 at 0 live [0, 1]
  plan.queue @compute {
    plan.launch "neg" units 1 chunk 1 node "" {
      // expected-error @+1 {{operand 0 of 'k' has 64 bytes, expected 128}}
      plan.stage @k ins(%0) outs(%1)
    }
  }
}

// -----

// States that overlap.
plan.state @"param/a" : tensor<32xf32> "parameter" at 0 size 128
// expected-error @+1 {{lies at 64, expected a multiple of 64 from 128 on}}
plan.state @"param/b" : tensor<32xf32> "parameter" at 64 size 128
