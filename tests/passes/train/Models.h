#pragma once
// Small models for the train stage, as the importer would write them.

#include <string>

namespace sluice::models {

/// One weight w and the prediction w * x for x [3, 1].
inline const std::string line = R"(
graph.parameter @"param/w" : tensor<f32> "parameter" {fill = 2.0 : f64}
func.func @forward(%x: tensor<3x1xf32> {graph.name = "x"}) -> (tensor<3x1xf32> {graph.name = "y"}) {
  %w = graph.read @"param/w" : tensor<f32>
  %b = graph.broadcast %w {shape = array<i64: 3, 1>} : (tensor<f32>) -> tensor<3x1xf32>
  %y = graph.mul %x, %b : (tensor<3x1xf32>, tensor<3x1xf32>) -> tensor<3x1xf32>
  return %y : tensor<3x1xf32>
})";

/// x [4, 5] -> gelu layer of 6 -> layer norm -> logits [4, 3].
inline const std::string mlp = R"(
graph.parameter @"param/fc1.weight" : tensor<6x5xf32> "parameter"
graph.parameter @"param/fc1.bias" : tensor<6xf32> "parameter"
graph.parameter @"param/norm.weight" : tensor<6xf32> "parameter"
graph.parameter @"param/fc2.weight" : tensor<3x6xf32> "parameter"
func.func @forward(%x: tensor<4x5xf32> {graph.name = "x"}) -> (tensor<4x3xf32> {graph.name = "logits"}) {
  %w1 = graph.read @"param/fc1.weight" : tensor<6x5xf32>
  %b1 = graph.read @"param/fc1.bias" : tensor<6xf32>
  %g = graph.read @"param/norm.weight" : tensor<6xf32>
  %w2 = graph.read @"param/fc2.weight" : tensor<3x6xf32>
  %0 = graph.contract %x, %w1 {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<4x5xf32>, tensor<6x5xf32>) -> tensor<4x6xf32>
  %1 = graph.broadcast %b1 {shape = array<i64: 4, 6>} : (tensor<6xf32>) -> tensor<4x6xf32>
  %2 = graph.add %0, %1 : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  %3 = graph.gelu %2 : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %4, %mean, %rstd = graph.layer_norm %3, %g {axis = 1 : i64, epsilon = 1.0e-5 : f64} : (tensor<4x6xf32>, tensor<6xf32>) -> (tensor<4x6xf32>, tensor<4x1xf32>, tensor<4x1xf32>)
  %5 = graph.contract %4, %w2 {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<4x6xf32>, tensor<3x6xf32>) -> tensor<4x3xf32>
  return %5 : tensor<4x3xf32>
})";

/// x [4, 2, 4, 4] -> convolution, batch statistics, relu, pool, dropout -> logits [4, 3].
inline const std::string cnn = R"(
graph.parameter @"control/seed" : tensor<i64> "control"
graph.parameter @"control/update" : tensor<i64> "control"
graph.parameter @"control/sample" : tensor<i64> "control"
graph.parameter @"param/conv.weight" : tensor<3x2x3x3xf32> "parameter"
graph.parameter @"param/bn.weight" : tensor<3xf32> "parameter"
graph.parameter @"param/bn.bias" : tensor<3xf32> "parameter"
graph.parameter @"param/bn.running_mean" : tensor<3xf32> "buffer"
graph.parameter @"param/bn.running_var" : tensor<3xf32> "buffer" {fill = 1.0 : f64}
graph.parameter @"param/fc.weight" : tensor<3x12xf32> "parameter"
func.func @forward(%x: tensor<4x2x4x4xf32> {graph.name = "x"}) -> (tensor<4x3xf32> {graph.name = "logits"}) {
  %seed = graph.read @"control/seed" : tensor<i64>
  %update = graph.read @"control/update" : tensor<i64>
  %sample = graph.read @"control/sample" : tensor<i64>
  %w = graph.read @"param/conv.weight" : tensor<3x2x3x3xf32>
  %g = graph.read @"param/bn.weight" : tensor<3xf32>
  %b = graph.read @"param/bn.bias" : tensor<3xf32>
  %w2 = graph.read @"param/fc.weight" : tensor<3x12xf32>
  %0 = graph.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_begin = array<i64: 1, 1>, pads_end = array<i64: 1, 1>, groups = 1 : i64} : (tensor<4x2x4x4xf32>, tensor<3x2x3x3xf32>) -> tensor<4x3x4x4xf32>
  %1, %mean, %variance = graph.batch_norm_train %0, %g, %b {epsilon = 1.0e-5 : f64, momentum = 0.9 : f64, running_mean = @"param/bn.running_mean", running_variance = @"param/bn.running_var"} : (tensor<4x3x4x4xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<4x3x4x4xf32>, tensor<3xf32>, tensor<3xf32>)
  %2 = graph.relu %1 : (tensor<4x3x4x4xf32>) -> tensor<4x3x4x4xf32>
  %3 = graph.max_pool %2 {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads_begin = array<i64: 0, 0>, pads_end = array<i64: 0, 0>, output = array<i64: 2, 2>} : (tensor<4x3x4x4xf32>) -> tensor<4x3x2x2xf32>
  %4, %mask = graph.dropout %3, %seed, %update, %sample {ratio = 0.25 : f64, id = 1 : i64} : (tensor<4x3x2x2xf32>, tensor<i64>, tensor<i64>, tensor<i64>) -> (tensor<4x3x2x2xf32>, tensor<4x3x2x2xi1>)
  %5 = graph.reshape %4 {shape = array<i64: 4, 12>} : (tensor<4x3x2x2xf32>) -> tensor<4x12xf32>
  %6 = graph.contract %5, %w2 {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<4x12xf32>, tensor<3x12xf32>) -> tensor<4x3xf32>
  return %6 : tensor<4x3xf32>
})";

/// Token ids [2, 3] -> rows of an embedding -> logits [2, 3, 5].
inline const std::string embedding = R"(
graph.parameter @"param/wte" : tensor<5x4xf32> "parameter"
graph.parameter @"param/head" : tensor<5x4xf32> "parameter"
func.func @forward(%ids: tensor<2x3xi64> {graph.name = "ids"}) -> (tensor<2x3x5xf32> {graph.name = "logits"}) {
  %wte = graph.read @"param/wte" : tensor<5x4xf32>
  %head = graph.read @"param/head" : tensor<5x4xf32>
  %0 = graph.gather %wte, %ids {axis = 0 : i64} : (tensor<5x4xf32>, tensor<2x3xi64>) -> tensor<2x3x4xf32>
  %1 = graph.tanh %0 : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %2 = graph.contract %1, %head {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 2>, rhs_contract = array<i64: 1>} : (tensor<2x3x4xf32>, tensor<5x4xf32>) -> tensor<2x3x5xf32>
  return %2 : tensor<2x3x5xf32>
})";

} // namespace sluice::models
