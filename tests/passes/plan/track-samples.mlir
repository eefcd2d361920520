// RUN: sluice-opt %s --track-samples --split-input-file | FileCheck %s
// Rows that belong to samples are marked, also where a sample has several; results in which
// samples meet refuse short batches. By shape alone neither could be told: the batch is 4,
// and so are other dimensions.

module attributes {graph.batch = 4 : i64} {
  // Batch first through products, reshapes and transposes: [4, 3, 4] -> [12, 4] -> [12, 5].
  // CHECK-LABEL: func.func @infer
  // CHECK-SAME: tensor<12x5xf32> {graph.batched, graph.name = "flat"}
  // CHECK-SAME: tensor<4x4xf32> {graph.batched, graph.name = "row"}
  // CHECK-SAME: tensor<4x4xf32> {graph.name = "table"}
  // CHECK-NOT: graph.mixes
  // CHECK: return
  func.func @infer(%x: tensor<4x3x4xf32> {graph.name = "x", graph.batched}, %w: tensor<4x5xf32> {graph.name = "w"},
      %t: tensor<4x4xf32> {graph.name = "t"})
      -> (tensor<12x5xf32> {graph.name = "flat"}, tensor<4x4xf32> {graph.name = "row"}, tensor<4x4xf32> {graph.name = "table"}) {
    %0 = graph.reshape %x {shape = array<i64: 12, 4>} : (tensor<4x3x4xf32>) -> tensor<12x4xf32>
    %1 = graph.contract %0, %w {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 0>} : (tensor<12x4xf32>, tensor<4x5xf32>) -> tensor<12x5xf32>
    %2 = graph.transpose %x {permutation = array<i64: 1, 0, 2>} : (tensor<4x3x4xf32>) -> tensor<3x4x4xf32>
    %3 = graph.slice %2 {starts = array<i64: 2, 0, 0>, sizes = array<i64: 1, 4, 4>, steps = array<i64: 1, 1, 1>} : (tensor<3x4x4xf32>) -> tensor<1x4x4xf32>
    %4 = graph.reshape %3 {shape = array<i64: 4, 4>} : (tensor<1x4x4xf32>) -> tensor<4x4xf32>
    %5 = graph.reduce %2 {kind = "sum", axes = array<i64: 0>} : (tensor<3x4x4xf32>) -> tensor<4x4xf32>
    %6 = graph.add %4, %5 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %7 = graph.exp %t : (tensor<4x4xf32>) -> tensor<4x4xf32>
    return %1, %6, %7 : tensor<12x5xf32>, tensor<4x4xf32>, tensor<4x4xf32>
  }
}

// -----

module attributes {graph.batch = 4 : i64} {
  // CHECK-LABEL: func.func @infer
  // CHECK-SAME: tensor<4x4xf32> {graph.name = "similarity"}
  // CHECK-SAME: graph.mixes = "similarity"
  func.func @infer(%x: tensor<4x3xf32> {graph.name = "x", graph.batched}, %y: tensor<4x3xf32> {graph.name = "y", graph.batched})
      -> (tensor<4x4xf32> {graph.name = "similarity"}) {
    %0 = graph.contract %x, %y {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x4xf32>
    return %0 : tensor<4x4xf32>
  }
}

// -----

module attributes {graph.batch = 4 : i64} {
  // Sequence first: as many rows as samples, but the rows are no samples.
  // CHECK-LABEL: func.func @infer
  // CHECK-SAME: tensor<4x4xf32> {graph.name = "sequence"}
  // CHECK-SAME: graph.mixes = "sequence"
  func.func @infer(%x: tensor<4x4xf32> {graph.name = "x", graph.batched}) -> (tensor<4x4xf32> {graph.name = "sequence"}) {
    %0 = graph.transpose %x {permutation = array<i64: 1, 0>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
    return %0 : tensor<4x4xf32>
  }
}

// -----

module attributes {graph.batch = 4 : i64} {
  // A softmax over the samples; and evaluation, whose sums leave padding out, is never refused.
  // CHECK-LABEL: func.func @eval
  // CHECK-SAME: tensor<f32> {graph.name = "loss_sum"}
  // CHECK-SAME: tensor<4x3xf32> {graph.name = "shares"}
  // CHECK-NOT: graph.mixes
  func.func @eval(%x: tensor<4x3xf32> {graph.name = "x", graph.batched}) -> (tensor<f32> {graph.name = "loss_sum"}, tensor<4x3xf32> {graph.name = "shares"}) {
    %0 = graph.reduce %x {kind = "sum", axes = array<i64: 0>} : (tensor<4x3xf32>) -> tensor<3xf32>
    %1 = graph.broadcast %0 {shape = array<i64: 4, 3>} : (tensor<3xf32>) -> tensor<4x3xf32>
    %2 = graph.div %x, %1 : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x3xf32>
    %3 = graph.reduce %x {kind = "sum", axes = array<i64: 0, 1>} : (tensor<4x3xf32>) -> tensor<f32>
    return %3, %2 : tensor<f32>, tensor<4x3xf32>
  }
}

// -----

module attributes {graph.batch = 4 : i64} {
  // What may be filled up: attention over 6 tokens, whose scores have them twice, rows in one dimension with the samples,
  // every other token behind the first, the mean over all, and the tokens as the steps of a recurrence.
  // An input's dimension, where it lies in the output, its stride and size, and how the length changes.
  // CHECK-LABEL: func.func @infer
  // CHECK-SAME: graph.batched, graph.crops = [array<i64: 0, 1, 1, 6, 6>, array<i64: 0, 1, 2, 1, 6>], graph.name = "scores"
  // CHECK-SAME: graph.batched, graph.crops = [array<i64: 0, 1, 0, 3, 6>, array<i64: 0, 2, 1, 1, 3>], graph.name = "rows"
  // CHECK-SAME: graph.batched, graph.crops = [array<i64: 0, 1, 1, 3, 3, 1, 0, 2>, array<i64: 0, 2, 2, 1, 3>], graph.name = "odd"
  // CHECK-SAME: tensor<4x3xf32> {graph.batched, graph.crops = [array<i64: 0, 2, 1, 1, 3>], graph.name = "mean"}
  // CHECK-SAME: graph.crops = [array<i64: 0, 2, 2, 1, 3>, array<i64: 0, 1, 1, 3, 6>], graph.name = "steps"
  func.func @infer(%x: tensor<4x6x3xf32> {graph.name = "x", graph.batched, graph.fill = 0.0})
      -> (tensor<4x6x6xf32> {graph.name = "scores"}, tensor<24x3xf32> {graph.name = "rows"}, tensor<4x3x3xf32> {graph.name = "odd"},
          tensor<4x3xf32> {graph.name = "mean"}, tensor<4x6x3xf32> {graph.name = "steps"}) {
    %0 = graph.contract %x, %x {lhs_batch = array<i64: 0>, rhs_batch = array<i64: 0>, lhs_contract = array<i64: 2>, rhs_contract = array<i64: 2>} : (tensor<4x6x3xf32>, tensor<4x6x3xf32>) -> tensor<4x6x6xf32>
    %1 = graph.reshape %x {shape = array<i64: 24, 3>} : (tensor<4x6x3xf32>) -> tensor<24x3xf32>
    %2 = graph.slice %x {starts = array<i64: 0, 1, 0>, sizes = array<i64: 4, 3, 3>, steps = array<i64: 1, 2, 1>} : (tensor<4x6x3xf32>) -> tensor<4x3x3xf32>
    %3 = graph.reduce %x {kind = "sum", axes = array<i64: 1>} : (tensor<4x6x3xf32>) -> tensor<4x3xf32>
    %s0 = graph.slice %x {starts = array<i64: 0, 0, 0>, sizes = array<i64: 4, 1, 3>, steps = array<i64: 1, 1, 1>} : (tensor<4x6x3xf32>) -> tensor<4x1x3xf32>
    %s1 = graph.slice %x {starts = array<i64: 0, 1, 0>, sizes = array<i64: 4, 1, 3>, steps = array<i64: 1, 1, 1>} : (tensor<4x6x3xf32>) -> tensor<4x1x3xf32>
    %s2 = graph.add %s0, %s1 : (tensor<4x1x3xf32>, tensor<4x1x3xf32>) -> tensor<4x1x3xf32>
    %4 = graph.concat %s0, %s1, %s2, %s2, %s1, %s0 {axis = 1 : i64} : (tensor<4x1x3xf32>, tensor<4x1x3xf32>, tensor<4x1x3xf32>, tensor<4x1x3xf32>, tensor<4x1x3xf32>, tensor<4x1x3xf32>) -> tensor<4x6x3xf32>
    return %0, %1, %2, %3, %4 : tensor<4x6x6xf32>, tensor<24x3xf32>, tensor<4x3x3xf32>, tensor<4x3xf32>, tensor<4x6x3xf32>
  }
}

// -----

module attributes {graph.batch = 2 : i64} {
  // Tokens backwards: where what filled them up has gone is not followed, and the report says so.
  // CHECK: graph.report = ["padding: the output 'reversed' keeps what inputs are filled up with: positions are not followed through 'graph.slice'"]
  // CHECK-LABEL: func.func @infer
  // CHECK-SAME: tensor<2x5xf32> {graph.batched, graph.name = "reversed"}
  func.func @infer(%x: tensor<2x5xf32> {graph.name = "x", graph.batched, graph.fill = 0.0}) -> (tensor<2x5xf32> {graph.name = "reversed"}) {
    %0 = graph.slice %x {starts = array<i64: 0, 4>, sizes = array<i64: 2, 5>, steps = array<i64: 1, -1>} : (tensor<2x5xf32>) -> tensor<2x5xf32>
    return %0 : tensor<2x5xf32>
  }
}

// -----

module attributes {graph.batch = 2 : i64} {
  // Windows over time: every second of 8 frames, then two for each, and pooled by three. L frames give M = floor((L + 1) / 2)
  // positions, 2 M, and floor((M + 2) / 3).
  // CHECK-LABEL: func.func @infer
  // CHECK-SAME: array<i64: 0, 2, 2, 1, 4, 1, 1, 2>], graph.name = "strided"
  // CHECK-SAME: array<i64: 0, 2, 2, 1, 8, 1, 1, 2, 2, 0, 1>], graph.name = "doubled"
  // CHECK-SAME: array<i64: 0, 2, 2, 1, 2, 1, 1, 2, 1, 2, 3>], graph.name = "pooled"
  func.func @infer(%x: tensor<2x3x8xf32> {graph.name = "x", graph.batched, graph.fill = 0.0}, %w: tensor<3x3x3xf32> {graph.name = "w"},
      %u: tensor<3x3x2xf32> {graph.name = "u"})
      -> (tensor<2x3x4xf32> {graph.name = "strided"}, tensor<2x3x8xf32> {graph.name = "doubled"}, tensor<2x3x2xf32> {graph.name = "pooled"}) {
    %0 = graph.conv %x, %w {strides = array<i64: 2>, dilations = array<i64: 1>, pads_begin = array<i64: 1>, pads_end = array<i64: 1>, groups = 1 : i64} : (tensor<2x3x8xf32>, tensor<3x3x3xf32>) -> tensor<2x3x4xf32>
    %1 = graph.conv_input_grad %0, %u {shape = array<i64: 8>, strides = array<i64: 2>, dilations = array<i64: 1>, pads_begin = array<i64: 0>, pads_end = array<i64: 0>, groups = 1 : i64} : (tensor<2x3x4xf32>, tensor<3x3x2xf32>) -> tensor<2x3x8xf32>
    %2 = graph.max_pool %0 {kernel = array<i64: 3>, strides = array<i64: 3>, dilations = array<i64: 1>, pads_begin = array<i64: 0>, pads_end = array<i64: 2>, output = array<i64: 2>} : (tensor<2x3x4xf32>) -> tensor<2x3x2xf32>
    return %0, %1, %2 : tensor<2x3x4xf32>, tensor<2x3x8xf32>, tensor<2x3x2xf32>
  }
}

// -----

module attributes {graph.batch = 2 : i64} {
  // Queries keep their place, keys are summed over: of 8 tokens only those of the queries are left in the result, beside heads and sizes.
  // CHECK-LABEL: func.func @infer
  // CHECK-SAME: tensor<2x3x8x4xf32> {graph.batched, graph.crops = [array<i64: 0, 1, 1, 32, 3>, array<i64: 0, 2, 2, 4, 8>, array<i64: 0, 3, 3, 1, 4>], graph.name = "y"}
  func.func @infer(%x: tensor<2x3x8x4xf32> {graph.name = "x", graph.batched, graph.fill = 0.0}) -> (tensor<2x3x8x4xf32> {graph.name = "y"}) {
    %y, %stats = graph.attention %x, %x, %x {scale = 0.5 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (tensor<2x3x8x4xf32>, tensor<2x3x8x4xf32>, tensor<2x3x8x4xf32>) -> (tensor<2x3x8x4xf32>, tensor<2x3x2x8xf32>)
    return %y : tensor<2x3x8x4xf32>
  }
}

// -----

module attributes {graph.batch = 2 : i64} {
  // Samples as positions of one sequence attend to each other.
  // CHECK-LABEL: func.func @infer
  // CHECK-SAME: graph.mixes = "y"
  func.func @infer(%x: tensor<2x3x1x4xf32> {graph.name = "x", graph.batched}) -> (tensor<1x3x2x4xf32> {graph.name = "y"}) {
    %t = graph.transpose %x {permutation = array<i64: 2, 1, 0, 3>} : (tensor<2x3x1x4xf32>) -> tensor<1x3x2x4xf32>
    %y, %stats = graph.attention %t, %t, %t {scale = 0.5 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (tensor<1x3x2x4xf32>, tensor<1x3x2x4xf32>, tensor<1x3x2x4xf32>) -> (tensor<1x3x2x4xf32>, tensor<1x3x2x2xf32>)
    return %y : tensor<1x3x2x4xf32>
  }
}
