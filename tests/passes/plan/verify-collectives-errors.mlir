// RUN: sluice-opt --verify-plan --split-input-file --verify-diagnostics %s

// Nothing orders the sum and the launch that writes what it adds.
plan.kernel @fill
plan.program @update attributes {step_bytes = 64 : i64, bound_bytes = 64 : i64} {
  %g = plan.buffer "g" "gradients" size 64 at 0 live [0, 1]
  plan.queue @compute {
    plan.launch "a" units 1 chunk 1 node "" {
      plan.stage @fill outs(%g) {params = array<i64: 4, 0, 16, 16384>}
    }
  }
  plan.queue @comm {
    // expected-error @+1 {{and launch 0 touch the same bytes, and no wait orders them}}
    plan.collective "all_reduce" ["grad/w"] of f32 ins(%g) outs(%g)
  }
}

// -----

plan.program @update attributes {step_bytes = 64 : i64, bound_bytes = 64 : i64} {
  %g = plan.buffer "g" "gradients" size 64 at 0 live [0, 0]
  plan.queue @compute {
    // expected-error @+1 {{waits for ever: the other queue has signalled 0}}
    plan.wait @comm 1
  }
  plan.queue @comm {
    plan.collective "all_reduce" ["grad/w"] of f32 ins(%g) outs(%g)
  }
}

// -----

// The bytes are given to another buffer while the message travels.
plan.kernel @fill
plan.program @update attributes {step_bytes = 64 : i64, bound_bytes = 64 : i64} {
  %g = plan.buffer "g" "gradients" size 64 at 0 live [0, 0]
  %h = plan.buffer "h" "activations" size 64 at 0 live [1, 1]
  plan.queue @compute {
    plan.launch "a" units 1 chunk 1 node "" {
      plan.stage @fill outs(%g) {params = array<i64: 4, 0, 16, 16384>}
    }
    plan.signal 1
    plan.launch "b" units 1 chunk 1 node "" {
      plan.stage @fill outs(%h) {params = array<i64: 4, 0, 16, 16384>}
    }
  }
  plan.queue @comm {
    plan.wait @compute 1
    // expected-error @+1 {{may run in [1, 2], but 'g' is live in [0, 0]}}
    plan.collective "all_reduce" ["grad/w"] of f32 ins(%g) outs(%g)
  }
}

// -----

plan.program @update attributes {step_bytes = 64 : i64, bound_bytes = 64 : i64} {
  %g = plan.buffer "g" "gradients" size 64 at 0 live [0, 0]
  plan.queue @compute {
  }
  plan.queue @comm {
    // expected-error @+1 {{has parts that share bytes: 0 and 1}}
    plan.collective "all_reduce" ["grad/v", "grad/w"] of f32 ins(%g, %g) outs(%g, %g)
  }
}

// -----

plan.program @update {
  plan.queue @compute {
  }
  // expected-error @+1 {{'plan.queue' op is named 'talk', expected 'compute', 'copy' or 'comm'}}
  plan.queue @talk {
  }
}

// -----

plan.program @update attributes {step_bytes = 64 : i64, bound_bytes = 64 : i64} {
  %g = plan.buffer "g" "gradients" size 64 at 0 live [0, 0]
  plan.queue @compute {
  }
  plan.queue @comm {
    // expected-error @+1 {{'plan.collective' op cannot add elements of type 'bf16'}}
    plan.collective "all_reduce" ["grad/w"] of bf16 ins(%g) outs(%g)
  }
}

// -----

plan.program @update attributes {step_bytes = 64 : i64, bound_bytes = 64 : i64} {
  %g = plan.buffer "g" "gradients" size 64 at 0 live [0, 0]
  plan.queue @compute {
  }
  plan.queue @comm {
    // expected-error @+1 {{'plan.collective' op has 2 names for 1 buffers}}
    plan.collective "all_reduce" ["grad/w", "grad/v"] of f32 ins(%g) outs(%g)
  }
}

// -----

// Five rows over two ranks: three for the first.
module attributes {graph.ranks = 2 : i64} {
plan.program @update attributes {step_bytes = 128 : i64, bound_bytes = 128 : i64} {
  %g = plan.buffer "g" "gradients" size 40 at 0 live [0, 0]
  %s = plan.buffer "s" "gradients" size 16 at 64 live [0, 0]
  plan.queue @compute {
  }
  plan.queue @comm {
    // expected-error @+1 {{deals out 40 bytes in 5 rows as 16 bytes for each rank}}
    plan.collective "reduce_scatter" ["grad/w"] of f32 ins(%g) outs(%s) {rows = array<i64: 5>}
  }
}
}

// -----

// Sums of rows come about where the operand lies, so nothing else may read it meanwhile.
module attributes {graph.ranks = 2 : i64} {
plan.kernel @k {
^bb0(%a: tensor<10xf32>):
  %r = graph.region(%a) {
  ^bb0(%b: tensor<10xf32>):
    %y = graph.neg %b : (tensor<10xf32>) -> tensor<10xf32>
    graph.yield %y : tensor<10xf32>
  } : (tensor<10xf32>) -> tensor<10xf32>
}
plan.program @update attributes {step_bytes = 192 : i64, bound_bytes = 192 : i64} {
  %g = plan.buffer "g" "gradients" size 40 at 0 live [-1, 1]
  %s = plan.buffer "s" "gradients" size 24 at 64 live [0, 1]
  %y = plan.buffer "y" "gradients" size 40 at 128 live [0, 0]
  plan.input "g", %g : tensor<10xf32>
  plan.queue @compute {
    plan.launch "reader" units 1 chunk 1 node "" {
      plan.stage @k ins(%g) outs(%y)
    }
  }
  plan.queue @comm {
    // expected-error @+1 {{and launch 0 touch the same bytes, and no wait orders them}}
    plan.collective "reduce_scatter" ["grad/w"] of f32 ins(%g) outs(%s) {rows = array<i64: 5>}
  }
}
}
