#pragma once
// The one calling convention of every kernel, generated or written by hand.

#include <cstdint>

namespace sluice {

/// Computes the units [begin, end) of a launch. A unit is the smallest share of work a
/// launch may be split by (a row, a strip of columns, an image); what a unit is depends
/// on the kernel alone, never on the number of threads, so that any split gives the same
/// bits.
///
/// buffers: resolved addresses, operands in the order the kernel documents (inputs,
/// outputs, workspaces). params:  constants of the launch (sizes, strides), laid out as
/// the kernel documents; may be null. worker:  0 <= worker < threads; selects the slice
/// of a per-worker workspace.
///
/// A kernel allocates nothing, throws nothing and reports nothing: whatever could be
/// wrong with its operands is refused before the step.
using KernelFn = void (*)(void *const *buffers, const int64_t *params, int64_t begin,
                          int64_t end, int64_t worker);

} // namespace sluice
