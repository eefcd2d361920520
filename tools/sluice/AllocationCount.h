#pragma once
// Counts heap allocations of this process while a plan's program runs, to show that there
// are none (law 1). The process's malloc is replaced for it (glibc's own does the work).

#include <cstdint>

namespace sluice::cli {

/// Allocations made so far between countAllocations(true) and countAllocations(false), by
/// any thread.
uint64_t allocationsInSteps();
void countAllocations(bool on);
/// Of several ranks in this process only what is made while all of them are in a program
/// counts: between programs they read data.
void countAllocationsOf(int ranks);

} // namespace sluice::cli
