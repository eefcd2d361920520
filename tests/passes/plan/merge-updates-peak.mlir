// RUN: sluice-opt --merge-updates %s | FileCheck %s

// What merging may not do: raise the peak, keep large gradients out of the cache, or move an
// update past what reads or writes its tensors.
module {
  plan.state @"param/a" : tensor<1024xf32> "parameter" at 0 size 4096
  plan.state @"param/b" : tensor<1024xf32> "parameter" at 4096 size 4096
  plan.state @"param/c" : tensor<20000xf32> "parameter" at 8192 size 80000
  plan.kernel @fill
  plan.kernel @kernel_0 {
  ^bb0(%w: tensor<4096xf32>, %g: tensor<4096xf32>):
    %0 = graph.region(%w, %g) {
    ^bb0(%v: tensor<4096xf32>, %d: tensor<4096xf32>):
      %1 = graph.sub %v, %d : (tensor<4096xf32>, tensor<4096xf32>) -> tensor<4096xf32>
      graph.yield %1 : tensor<4096xf32>
    } {kernel = "elastic"} : (tensor<4096xf32>, tensor<4096xf32>) -> tensor<4096xf32>
  }

  // The gradient of `a` may wait for that of `b`: more was live before.
  // CHECK-LABEL: plan.program @room
  // CHECK-COUNT-4: plan.launch "fill"
  // CHECK: plan.launch "sub" units 2 chunk 2 node "a+b" attributes {bytes = 3.000000e+00 : f64, flops = 3.000000e+01 : f64, predicted_us = 3.000000e+02 : f64}
  // CHECK-NEXT: plan.stage {{.*}} part = array<i64: 0, 1>
  // CHECK-NEXT: plan.stage {{.*}} part = array<i64: 1, 1>
  // CHECK-NOT: plan.launch
  plan.program @room {
    %a = plan.state_buffer @"param/a"
    %b = plan.state_buffer @"param/b"
    %0 = plan.buffer "before" "activations" size 8192
    %1 = plan.buffer "between" "activations" size 4096
    %ga = plan.buffer "a" "gradients" size 4096
    %gb = plan.buffer "b" "gradients" size 4096
    plan.queue @compute {
      plan.launch "fill" units 1 chunk 1 node "before" { plan.stage @fill outs(%0) }
      plan.launch "fill" units 1 chunk 1 node "ga" { plan.stage @fill ins(%0) outs(%ga) }
      plan.launch "sub" units 1 chunk 1 node "a" attributes {flops = 10.0 : f64, bytes = 1.0 : f64, predicted_us = 100.0 : f64} { plan.stage @kernel_0 ins(%a, %ga) outs(%a) {params = array<i64: 1024>} }
      plan.launch "fill" units 1 chunk 1 node "between" { plan.stage @fill outs(%1) }
      plan.launch "fill" units 1 chunk 1 node "gb" { plan.stage @fill ins(%1) outs(%gb) }
      plan.launch "sub" units 1 chunk 1 node "b" attributes {flops = 20.0 : f64, bytes = 2.0 : f64, predicted_us = 200.0 : f64} { plan.stage @kernel_0 ins(%b, %gb) outs(%b) {params = array<i64: 1024>} }
    }
  }

  // Most is live while `gb` is computed.
  // CHECK-LABEL: plan.program @peak
  // CHECK: node "a"
  // CHECK: node "b"
  plan.program @peak {
    %a = plan.state_buffer @"param/a"
    %b = plan.state_buffer @"param/b"
    %0 = plan.buffer "between" "activations" size 8192
    %ga = plan.buffer "a" "gradients" size 4096
    %gb = plan.buffer "b" "gradients" size 4096
    plan.queue @compute {
      plan.launch "fill" units 1 chunk 1 node "ga" { plan.stage @fill outs(%ga) }
      plan.launch "sub" units 1 chunk 1 node "a" { plan.stage @kernel_0 ins(%a, %ga) outs(%a) {params = array<i64: 1024>} }
      plan.launch "fill" units 1 chunk 1 node "between" { plan.stage @fill outs(%0) }
      plan.launch "fill" units 1 chunk 1 node "gb" { plan.stage @fill ins(%0) outs(%gb) }
      plan.launch "sub" units 1 chunk 1 node "b" { plan.stage @kernel_0 ins(%b, %gb) outs(%b) {params = array<i64: 1024>} }
    }
  }

  // `gc` is too large to wait in the cache while `gb` is computed, but not for an update.
  // CHECK-LABEL: plan.program @large
  // CHECK: plan.launch "sub" units 6 chunk 6 node "c+a"
  // CHECK: plan.launch "fill" {{.*}} node "gb"
  // CHECK: plan.launch "sub" units 1 chunk 1 node "b"
  plan.program @large {
    %a = plan.state_buffer @"param/a"
    %b = plan.state_buffer @"param/b"
    %c = plan.state_buffer @"param/c"
    %0 = plan.buffer "before" "activations" size 1048576
    %ga = plan.buffer "a" "gradients" size 80000
    %gb = plan.buffer "b" "gradients" size 4096
    %gc = plan.buffer "c" "gradients" size 80000
    plan.queue @compute {
      plan.launch "fill" units 1 chunk 1 node "before" { plan.stage @fill outs(%0) }
      plan.launch "fill" units 1 chunk 1 node "ga, gc" { plan.stage @fill ins(%0) outs(%ga, %gc) }
      plan.launch "sub" units 5 chunk 5 node "c" { plan.stage @kernel_0 ins(%c, %gc) outs(%c) {params = array<i64: 20000>} }
      plan.launch "sub" units 1 chunk 1 node "a" { plan.stage @kernel_0 ins(%a, %ga) outs(%a) {params = array<i64: 1024>} }
      plan.launch "fill" units 1 chunk 1 node "gb" { plan.stage @fill outs(%gb) }
      plan.launch "sub" units 1 chunk 1 node "b" { plan.stage @kernel_0 ins(%b, %gb) outs(%b) {params = array<i64: 1024>} }
    }
  }

  // What lies between needs the new `a`.
  // CHECK-LABEL: plan.program @reader
  // CHECK: node "a"
  // CHECK: node "b"
  plan.program @reader {
    %a = plan.state_buffer @"param/a"
    %b = plan.state_buffer @"param/b"
    %0 = plan.buffer "before" "activations" size 1048576
    %ga = plan.buffer "a" "gradients" size 4096
    %gb = plan.buffer "b" "gradients" size 4096
    plan.queue @compute {
      plan.launch "fill" units 1 chunk 1 node "before" { plan.stage @fill outs(%0) }
      plan.launch "fill" units 1 chunk 1 node "ga" { plan.stage @fill ins(%0) outs(%ga) }
      plan.launch "sub" units 1 chunk 1 node "a" { plan.stage @kernel_0 ins(%a, %ga) outs(%a) {params = array<i64: 1024>} }
      plan.launch "fill" units 1 chunk 1 node "gb" { plan.stage @fill ins(%a) outs(%gb) }
      plan.launch "sub" units 1 chunk 1 node "b" { plan.stage @kernel_0 ins(%b, %gb) outs(%b) {params = array<i64: 1024>} }
    }
  }
}
