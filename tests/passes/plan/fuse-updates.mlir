// RUN: sluice-opt --fuse-updates %s | FileCheck %s

// Updates on tiles of their gradient: when, where, and when not.
module {
  plan.state @"param/w" : tensor<96x512xf32> "parameter" at 0 size 196608
  plan.kernel @fill
  plan.kernel @gemm_f32
  plan.kernel @kernel_0 {
  ^bb0(%w: tensor<4096xf32>, %g: tensor<4096xf32>):
    %0 = graph.region(%w, %g) {
    ^bb0(%v: tensor<4096xf32>, %d: tensor<4096xf32>):
      %1 = graph.sub %v, %d : (tensor<4096xf32>, tensor<4096xf32>) -> tensor<4096xf32>
      graph.yield %1 : tensor<4096xf32>
    } {kernel = "elastic"} : (tensor<4096xf32>, tensor<4096xf32>) -> tensor<4096xf32>
  }
  // CHECK: plan.kernel @kernel_0_tiles_1
  // CHECK: kernel = "elastic", tile_input = 1

  // Where the product was: nothing between them touches the weight. Tiles are whole rows.
  // CHECK-LABEL: plan.program @early
  // CHECK-NOT: "gradients"
  // CHECK: %[[TILES:.*]] = plan.buffer "gradient tiles" "workspace" size 24576
  // CHECK: plan.launch "fill" {{.*}} node "inputs"
  // CHECK-NEXT: plan.stage
  // CHECK: plan.launch "contract+sub" units 8 chunk 1 node "dw+w" {{.*}}fused_gradient = {bytes = 196608 : i64, name = "w"}, predicted_us = 2.000000e+03
  // CHECK-NEXT: plan.stage @gemm_f32 {{.*}} outs(%[[TILES]]) {{.*}}unit_strides = array<i64: 0, 0, 24576, 0>, worker_strides = array<i64: 0, 0, 24576, 49152>
  // CHECK-NEXT: plan.stage @kernel_0_tiles_1 ins(%{{.*}}, %[[TILES]]) {{.*}}params = array<i64: 49152, 96, 512, 12, 512>, unit_strides = array<i64: 0, 24576, 0>, worker_strides = array<i64: 0, 24576, 0>
  // CHECK: plan.launch "fill" {{.*}} node "between"
  plan.program @early {
    %w = plan.state_buffer @"param/w"
    %a = plan.buffer "a" "activations" size 1536
    %b = plan.buffer "b" "activations" size 8192
    %s = plan.buffer "scratch" "workspace" size 49152
    %g = plan.buffer "w" "gradients" size 196608
    %m = plan.buffer "between" "activations" size 64
    plan.queue @compute {
      plan.launch "fill" units 1 chunk 1 node "inputs" { plan.stage @fill outs(%a, %b) }
      plan.launch "contract" units 8 chunk 1 node "dw" attributes {predicted_us = 1000.0 : f64} { plan.stage @gemm_f32 ins(%a, %b) outs(%g) scratch(%s) {params = array<i64: 96, 512, 4, 1, 1, 0, 0, 1, 96, 0, 0, 512, 1, 0, 0, 512, 0, 96, 64, 0, 0, 0, 0>, worker_strides = array<i64: 0, 0, 0, 49152>} }
      plan.launch "fill" units 1 chunk 1 node "between" { plan.stage @fill outs(%m) }
      plan.launch "sub" units 12 chunk 8 node "w" attributes {predicted_us = 1000.0 : f64} { plan.stage @kernel_0 ins(%w, %g) outs(%w) {params = array<i64: 49152>} }
    }
  }

  // Behind what reads the weight.
  // CHECK-LABEL: plan.program @late
  // CHECK: node "between"
  // CHECK: plan.launch "contract+sub"
  plan.program @late {
    %w = plan.state_buffer @"param/w"
    %a = plan.buffer "a" "activations" size 1536
    %b = plan.buffer "b" "activations" size 8192
    %s = plan.buffer "scratch" "workspace" size 49152
    %g = plan.buffer "w" "gradients" size 196608
    %m = plan.buffer "between" "activations" size 64
    plan.queue @compute {
      plan.launch "fill" units 1 chunk 1 node "inputs" { plan.stage @fill outs(%a, %b) }
      plan.launch "contract" units 8 chunk 1 node "dw" attributes {predicted_us = 1000.0 : f64} { plan.stage @gemm_f32 ins(%a, %b) outs(%g) scratch(%s) {params = array<i64: 96, 512, 4, 1, 1, 0, 0, 1, 96, 0, 0, 512, 1, 0, 0, 512, 0, 96, 64, 0, 0, 0, 0>, worker_strides = array<i64: 0, 0, 0, 49152>} }
      plan.launch "fill" units 1 chunk 1 node "between" { plan.stage @fill ins(%w) outs(%m) }
      plan.launch "sub" units 12 chunk 8 node "w" attributes {predicted_us = 1000.0 : f64} { plan.stage @kernel_0 ins(%w, %g) outs(%w) {params = array<i64: 49152>} }
    }
  }

  // Then what the product reads would be alive with what lies between.
  // CHECK-LABEL: plan.program @peak
  // CHECK: plan.launch "contract" units
  // CHECK: plan.launch "sub"
  plan.program @peak {
    %w = plan.state_buffer @"param/w"
    %a = plan.buffer "a" "activations" size 1536
    %b = plan.buffer "b" "activations" size 8192
    %s = plan.buffer "scratch" "workspace" size 49152
    %g = plan.buffer "w" "gradients" size 196608
    %large = plan.buffer "large" "activations" size 200000
    %m = plan.buffer "between" "activations" size 400000
    plan.queue @compute {
      plan.launch "fill" units 1 chunk 1 node "inputs" { plan.stage @fill outs(%large, %b) }
      plan.launch "contract" units 8 chunk 1 node "dw" attributes {predicted_us = 1000.0 : f64} { plan.stage @gemm_f32 ins(%large, %b) outs(%g) scratch(%s) {params = array<i64: 96, 512, 4, 1, 1, 0, 0, 1, 96, 0, 0, 512, 1, 0, 0, 512, 0, 96, 64, 0, 0, 0, 0>, worker_strides = array<i64: 0, 0, 0, 49152>} }
      plan.launch "fill" units 1 chunk 1 node "between" { plan.stage @fill ins(%w) outs(%m) }
      plan.launch "sub" units 12 chunk 8 node "w" attributes {predicted_us = 1000.0 : f64} { plan.stage @kernel_0 ins(%w, %g) outs(%w) {params = array<i64: 49152>} }
    }
  }

  // Something else needs the whole gradient.
  // CHECK-LABEL: plan.program @norm
  // CHECK: plan.launch "contract" units
  // CHECK: plan.launch "sub"
  plan.program @norm {
    %w = plan.state_buffer @"param/w"
    %a = plan.buffer "a" "activations" size 1536
    %b = plan.buffer "b" "activations" size 8192
    %s = plan.buffer "scratch" "workspace" size 49152
    %g = plan.buffer "w" "gradients" size 196608
    %m = plan.buffer "norm" "activations" size 64
    plan.queue @compute {
      plan.launch "fill" units 1 chunk 1 node "inputs" { plan.stage @fill outs(%a, %b) }
      plan.launch "contract" units 8 chunk 1 node "dw" attributes {predicted_us = 1000.0 : f64} { plan.stage @gemm_f32 ins(%a, %b) outs(%g) scratch(%s) {params = array<i64: 96, 512, 4, 1, 1, 0, 0, 1, 96, 0, 0, 512, 1, 0, 0, 512, 0, 96, 64, 0, 0, 0, 0>, worker_strides = array<i64: 0, 0, 0, 49152>} }
      plan.launch "fill" units 1 chunk 1 node "norm" { plan.stage @fill ins(%g) outs(%m) }
      plan.launch "sub" units 12 chunk 8 node "w" attributes {predicted_us = 1000.0 : f64} { plan.stage @kernel_0 ins(%w, %g) outs(%w) {params = array<i64: 49152>} }
    }
  }

  // The new weight would be read, and the product's operand is written again.
  // CHECK-LABEL: plan.program @bound
  // CHECK: plan.launch "contract" units
  // CHECK: plan.launch "sub"
  plan.program @bound {
    %w = plan.state_buffer @"param/w"
    %a = plan.buffer "a" "activations" size 1536
    %b = plan.buffer "b" "activations" size 8192
    %s = plan.buffer "scratch" "workspace" size 49152
    %g = plan.buffer "w" "gradients" size 196608
    plan.queue @compute {
      plan.launch "fill" units 1 chunk 1 node "inputs" { plan.stage @fill outs(%a, %b) }
      plan.launch "contract" units 8 chunk 1 node "dw" attributes {predicted_us = 1000.0 : f64} { plan.stage @gemm_f32 ins(%a, %b) outs(%g) scratch(%s) {params = array<i64: 96, 512, 4, 1, 1, 0, 0, 1, 96, 0, 0, 512, 1, 0, 0, 512, 0, 96, 64, 0, 0, 0, 0>, worker_strides = array<i64: 0, 0, 0, 49152>} }
      plan.launch "fill" units 1 chunk 1 node "between" { plan.stage @fill ins(%w) outs(%a) }
      plan.launch "sub" units 12 chunk 8 node "w" attributes {predicted_us = 1000.0 : f64} { plan.stage @kernel_0 ins(%w, %g) outs(%w) {params = array<i64: 49152>} }
    }
  }
}
