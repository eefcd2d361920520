#pragma once
// From the plan dialect and machine code to the plan file and the initial state beside
// it.

#include "codegen/KernelCompiler.h"
#include "runtime/Status.h"

#include "mlir/IR/BuiltinOps.h"

#include <map>
#include <string>
#include <vector>

namespace sluice {
struct PlannedVariant;

/// Machine code of the generated kernels.
struct PlanCode {
  std::map<std::string, std::string> symbols; // plan.kernel -> symbol in every image
  std::vector<KernelImage> images;
};

/// What the file says about itself beside the module's attributes.
struct PlanOrigin {
  std::string producer;                                       // compiler and version
  std::string spec;                                           // the spec as read
  std::vector<std::string> report;                            // "topic: text"
  std::vector<std::pair<std::string, std::string>> decisions; // subject, why
  std::map<std::string, std::string> tensorNodes;             // tensor -> node
  int64_t budgetBytes = 0;                                    // 0: none
};

/// Writes `path` and, with the suffix .safetensors in place of .plan, the initial values
/// of parameters, buffers and constants. The same modules give the same bytes.
Status writePlan(llvm::ArrayRef<PlannedVariant> variants, const PlanCode &code,
                 const PlanOrigin &origin, const std::string &path);

/// "OUT.safetensors" of "OUT.plan": where the runtime looks for the initial state.
std::string weightsPathOf(const std::string &planPath);

} // namespace sluice
