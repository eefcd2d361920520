#pragma once

namespace sluice::cli {

/// How many times faster this processor multiplies matrices of bf16 than of f32, each by
/// the best code there is for it, one worker; 1 where bf16 is computed in f32. The best
/// of several runs of each, in turn.
/// With `tiles`: on the matrix unit where it is present, which convolutions do not use.
double bf16SpeedUp(bool tiles);

} // namespace sluice::cli
