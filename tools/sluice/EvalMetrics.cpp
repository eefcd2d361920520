#include "tools/sluice/EvalMetrics.h"

#include <cmath>
#include <cstdio>
#include <cstring>

namespace sluice::cli {
namespace {

/// The number of classes of logits that end in them (one logit for a binary loss), else
/// nothing.
std::optional<int64_t> classesOf(const Plan &plan, std::string_view kind) {
  const fbs::Program *program = plan.program("eval");
  for (uint32_t i = 0; program && i < sizeOf(program->outputs()); ++i) {
    const fbs::Port &port = *program->outputs()->Get(i);
    if (viewOf(port.name()) != viewOf(plan.raw().logits_output()) ||
        port.dtype() != fbs::DType::f32)
      continue;
    uint32_t rank = sizeOf(port.shape());
    if (kind == "bce_with_logits")
      return 1;
    // Images with a class per pixel have the classes in dimension 1: no row of classes to
    // read.
    return rank == 2 || rank == 3 ? std::optional(port.shape()->Get(rank - 1))
                                  : std::nullopt;
  }
  return std::nullopt;
}

template <class T>
void convert(const void *data, size_t count, std::vector<int64_t> &out) {
  for (size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, static_cast<const char *>(data) + i * sizeof(T), sizeof(T));
    out[i] = static_cast<int64_t>(value);
  }
}

} // namespace

EvalMetrics EvalMetrics::create(const Plan &plan) {
  EvalMetrics made;
  std::string_view kind = viewOf(plan.raw().loss_kind());
  bool classes = kind == "cross_entropy" || kind == "nll" || kind == "bce_with_logits";
  std::optional<int64_t> count = classes ? classesOf(plan, kind) : std::nullopt;
  std::vector<InputSpec> inputs = plan.inputs("eval");
  for (size_t i = 0; count && i < inputs.size(); ++i) {
    if (inputs[i].name != viewOf(plan.raw().labels_input()))
      continue;
    made.labels = inputs[i];
    made.labelsIndex = i;
    made.logits = viewOf(plan.raw().logits_output());
    made.options.classes = *count;
    const fbs::Program *program = plan.program("eval");
    for (uint32_t p = 0; p < sizeOf(program->inputs()); ++p)
      if (viewOf(program->inputs()->Get(p)->name()) == made.labels.name &&
          program->inputs()->Get(p)->has_ignored())
        made.options.ignored = program->inputs()->Get(p)->ignored();
    made.metrics.emplace(made.options);
  }
  return made;
}

Status EvalMetrics::add(const Session &session, const Batch &batch) {
  if (!metrics)
    return Status::success();
  auto output = session.output(logits);
  if (!output)
    return output.status();
  size_t perSample = labels.sampleBytes() / dtypeSize(labels.dtype);
  size_t rows = perSample * static_cast<size_t>(batch.count);
  if (output->bytes != rows * static_cast<size_t>(options.classes) * sizeof(float)) {
    metrics.reset(); // a class per pixel: only the loss
    return Status::success();
  }
  converted.resize(rows);
  const void *data = batch.data[labelsIndex];
  if (labels.dtype == DType::i64)
    convert<int64_t>(data, rows, converted);
  else if (labels.dtype == DType::i32)
    convert<int32_t>(data, rows, converted);
  else if (labels.dtype == DType::f32)
    convert<float>(data, rows, converted);
  else
    return Status::success();
  if (!metrics->add(reinterpret_cast<const float *>(output->data), converted.data(),
                    static_cast<int64_t>(rows)))
    return Status::refused("a label of input '" + labels.name + "' lies outside the " +
                           std::to_string(options.classes) + " classes");
  return Status::success();
}

Json EvalMetrics::finish(const EvalReport &report) {
  Json out = {
      {"updates", report.updates}, {"loss", report.loss}, {"count", report.samples}};
  if (metrics && metrics->count() > 0) {
    out["accuracy"] = metrics->accuracy();
    if (metrics->classes() > 5)
      out["top5_accuracy"] = metrics->topKAccuracy();
    if (auto auc = metrics->auc())
      out["auc"] = *auc;
    if (auto precision = metrics->precision())
      out["precision"] = *precision;
    if (auto recall = metrics->recall())
      out["recall"] = *recall;
    out["perplexity"] = std::exp(report.loss);
    int64_t classes = metrics->classes();
    if (!metrics->confusion().empty() && classes <= 64) {
      Json rows = Json::array();
      for (int64_t i = 0; i < classes; ++i)
        rows.push_back(
            std::vector<int64_t>(metrics->confusion().begin() + i * classes,
                                 metrics->confusion().begin() + (i + 1) * classes));
      out["confusion"] = rows;
    }
    metrics.emplace(options);
  }
  return out;
}

std::string EvalMetrics::text(const Json &figures) {
  std::string text;
  for (const char *name :
       {"loss", "accuracy", "top5_accuracy", "auc", "precision", "recall", "perplexity"})
    if (figures.contains(name)) {
      char number[64];
      std::snprintf(number, sizeof number, "%s%s %.4f", text.empty() ? "" : ", ", name,
                    figures[name].get<double>());
      text += number;
    }
  return text + " on " + std::to_string(figures["count"].get<int64_t>()) + " samples";
}

} // namespace sluice::cli
