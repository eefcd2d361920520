#pragma once

namespace sluice::cli {

/// How many times faster this processor multiplies matrices of bf16 than of f32, each by
/// the best code there is for it, one worker; 1 where bf16 is computed in f32. The best
/// of several runs of each, in turn. Convolutions multiply by the same instructions; what
/// they gather and pack is priced apart.
double bf16SpeedUp();

} // namespace sluice::cli
