// sluice import: what is in a model, and what is missing to train it.

#include "frontend/OnnxImporter.h"
#include "frontend/SpecKeys.h"
#include "frontend/SpecReader.h"
#include "tools/sluice/Cli.h"

#include "mlir/IR/MLIRContext.h"

namespace sluice::cli {
namespace {

struct ImportArguments {
  std::string model, spec;
  std::vector<std::string> shapes;
};

std::string shapeText(const std::vector<int64_t> &shape) {
  std::string text;
  for (int64_t size : shape)
    text +=
        (text.empty() ? "" : "x") + (size < 0 ? std::string("?") : std::to_string(size));
  return text.empty() ? "scalar" : text;
}

Json tensorsJson(const std::vector<ImportedTensor> &tensors) {
  Json list = Json::array();
  for (const ImportedTensor &tensor : tensors)
    list.push_back(
        {{"name", tensor.name}, {"type", tensor.type}, {"shape", tensor.shape}});
  return list;
}

void fillJson(const ImportReport &report, Json &object) {
  object["parameters"] = report.parameters;
  object["parameter_elements"] = report.parameterElements;
  object["ops"] = Json::object();
  for (auto &[name, count] : report.ops)
    object["ops"][name] = count;
  object["unsupported"] = Json::array();
  for (const UnsupportedOp &op : report.unsupported)
    object["unsupported"].push_back(
        {{"op", op.op}, {"node", op.node}, {"reason", op.reason}});
  object["inputs"] = tensorsJson(report.inputs);
  object["outputs"] = tensorsJson(report.outputs);
  object["ir_version"] = report.irVersion;
  object["opset"] = report.opset;
  object["notes"] = report.notes;
}

void printText(const ImportReport &report, const Console &console) {
  std::vector<std::vector<std::string>> rows;
  for (const ImportedTensor &tensor : report.inputs)
    rows.push_back({"input " + tensor.name, tensor.type, shapeText(tensor.shape)});
  for (const ImportedTensor &tensor : report.outputs)
    rows.push_back({"output " + tensor.name, tensor.type, shapeText(tensor.shape)});
  console.line(tableText(rows));
  console.line("  " + std::to_string(report.parameters) + " parameters with " +
               std::to_string(report.parameterElements) + " elements; ONNX IR " +
               std::to_string(report.irVersion) + ", opset " +
               std::to_string(report.opset));
  rows.clear();
  for (auto &[name, count] : report.ops)
    rows.push_back({name, std::to_string(count)});
  console.line(tableText(rows));
  for (const std::string &note : report.notes)
    console.line("  note: " + note);
}

} // namespace

Command addImport(CLI::App &parent, Console &console) {
  auto arguments = std::make_shared<ImportArguments>();
  CLI::App *app = parent.add_subcommand(
      "import", "Say what is in a model and what is missing to train it");
  app->add_option("model", arguments->model, "ONNX file")->required();
  app->add_option("--spec", arguments->spec, "training spec (YAML), for shapes and ties");
  app->add_option("--shape", arguments->shapes, "INPUT=4x18x1024, or DIMENSION=32");
  app->footer("Example: sluice import model.onnx --shape batch=8");
  return {app, [arguments, &console] {
            SpecResult spec = readSpec(arguments->spec);
            if (!spec.spec)
              return console.refuse(spec.errors);
            if (auto problem = parseShapes(arguments->shapes, spec.spec->shapes,
                                           spec.spec->dimensions))
              return console.fail(Status::usage(*problem));
            mlir::MLIRContext context;
            ImportReport report;
            auto module = importOnnx(context, arguments->model,
                                     ImportOptions::from(*spec.spec), report);
            fillJson(report, console.result);
            if (mlir::failed(module)) {
              if (!report.ops.empty())
                printText(report, console);
              return console.refuse(report.problems());
            }
            printText(report, console);
            return console.finish();
          }};
}

Command addSchema(CLI::App &parent, Console &console) {
  CLI::App *app = parent.add_subcommand(
      "schema", "Print the JSON schema of the training spec, for editors");
  return {app, [&console] {
            std::printf("%s", specSchema().c_str());
            (void)console;
            return 0;
          }};
}

} // namespace sluice::cli
