#pragma once
// Compiles a region and runs its kernel the way the runtime may: any chunks, several
// workers, both feature levels, every operand between a red zone and an unreadable page.

#include "codegen/KernelCompiler.h"
#include "codegen/RegionEmitter.h"
#include "ir/graph/GraphBuilder.h"
#include "ir/graph/Interpreter.h"
#include "passes/RegionDomain.h"
#include "runtime/CodeImage.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <vector>

namespace sluice::test {

using graph::GraphBuilder;
using graph::HostTensor;
using Shape = std::vector<int64_t>;
using Values = llvm::SmallVector<mlir::Value>;

mlir::MLIRContext &context();

// Inputs: uniform in [-2, 2) from a seed; and given values.
HostTensor uniform(Shape shape, unsigned seed = 1);
HostTensor reals(Shape shape, std::vector<double> values);
HostTensor integers(Shape shape, std::vector<int64_t> values, unsigned width = 64);

/// As in a kernel's memory: reals as f32, an i1 as one byte.
std::vector<uint8_t> toBytes(const HostTensor &tensor);
HostTensor fromBytes(const uint8_t *bytes, mlir::RankedTensorType type);

/// Builds the body of a region from its inputs; returns its outputs.
using Body = std::function<Values(GraphBuilder &, llvm::ArrayRef<mlir::Value>)>;

/// @f applies one region to its arguments.
struct RegionCase {
  RegionCase(const Body &body, std::vector<HostTensor> inputs);

  graph::RegionOp region();
  /// Results of the interpreter in double precision.
  std::vector<HostTensor> expected();

  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::vector<HostTensor> inputs;
};

/// `output` gets the address of `input`.
struct InPlace {
  unsigned input, output;
};

class RegionKernel {
public:
  explicit RegionKernel(RegionCase &region);

  /// The results for one level and one way to split the units: `chunk` units per call.
  std::vector<HostTensor> run(const std::string &level, int64_t chunk,
                              std::optional<InPlace> inPlace = {});
  /// Runs all levels that this machine has, and several splits; expects the same bits
  /// from all of them.
  std::vector<HostTensor> runEverywhere(std::optional<InPlace> inPlace = {});
  const GeneratedKernel &kernel() const { return generated; }

private:
  struct Loaded {
    std::string level;
    std::shared_ptr<const CodeImage> image;
  };
  RegionCase &region;
  GeneratedKernel generated;
  std::vector<Loaded> images;
};

/// Compares with the interpreter: |a - b| <= tolerance * (1 + |b|), NaN equals NaN.
void expectMatches(const std::vector<HostTensor> &expected,
                   const std::vector<HostTensor> &actual, double tolerance);
void expectSameBits(const std::vector<HostTensor> &a, const std::vector<HostTensor> &b);

/// Compiles, runs everywhere (RegionCheck.cpp: on the CPU; tests/emulator: as a CUDA
/// kernel), compares with the interpreter; returns the results.
std::vector<HostTensor> checkRegion(RegionCase &region, double tolerance);
std::vector<HostTensor> check(const Body &body, std::vector<HostTensor> inputs,
                              double tolerance = 1e-5);

} // namespace sluice::test
