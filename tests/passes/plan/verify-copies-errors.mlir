// RUN: sluice-opt --verify-plan --split-input-file --verify-diagnostics %s

// Nothing orders the copy and the launch that reads what it brings.
plan.state @"opt/w/m" : tensor<16xf32> "moment" at 0 size 64 {space = "host"}
plan.kernel @fill
plan.program @update attributes {step_bytes = 64 : i64, bound_bytes = 64 : i64} {
  %m = plan.state_buffer @"opt/w/m"
  %h = plan.buffer "opt/w/m" "optimizer" size 64 at 0 live [0, 1] {offloaded}
  plan.queue @compute {
    plan.launch "a" units 1 chunk 1 node "" {
      plan.stage @fill outs(%h) {params = array<i64: 4, 0, 16, 16384>}
    }
  }
  plan.queue @copy {
    // expected-error @+1 {{and launch 0 touch the same bytes, and no wait orders them}}
    plan.copy "opt/w/m" %m to %h
  }
}

// -----

plan.state @"opt/w/m" : tensor<16xf32> "moment" at 0 size 64 {space = "host"}
plan.kernel @fill
plan.program @update attributes {step_bytes = 64 : i64, bound_bytes = 64 : i64} {
  %m = plan.state_buffer @"opt/w/m"
  %h = plan.buffer "opt/w/m" "optimizer" size 64 at 0 live [0, 0] {offloaded}
  plan.queue @compute {
    // expected-error @+1 {{waits for ever: the other queue has signalled 0}}
    plan.wait @copy 1
    plan.launch "a" units 1 chunk 1 node "" {
      plan.stage @fill outs(%h) {params = array<i64: 4, 0, 16, 16384>}
    }
  }
  plan.queue @copy {
    plan.copy "opt/w/m" %m to %h
  }
}

// -----

plan.state @"opt/w/m" : tensor<16xf32> "moment" at 0 size 64 {space = "host"}
plan.kernel @fill
plan.program @update {
  %m = plan.state_buffer @"opt/w/m"
  plan.queue @compute {
    // expected-error @+1 {{launch 0 reads or writes the host's memory}}
    plan.launch "a" units 1 chunk 1 node "" {
      plan.stage @fill outs(%m) {params = array<i64: 4, 0, 16, 16384>}
    }
  }
}

// -----

plan.kernel @fill
plan.program @update attributes {step_bytes = 128 : i64, bound_bytes = 128 : i64} {
  %a = plan.buffer "a" "activations" size 64 at 0 live [0, 1]
  %b = plan.buffer "b" "activations" size 64 at 64 live [0, 1]
  plan.queue @compute {
    plan.launch "a" units 1 chunk 1 node "" {
      plan.stage @fill outs(%a) {params = array<i64: 4, 0, 16, 16384>}
    }
    plan.signal 1
  }
  plan.queue @copy {
    plan.wait @compute 1
    // expected-error @+1 {{does not go from one memory to the other}}
    plan.copy "a" %a to %b
  }
}

// -----

// The copy may still run when the next launch writes to bytes that look free.
plan.kernel @fill
plan.program @update attributes {step_bytes = 64 : i64, bound_bytes = 64 : i64, host_bytes = 64 : i64, host_bound_bytes = 64 : i64} {
  %a = plan.buffer "a" "activations" size 64 at 0 live [0, 0] {offloaded}
  %c = plan.buffer "c" "activations" size 64 at 0 live [1, 1]
  %b = plan.buffer "a" "activations" in "host" size 64 at 0 live [0, 0]
  plan.queue @compute {
    plan.launch "a" units 1 chunk 1 node "" {
      plan.stage @fill outs(%a) {params = array<i64: 4, 0, 16, 16384>}
    }
    plan.signal 1
    plan.launch "c" units 1 chunk 1 node "" {
      plan.stage @fill outs(%c) {params = array<i64: 4, 0, 16, 16384>}
    }
  }
  plan.queue @copy {
    plan.wait @compute 1
    // expected-error @+1 {{may run in [1, 2], but 'a' is live in [0, 0]}}
    plan.copy "a" %a to %b
  }
}

// -----

plan.program @update {
  plan.queue @compute {
    // expected-error @+1 {{signals 3 when 0 are done}}
    plan.signal 3
  }
  plan.queue @copy {
  }
}
