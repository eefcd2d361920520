#pragma once
// Compiles the vector code of one elementwise operation and runs it over arrays.

#include "tests/ir/GraphFixture.h"

#include <memory>

namespace sluice::graph {

/// A compiled loop over 16 lanes at a time. Element types of memory: f32, i8 for i1, i32,
/// i64 for the rest.
class VectorKernel {
public:
  /// `cpu` is an LLVM processor name, empty for the host's. A failed test where code is
  /// left that needs a library.
  VectorKernel(const Build &build, const std::vector<mlir::Type> &operandTypes,
               const std::string &cpu = "");
  ~VectorKernel();
  VectorKernel(VectorKernel &&) noexcept;
  /// `count` is a multiple of 16.
  void run(std::vector<const void *> operands, void *result, int64_t count) const;

private:
  struct Code;
  std::unique_ptr<Code> code;
};

/// The kernel's result equals the interpreter's in every element (a multiple of 16).
void expectAsInterpreted(const Build &build, const std::vector<HostTensor> &inputs,
                         const std::string &name, const std::string &cpu = "");

template <class Op, class... Args> Build binary(Args... args) {
  return [=](mlir::OpBuilder &b, llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
    return b.create<Op>(b.getUnknownLoc(), x[0], x[1], args...);
  };
}
template <class Op, class... Args> Build unary(Args... args) {
  return [=](mlir::OpBuilder &b, llvm::ArrayRef<mlir::Value> x) -> mlir::Operation * {
    return b.create<Op>(b.getUnknownLoc(), x[0], args...);
  };
}

} // namespace sluice::graph
