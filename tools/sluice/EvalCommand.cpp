// sluice eval: loss and metrics; sluice infer: outputs.

#include "runtime/AtomicFile.h"
#include "runtime/Checkpoint.h"
#include "tools/sluice/EvalMetrics.h"
#include "tools/sluice/RunOptions.h"

#include <cstring>

namespace sluice::cli {
namespace {

/// A session with the state of --checkpoint, when given.
Result<std::unique_ptr<Session>> openTrained(const RunOptions &options,
                                             const Console &console) {
  auto session = openSession(options, console);
  if (!session || options.checkpoint.empty())
    return session;
  auto loaded = loadCheckpoint(**session, options.checkpoint);
  if (!loaded)
    return loaded.status();
  for (const std::string &note : loaded->notes)
    console.message("note: " + note);
  return session;
}

struct EvalArguments {
  RunOptions run;
  std::vector<std::string> metrics;
};

int runEval(const EvalArguments &arguments, Console &console) {
  const RunOptions &options = arguments.run;
  auto extra = parseMetrics(arguments.metrics);
  if (!extra)
    return console.fail(extra.status());
  auto session = openTrained(options, console);
  if (!session)
    return console.fail(session.status());
  auto source = openSource(**session, "eval", options.data, options.buckets, false);
  if (!source)
    return console.fail(source.status());
  auto made = EvalMetrics::create((*session)->plan(), *extra);
  if (!made)
    return console.fail(made.status());
  EvalMetrics &metrics = *made;
  auto report =
      evaluate(**session, **source, [&](const Session &running, const Batch &batch) {
        return metrics.add(running, batch);
      });
  if (!report)
    return console.fail(report.status());
  console.result = metrics.finish(*report);
  console.line(EvalMetrics::text(console.result));
  return console.finish();
}

/// Format string of NumPy for an element type, or null.
const char *numpyType(DType type) {
  switch (type) {
  case DType::f32:
    return "<f4";
  case DType::f64:
    return "<f8";
  case DType::i32:
    return "<i4";
  case DType::i64:
    return "<i8";
  case DType::i8:
    return "|i1";
  case DType::u8:
    return "|u1";
  case DType::i1:
    return "|b1";
  default:
    return nullptr;
  }
}

/// The header of a version 1.0 .npy file for an array of this shape, padded to 64 bytes.
std::string npyHeader(const char *type, const std::vector<int64_t> &shape) {
  std::string text =
      std::string("{'descr': '") + type + "', 'fortran_order': False, 'shape': (";
  for (int64_t size : shape)
    text += std::to_string(size) + ",";
  text += "), }";
  text.append(63 - (10 + text.size()) % 64, ' ');
  text += '\n';
  std::string head("\x93NUMPY\x01\x00", 8);
  head += static_cast<char>(text.size() & 0xff);
  head += static_cast<char>(text.size() >> 8);
  return head + text;
}

/// One output over the whole data set.
struct Collected {
  const fbs::Port *port;
  int64_t batch; // samples of a whole batch
  std::string bytes;
};

Status writeOutput(const Collected &output, int64_t samples, const std::string &path) {
  const char *type = numpyType(static_cast<DType>(output.port->dtype()));
  if (!type)
    return Status::refused("output '" + std::string(viewOf(output.port->name())) +
                           "' has an element type that .npy cannot hold");
  std::vector<int64_t> shape;
  if (output.port->shape()) // null for a scalar
    shape.assign(output.port->shape()->begin(), output.port->shape()->end());
  if (output.port->batched() && !shape.empty())
    shape[0] = shape[0] / output.batch * samples;
  return writeWholeFile(path, npyHeader(type, shape) + output.bytes);
}

struct InferArguments {
  RunOptions run;
  std::string out, task;
};

/// OUT.npy for one output, OUT-NAME.npy for several.
std::string outputPath(const std::string &out, const fbs::Program &program,
                       const fbs::Port &port) {
  if (sizeOf(program.outputs()) == 1)
    return out;
  std::string stem = out.ends_with(".npy") ? out.substr(0, out.size() - 4) : out;
  std::string name(viewOf(port.name()));
  for (char &c : name)
    if (c == '/' || c == ':' || c == ';')
      c = '_';
  return stem + "-" + name + ".npy";
}

int runInfer(const InferArguments &arguments, Console &console) {
  if (!arguments.task.empty())
    return console.fail(
        Status::usage("--task is not yet supported; plans have one task"));
  auto session = openTrained(arguments.run, console);
  if (!session)
    return console.fail(session.status());
  const fbs::Program *program = (*session)->plan().program("infer");
  if (!program)
    return console.fail(Status::refused(
        "the plan has no program 'infer'; compile with 'entries' that include it"));
  bool takesData = !(*session)->plan().inputs("infer").empty();
  if (takesData && arguments.run.data.empty())
    return console.fail(Status::usage("--data is required: the plan has inputs"));
  Result<std::unique_ptr<BatchSource>> source = std::unique_ptr<BatchSource>();
  if (takesData)
    source =
        openSource(**session, "infer", arguments.run.data, arguments.run.buckets, false);
  if (!source)
    return console.fail(source.status());
  std::vector<Collected> outputs;
  int64_t samples = 0;
  uint32_t bucket = 0;
  // Where every input's value is known to the plan, there is one batch, without data.
  const int64_t wanted = takesData ? (*source)->size() : 1;
  while (samples < wanted) {
    Batch batch;
    batch.count = (*session)->batchOf(0);
    if (takesData)
      if (Status status = (*source)->next(batch); !status.ok())
        return console.fail(status);
    if (samples == 0) {
      bucket = batch.bucket;
      program = (*session)->plan().program("infer", bucket);
      for (uint32_t i = 0; i < sizeOf(program->outputs()); ++i)
        outputs.push_back({program->outputs()->Get(i), (*session)->batchOf(bucket), {}});
    }
    if (batch.bucket != bucket)
      return console.fail(Status::usage("infer takes one set of data: outputs of several "
                                        "shapes do not go into one file"));
    if (Status status = (*session)->infer(batch); !status.ok())
      return console.fail(status);
    for (Collected &output : outputs) {
      auto view = (*session)->output(viewOf(output.port->name()));
      if (!view)
        return console.fail(view.status());
      if (output.port->batched() || samples == 0)
        output.bytes.append(reinterpret_cast<const char *>(view->data), view->bytes);
    }
    samples += batch.count;
  }
  console.result["outputs"] = Json::array();
  for (const Collected &output : outputs) {
    std::string path = outputPath(arguments.out, *program, *output.port);
    if (Status status = writeOutput(output, samples, path); !status.ok())
      return console.fail(status);
    console.result["outputs"].push_back(
        {{"name", std::string(viewOf(output.port->name()))}, {"path", path}});
    console.line("wrote " + path);
  }
  return console.finish();
}

} // namespace

Command addEval(CLI::App &parent, Console &console) {
  auto arguments = std::make_shared<EvalArguments>();
  CLI::App *app = parent.add_subcommand("eval", "Compute loss and metrics on data");
  addMetricOption(app, arguments->metrics);
  addRunOptions(app, arguments->run,
                "folder of checkpoints (or one file) with the trained state");
  app->footer("Example: sluice eval model.plan --data "
              "images=idx:test-images.gz,scale=1/255 --data "
              "labels=idx:test-labels.gz --checkpoint run");
  return {app, [arguments, &console] { return runEval(*arguments, console); }};
}

Command addInfer(CLI::App &parent, Console &console) {
  auto arguments = std::make_shared<InferArguments>();
  CLI::App *app = parent.add_subcommand("infer", "Write the model's outputs as .npy");
  addRunOptions(app, arguments->run,
                "folder of checkpoints (or one file) with the trained state");
  app->get_option("--data")->required(false); // a plan may have no inputs left
  app->add_option("-o,--out", arguments->out, "OUT.npy (several outputs: OUT-NAME.npy)")
      ->required();
  app->add_option("--task", arguments->task, "task whose mask is used");
  app->footer("Example: sluice infer model.plan --data images=npy:x.npy --checkpoint run "
              "-o y.npy");
  return {app, [arguments, &console] { return runInfer(*arguments, console); }};
}

} // namespace sluice::cli
