// Runs passes on graph and plan modules: the tool of tests and of whoever wants to see
// what one pass does. sluice-opt --spec train.yaml --build-loss FILE.mlir

#include "frontend/SpecReader.h"
#include "ir/plan/Plan.h"
#include "passes/Passes.h"
#include "passes/Pipeline.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"

#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"

using namespace sluice;

static llvm::cl::opt<std::string>
    specPath("spec", llvm::cl::desc("training spec (YAML) for the passes"),
             llvm::cl::value_desc("file"));
static llvm::cl::list<std::string>
    settings("set", llvm::cl::desc("override of a key of the spec"),
             llvm::cl::value_desc("key=value"));

/// Passes are made once when they are registered, before the command line is known, and
/// refer to this.
static TrainingSpec spec;
static const TrainingSpec &commandLineSpec() { return spec; }

static bool loadSpec() {
  if (specPath.empty() && settings.empty())
    return true;
  SpecResult result = readSpec(specPath, settings);
  for (const std::string &error : result.errors)
    llvm::errs() << error << "\n";
  if (result.spec)
    spec = *result.spec;
  return result.spec.has_value();
}

namespace sluice {
#define GEN_PASS_REGISTRATION
#include "passes/Passes.h.inc"
} // namespace sluice

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  registry.insert<graph::GraphDialect, plan::PlanDialect, mlir::func::FuncDialect,
                  mlir::arith::ArithDialect>();
  registerSluicePasses();
  mlir::registerCSEPass();
  mlir::registerCanonicalizerPass();
  mlir::PassPipelineRegistration<> train(
      "train", "the train stage",
      [](mlir::OpPassManager &passes) { buildTrainPipeline(passes, commandLineSpec()); });
  mlir::PassPipelineRegistration<> regions(
      "regions", "the regions stage",
      [](mlir::OpPassManager &passes) { buildRegionPipeline(passes, /*fuse=*/true); });
  mlir::PassPipelineRegistration<> plan(
      "plan", "the plan stage",
      [](mlir::OpPassManager &passes) { buildPlanPipeline(passes); });
  auto [input, output] =
      mlir::registerAndParseCLIOptions(argc, argv, "Sluice's pass driver\n", registry);
  if (!loadSpec())
    return 1;
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, input, output, registry));
}
