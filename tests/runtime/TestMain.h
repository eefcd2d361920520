#pragma once

namespace sluice::test {

/// Mutations of each kind of file: --mutations=N.
extern int mutationCount;

} // namespace sluice::test
