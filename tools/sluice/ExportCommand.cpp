// sluice export: trained weights as safetensors, or back into the ONNX file they came
// from.

#include "frontend/OnnxExporter.h"
#include "runtime/Adapters.h"
#include "runtime/Checkpoint.h"
#include "runtime/CheckpointShards.h"
#include "runtime/Safetensors.h"
#include "runtime/StateTransfer.h"
#include "runtime/StoredCodes.h"
#include "tools/sluice/RunOptions.h"

#include <algorithm>
#include <deque>
#include <optional>

namespace sluice::cli {
namespace {

struct ExportArguments {
  std::string plan, checkpoint, model, out;
  bool noMerge = false;
};

constexpr std::string_view kPrefix = "param/";

/// Parameters and buffers of the session under the model's own names.
struct Weights {
  std::vector<TensorToWrite> tensors;
  std::deque<std::vector<float>> exact; // values of those stored otherwise
  std::vector<std::string> narrow;      // stored in 16 bits without a master
};

/// The exact f32 where a master keeps it. With `widen` all 16-bit values become f32.
/// Masters that ranks share out come from the `file` of the session's state.
Weights weightsOf(const Session &session, const SafetensorsFile *file, bool widen) {
  Weights weights;
  const fbs::Plan &raw = session.plan().raw();
  for (uint32_t i = 0; i < sizeOf(raw.state()); ++i) {
    const fbs::StateTensor &tensor = *raw.state()->Get(i);
    std::string_view name = viewOf(tensor.name());
    if (!name.starts_with(kPrefix))
      continue;
    TensorToWrite weight;
    weight.name = name.substr(kPrefix.size());
    weight.dtype = static_cast<DType>(tensor.dtype());
    if (tensor.shape())
      weight.shape.assign(tensor.shape()->begin(), tensor.shape()->end());
    weight.data = session.state(name).data();
    weight.bytes = tensor.size();
    if (codedFormat(tensor)) {
      std::vector<float> &values =
          weights.exact.emplace_back(decodeState(session, tensor));
      weight.dtype = DType::f32;
      weight.shape = valueShapeOf(tensor);
      weight.data = values.data();
      weight.bytes = values.size() * sizeof(float);
    }
    if (weight.dtype == DType::bf16 || weight.dtype == DType::f16) {
      auto stored = storedTensor(session, tensor);
      if (file && hasSharedMaster(session.plan(), tensor)) {
        std::vector<float> &values = weights.exact.emplace_back(
            valuesOf(findSource(session.plan(), tensor, *file, name), *file));
        weight.dtype = DType::f32;
        weight.data = values.data();
        weight.bytes = values.size() * sizeof(float);
        weights.tensors.push_back(std::move(weight));
        continue;
      }
      if (!stored.form.isExact())
        weights.narrow.push_back(weight.name);
      if (stored.form.isExact() || widen) {
        std::vector<float> &values = weights.exact.emplace_back(stored.count);
        readExact(stored, 0, values);
        weight.dtype = DType::f32;
        weight.data = values.data();
        weight.bytes = values.size() * sizeof(float);
      }
    }
    weights.tensors.push_back(std::move(weight));
  }
  return weights;
}

/// What the file holds of parameters without a master.
void sayNarrow(Weights &weights, bool widened, Console &console) {
  std::erase_if(weights.narrow, [&](const std::string &name) {
    return std::none_of(
        weights.tensors.begin(), weights.tensors.end(), [&](const TensorToWrite &weight) {
          return weight.name == name && (widened || weight.dtype != DType::f32);
        });
  });
  console.result["without_master"] = weights.narrow;
  if (weights.narrow.empty())
    return;
  size_t shown = std::min<size_t>(weights.narrow.size(), 3);
  std::string line = "note: " + std::to_string(weights.narrow.size()) +
                     " tensors are stored in 16 bits without a master, and are written " +
                     (widened ? "widened" : "as they are") + ":";
  for (size_t i = 0; i < shown; ++i)
    line += (i ? ", '" : " '") + weights.narrow[i] + "'";
  if (shown < weights.narrow.size())
    line += " and " + std::to_string(weights.narrow.size() - shown) + " more";
  console.message(line);
}

/// Weights with their adapters added in, which are then left out; `merged` holds the
/// values.
void mergeInto(std::vector<TensorToWrite> &weights,
               const std::vector<MergedWeight> &merged) {
  auto bare = [](const std::string &name) { return name.substr(kPrefix.size()); };
  for (const MergedWeight &adapter : merged) {
    std::erase_if(weights, [&](const TensorToWrite &weight) {
      return weight.name == bare(adapter.a) || weight.name == bare(adapter.b);
    });
    for (TensorToWrite &weight : weights)
      if (weight.name == bare(adapter.base)) {
        weight.dtype = DType::f32;
        weight.data = adapter.values.data();
        weight.bytes = adapter.values.size() * sizeof(float);
      }
  }
}

/// The adapters alone.
void keepAdapters(std::vector<TensorToWrite> &weights, const fbs::Plan &plan) {
  std::erase_if(weights, [&](const TensorToWrite &weight) {
    std::string name = std::string(kPrefix) + weight.name;
    for (uint32_t i = 0; i < sizeOf(plan.adapters()); ++i)
      if (viewOf(plan.adapters()->Get(i)->a()) == name ||
          viewOf(plan.adapters()->Get(i)->b()) == name)
        return false;
    return true;
  });
}

/// What an adapter is scaled by: without it the file says too little.
Metadata adapterScales(const fbs::Plan &plan) {
  Metadata metadata;
  for (uint32_t i = 0; i < sizeOf(plan.adapters()); ++i) {
    const fbs::Adapter &adapter = *plan.adapters()->Get(i);
    metadata["scale/" + std::string(viewOf(adapter.base())).substr(kPrefix.size())] =
        nlohmann::json(adapter.scale()).dump();
  }
  return metadata;
}

int runExport(const ExportArguments &arguments, Console &console) {
  bool onnx = arguments.out.ends_with(".onnx");
  if (!onnx && !arguments.out.ends_with(".safetensors"))
    return console.fail(Status::usage(
        "-o '" + arguments.out + "': expected a name ending in .onnx or .safetensors"));
  if (onnx && arguments.model.empty())
    return console.fail(
        Status::usage("writing ONNX needs --model, the file that was compiled: its graph "
                      "is kept, its weights replaced"));
  if (onnx && arguments.noMerge)
    return console.fail(Status::usage(
        "--no-merge writes the adapters alone, for which ONNX has no place: expected a "
        "name ending in .safetensors"));
  RunOptions run;
  run.plan = arguments.plan;
  auto session = openSession(run, console);
  if (!session)
    return console.fail(session.status());
  std::string stateFile = (*session)->plan().weightsPath();
  if (!arguments.checkpoint.empty()) {
    auto loaded = loadCheckpoint(**session, arguments.checkpoint);
    if (!loaded)
      return console.fail(loaded.status());
    for (const std::string &note : loaded->notes)
      console.message("note: " + note);
    stateFile = loaded->path;
  }
  std::optional<SafetensorsFile> file;
  if ((*session)->plan().hasShards()) {
    auto opened = openWithShards(stateFile);
    if (!opened)
      return console.fail(opened.status());
    file = std::move(*opened);
  }
  const fbs::Plan &raw = (*session)->plan().raw();
  if (arguments.noMerge && sizeOf(raw.adapters()) == 0)
    return console.fail(Status::usage("--no-merge: the plan has no adapters ('lora')"));
  Weights all = weightsOf(**session, file ? &*file : nullptr, onnx);
  std::vector<TensorToWrite> &weights = all.tensors;
  std::vector<MergedWeight> merged;
  Metadata metadata;
  if (arguments.noMerge) {
    keepAdapters(weights, raw);
    metadata = adapterScales(raw);
  } else {
    merged = mergeAdapters(**session);
    mergeInto(weights, merged);
  }
  sayNarrow(all, onnx, console);
  if (onnx) {
    std::map<std::string, TensorBytes> byName;
    for (const TensorToWrite &weight : weights)
      byName[weight.name] = {static_cast<const char *>(weight.data), weight.bytes,
                             weight.dtype == DType::f32};
    if (auto problem = exportOnnx(arguments.model, byName, arguments.out))
      return console.fail(Status::refused(*problem));
  } else if (Status status = writeSafetensors(arguments.out, weights, metadata);
             !status.ok()) {
    return console.fail(status);
  }
  console.result["tensors"] = weights.size();
  console.result["path"] = arguments.out;
  console.result["merged"] = merged.size();
  console.line("wrote " + std::to_string(weights.size()) + " tensors to " +
               arguments.out);
  return console.finish();
}

} // namespace

Command addExport(CLI::App &parent, Console &console) {
  auto arguments = std::make_shared<ExportArguments>();
  CLI::App *app = parent.add_subcommand(
      "export", "Write trained weights as safetensors or back into the ONNX file");
  app->add_option("plan", arguments->plan, "plan file")->required();
  app->add_option("--checkpoint", arguments->checkpoint,
                  "folder of checkpoints (or one file); default: the initial state");
  app->add_option("--model", arguments->model,
                  "for .onnx: the ONNX file that was compiled");
  app->add_option("-o,--out", arguments->out, "F.onnx or F.safetensors")->required();
  app->add_flag("--no-merge", arguments->noMerge,
                "of a plan with 'lora': write the adapters alone, as safetensors");
  app->footer("Example: sluice export model.plan --checkpoint run --model model.onnx -o "
              "trained.onnx");
  return {app, [arguments, &console] { return runExport(*arguments, console); }};
}

} // namespace sluice::cli
