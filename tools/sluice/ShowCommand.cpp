// sluice show: pictures of a model or a plan.

#include "codegen/Compile.h"
#include "frontend/OnnxImporter.h"
#include "frontend/SpecReader.h"
#include "runtime/PlanReader.h"
#include "runtime/Trace.h"
#include "tools/sluice/Cli.h"
#include "tools/sluice/GraphPicture.h"
#include "tools/sluice/MemoryPicture.h"
#include "tools/sluice/PlanVariants.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

#include <sstream>

namespace sluice::cli {
namespace {

struct ShowArguments {
  std::string subject, spec, stage = "model", program = "step";
  VariantChoice choice;
  std::string graph, memory, trace, html;
  std::vector<std::string> shapes, sets;
};

/// Where a program stands in the plan.
uint32_t indexOf(const Plan &plan, const fbs::Program &program) {
  uint32_t index = 0;
  while (plan.raw().programs()->Get(index) != &program)
    ++index;
  return index;
}

int showPlan(const ShowArguments &arguments, Console &console) {
  auto plan = PlanReader::readFile(arguments.subject);
  if (!plan)
    return console.fail(plan.status());
  auto variant = findVariant(**plan, arguments.choice);
  if (!variant)
    return console.fail(variant.status());
  uint32_t bucket = (*variant)->bucket, rung = (*variant)->rung;
  const fbs::Program *program = (*plan)->program(arguments.program, bucket, rung);
  if (!program && arguments.program == "step")
    program = (*plan)->program("micro", bucket, rung);
  if (!program) {
    std::string names;
    for (const std::string &name : (*plan)->programNames())
      names += (names.empty() ? "" : ", ") + name;
    return console.fail(Status::usage("the plan has no program '" + arguments.program +
                                      "'; it has " + names));
  }
  std::vector<std::pair<std::string, Status>> written;
  if (!arguments.graph.empty())
    written.emplace_back(arguments.graph, writeGraph(programDot((*plan)->raw(), *program),
                                                     arguments.graph));
  if (!arguments.memory.empty())
    written.emplace_back(
        arguments.memory,
        arguments.memory.ends_with(".svg")
            ? writeWholeFile(arguments.memory, memorySvg(**plan, **variant, *program))
            : Status::usage("--memory '" + arguments.memory +
                            "': expected a name ending in .svg"));
  if (!arguments.trace.empty())
    written.emplace_back(
        arguments.trace,
        writeWholeFile(arguments.trace,
                       plannedTraceJson(**plan, indexOf(**plan, *program))));
  for (auto &[path, status] : written) {
    if (!status.ok())
      return console.fail(status);
    console.result["written"].push_back(path);
    console.line("wrote " + path);
  }
  return console.finish();
}

/// The marks of a spec that decides about memory, which a stage before the plan lacks.
Status decideMemory(mlir::ModuleOp module, CompileOptions options, MemoryMarks &marks) {
  const TrainingSpec &spec = options.spec;
  if (!spec.budgetBytes && spec.recompute.empty() &&
      options.stopAfter != CompileStage::Plan)
    return Status::success();
  mlir::OwningOpRef<mlir::ModuleOp> planned = module.clone();
  options.stopAfter = CompileStage::Plan;
  CompileReport report;
  Status status = compileModule(*planned, options, report);
  if (status.ok())
    marks = memoryMarks(*planned);
  return status;
}

int showModel(const ShowArguments &arguments, Console &console) {
  if (arguments.graph.empty())
    return console.fail(
        Status::usage("a model has a --graph; --memory and --trace are of a plan"));
  SpecResult spec = readSpec(arguments.spec, arguments.sets);
  if (!spec.spec)
    return console.refuse(spec.errors);
  if (auto problem =
          parseShapes(arguments.shapes, spec.spec->shapes, spec.spec->dimensions))
    return console.fail(Status::usage(*problem));
  mlir::MLIRContext context;
  ImportReport report;
  auto module =
      importOnnx(context, arguments.subject, ImportOptions::from(*spec.spec), report);
  if (mlir::failed(module))
    return console.refuse(report.problems());
  CompileOptions options;
  options.spec = *spec.spec;
  options.stopAfter = *compileStageNamed(arguments.stage);
  MemoryMarks marks;
  if (Status status = decideMemory(**module, options, marks); !status.ok())
    return console.fail(status);
  CompileReport compiled;
  if (Status status = compileModule(**module, options, compiled); !status.ok())
    return console.fail(status);
  if (Status status = writeGraph(moduleDot(**module, marks), arguments.graph);
      !status.ok())
    return console.fail(status);
  console.result["written"].push_back(arguments.graph);
  console.line("wrote " + arguments.graph);
  return console.finish();
}

int runShow(const ShowArguments &arguments, Console &console) {
  if (!arguments.html.empty())
    return console.fail(
        Status::usage("--html is not yet supported; --graph, --memory and --trace are"));
  if (arguments.graph.empty() && arguments.memory.empty() && arguments.trace.empty())
    return console.fail(
        Status::usage("say what to show: --graph F, --memory F.svg or --trace F.json"));
  return arguments.subject.ends_with(".onnx") ? showModel(arguments, console)
                                              : showPlan(arguments, console);
}

} // namespace

Command addShow(CLI::App &parent, Console &console) {
  auto arguments = std::make_shared<ShowArguments>();
  CLI::App *app =
      parent.add_subcommand("show", "Draw a model or a plan: graph, memory, timeline");
  app->add_option("subject", arguments->subject, "plan file, or ONNX file")->required();
  app->add_option("--stage", arguments->stage,
                  "of a model: model, train, regions, decide or plan")
      ->check(CLI::IsMember({"model", "train", "regions", "decide", "plan"}));
  app->add_option("--program", arguments->program,
                  "of a plan: step, micro, update, eval or infer");
  addVariantOptions(app, arguments->choice);
  app->add_option("--spec", arguments->spec, "training spec, for a model");
  app->add_option("--set", arguments->sets,
                  "KEY=VALUE over the spec, such as memory.budget=512MiB");
  app->add_option("--shape", arguments->shapes, "INPUT=4x18x1024, or DIMENSION=32");
  app->add_option("--graph", arguments->graph, "F.svg, F.png or F.dot");
  app->add_option("--memory", arguments->memory, "F.svg: the arena over the step");
  app->add_option("--trace", arguments->trace, "F.json: predicted timeline for Perfetto");
  app->add_option("--html", arguments->html, "not yet");
  app->footer("Example: sluice show model.plan --memory memory.svg");
  return {app, [arguments, &console] { return runShow(*arguments, console); }};
}

} // namespace sluice::cli
