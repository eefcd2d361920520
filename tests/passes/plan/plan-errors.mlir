// RUN: sluice-opt --split-input-file --verify-diagnostics %s

// expected-error @+1 {{'plan.state' op has 16 bytes, expected 32 for 'tensor<8xf32>'}}
plan.state @"param/w" : tensor<8xf32> "parameter" at 0 size 16

// -----

// expected-error @+1 {{'plan.state' op has the unknown role 'weight'}}
plan.state @"param/w" : tensor<8xf32> "weight" at 0 size 32

// -----

// expected-error @+1 {{'plan.state' op has the unknown init 'ones'}}
plan.state @"param/w" : tensor<8xf32> "parameter" at 0 size 32 {init = "ones"}

// -----

// expected-error @+1 {{'plan.state' op needs a 'value' with init 'file', and only then}}
plan.state @"param/w" : tensor<8xf32> "parameter" at 0 size 32 {init = "file"}

// -----

plan.program @step {
  // expected-error @+1 {{'plan.buffer' op has the unknown category 'junk'}}
  %0 = plan.buffer "x" "junk" size 8
  plan.queue @compute {
  }
}

// -----

plan.program @step {
  // expected-error @+1 {{'plan.buffer' op is live from 3 to 2, which is never}}
  %0 = plan.buffer "x" "io" size 8 at 0 live [3, 2]
  plan.queue @compute {
  }
}

// -----

plan.program @step {
  %0 = plan.buffer "x" "io" size 8
  // expected-error @+1 {{'plan.slice' op ends at byte 12 of a buffer of 8}}
  %1 = plan.slice %0 at 4 size 8
  plan.queue @compute {
  }
}

// -----

plan.state @"param/w" : tensor<8xf32> "parameter" at 0 size 32 {init = "zeros"}
plan.program @step {
  // expected-error @+1 {{'plan.state_buffer' op has 16 bytes of 'param/w', expected 32}}
  %0 = plan.state_buffer @"param/w" {bytes = 16 : i64}
  plan.queue @compute {
  }
}

// -----

plan.program @step {
  // expected-error @+1 {{'plan.state_buffer' op names 'param/w', which is no 'plan.state'}}
  %0 = plan.state_buffer @"param/w"
  plan.queue @compute {
  }
}

// -----

plan.program @step {
  %0 = plan.buffer "x" "io" size 8
  // expected-error @+1 {{'plan.input' op 'x' needs 32 bytes, its buffer has 8}}
  plan.input "x", %0 : tensor<8xf32>
  plan.queue @compute {
  }
}

// -----

plan.program @step {
  %0 = plan.buffer "x" "io" size 32
  // expected-error @+1 {{'plan.input' op needs two bounds, found 1}}
  plan.input "x", %0 : tensor<8xi32> {bounds = array<i64: 0>}
  plan.queue @compute {
  }
}

// -----

// expected-error @+1 {{'plan.program' op has 0 queues, expected 'compute' and at most one 'copy'}}
plan.program @step {
}

// -----

plan.program @step {
  plan.queue @compute {
    // expected-error @+1 {{'plan.launch' op has no stage}}
    plan.launch "copy" units 1 chunk 1 node "" {
    }
  }
}

// -----

plan.kernel @fill
plan.program @step {
  %0 = plan.buffer "x" "io" size 8
  plan.queue @compute {
    // expected-error @+1 {{'plan.launch' op has 1 units in chunks of 0}}
    plan.launch "fill" units 1 chunk 0 node "" {
      plan.stage @fill outs(%0)
    }
  }
}

// -----

plan.program @step {
  %0 = plan.buffer "x" "io" size 8
  plan.queue @compute {
    plan.launch "fill" units 1 chunk 1 node "" {
      // expected-error @+1 {{'plan.stage' op names 'fill', which is no 'plan.kernel'}}
      plan.stage @fill outs(%0)
    }
  }
}

// -----

plan.kernel @fill
plan.program @step {
  %0 = plan.buffer "x" "io" size 8
  plan.queue @compute {
    plan.launch "fill" units 1 chunk 1 node "" {
      // expected-error @+1 {{'plan.stage' op has 2 worker strides for 1 operands}}
      plan.stage @fill outs(%0) {worker_strides = array<i64: 0, 0>}
    }
  }
}

// -----

plan.kernel @fill
plan.program @step {
  %0 = plan.buffer "x" "io" size 8
  plan.queue @compute {
    plan.launch "fill" units 1 chunk 1 node "" {
      // expected-error @+1 {{'plan.stage' op 'in_place' names input 0 and output 0 of 0 and 1}}
      plan.stage @fill outs(%0) {in_place = array<i64: 0, 0>}
    }
  }
}

// -----

plan.kernel @k
plan.program @step {
  plan.queue @compute {
    plan.launch "parts" units 3 chunk 1 node "" {
      plan.stage @k {part = array<i64: 0, 2>}
      // expected-error @+1 {{'part' needs the unit it begins with, here 2, and a count of units}}
      plan.stage @k {part = array<i64: 1, 2>}
    }
  }
}

// -----

plan.kernel @k
plan.program @step {
  plan.queue @compute {
    // expected-error @+1 {{has 3 units, its parts 2}}
    plan.launch "parts" units 3 chunk 1 node "" {
      plan.stage @k {part = array<i64: 0, 2>}
    }
  }
}

// -----

plan.kernel @k
plan.program @step {
  plan.queue @compute {
    plan.launch "parts" units 3 chunk 1 node "" {
      plan.stage @k {part = array<i64: 0, 3>}
      // expected-error @+1 {{must have a 'part' as all stages of its launch, or none}}
      plan.stage @k
    }
  }
}
