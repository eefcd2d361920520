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

void addMetricOption(CLI::App *app, std::vector<std::string> &texts) {
  app->add_option("--metric", texts,
                  "figures beside the usual ones: top_k=3, recall_at_precision=0.9, "
                  "recall_at_fpr=0.01");
}

Result<ExtraMetrics> parseMetrics(const std::vector<std::string> &texts) {
  ExtraMetrics extra;
  for (const std::string &text : texts) {
    size_t equals = text.find('=');
    std::string name = text.substr(0, equals);
    char *end = nullptr;
    double value =
        equals == std::string::npos ? -1 : std::strtod(text.c_str() + equals + 1, &end);
    bool isNumber = end && end != text.c_str() + equals + 1 && *end == '\0';
    bool isShare = isNumber && value >= 0 && value <= 1;
    if (name == "top_k" && isNumber && value >= 1 && value <= 1e6 &&
        value == std::floor(value))
      extra.topK = static_cast<int64_t>(value);
    else if (name == "recall_at_precision" && isShare)
      extra.precisions.push_back(value);
    else if (name == "recall_at_fpr" && isShare)
      extra.falsePositiveRates.push_back(value);
    else
      return Status::usage("--metric '" + text +
                           "': expected top_k=K, recall_at_precision=SHARE or "
                           "recall_at_fpr=SHARE, with shares from 0 to 1");
  }
  return extra;
}

Result<EvalMetrics> EvalMetrics::create(const Plan &plan, const ExtraMetrics &extra) {
  EvalMetrics made;
  made.extra = extra;
  made.options.topK = extra.topK.value_or(made.options.topK);
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
  bool asksForRecall = !extra.precisions.empty() || !extra.falsePositiveRates.empty();
  if (!made.metrics && (asksForRecall || extra.topK))
    return Status::usage("--metric needs a loss over classes; the plan's is '" +
                         std::string(kind) + "'");
  if (asksForRecall && made.metrics->classes() != 2)
    return Status::usage("--metric recall_at_... needs two classes; the plan has " +
                         std::to_string(made.metrics->classes()));
  return made;
}

Status EvalMetrics::add(const Session &session, const Batch &batch) {
  if (!metrics)
    return Status::success();
  auto output = session.output(logits);
  if (!output)
    return output.status();
  if (batch.bucket != bucket) {
    bucket = batch.bucket;
    labels = session.plan().inputs("eval", bucket)[labelsIndex];
  }
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

/// "recall_at_fpr_0.01"
static std::string named(const char *name, double share) {
  char text[80];
  std::snprintf(text, sizeof text, "%s_%g", name, share);
  return text;
}

void EvalMetrics::addTwoClassFigures(Json &out) const {
  for (double share : extra.precisions)
    if (auto recall = metrics->recallAtPrecision(share))
      out[named("recall_at_precision", share)] = *recall;
  for (double share : extra.falsePositiveRates)
    if (auto recall = metrics->recallAtFalsePositiveRate(share))
      out[named("recall_at_fpr", share)] = *recall;
}

Json EvalMetrics::finish(const EvalReport &report) {
  Json out = {
      {"updates", report.updates}, {"loss", report.loss}, {"count", report.samples}};
  if (report.skipped > 0)
    out["skipped"] = report.skipped;
  if (metrics && metrics->count() > 0) {
    out["accuracy"] = metrics->accuracy();
    if (extra.topK || metrics->classes() > options.topK)
      out["top" + std::to_string(options.topK) + "_accuracy"] = metrics->topKAccuracy();
    if (auto auc = metrics->auc())
      out["auc"] = *auc;
    if (auto precision = metrics->precision())
      out["precision"] = *precision;
    if (auto recall = metrics->recall())
      out["recall"] = *recall;
    addTwoClassFigures(out);
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
  for (const auto &[name, value] : figures.items())
    if (value.is_number_float()) {
      char number[96];
      std::snprintf(number, sizeof number, "%s%s %.4f", text.empty() ? "" : ", ",
                    name.c_str(), value.get<double>());
      text += number;
    }
  text += " on " + std::to_string(figures["count"].get<int64_t>()) + " samples";
  if (figures.contains("skipped"))
    text += ", " + std::to_string(figures["skipped"].get<int64_t>()) +
            " at the end left out: the model's own loss needs full batches";
  return text;
}

Status EvalMetrics::checkName(const std::string &name) const {
  std::vector<std::string> known{"loss"};
  if (metrics) {
    known.push_back("accuracy");
    if (extra.topK || metrics->classes() > options.topK)
      known.push_back("top" + std::to_string(options.topK) + "_accuracy");
    if (metrics->classes() == 2)
      known.push_back("auc");
    if (metrics->classes() <= maxConfusionClasses)
      known.insert(known.end(), {"precision", "recall"});
    for (double share : extra.precisions)
      known.push_back(named("recall_at_precision", share));
    for (double share : extra.falsePositiveRates)
      known.push_back(named("recall_at_fpr", share));
    known.push_back("perplexity");
  }
  std::string list;
  for (const std::string &one : known) {
    if (one == name)
      return Status::success();
    list += (list.empty() ? "'" : ", '") + one + "'";
  }
  return Status::usage("the evaluation has no figure '" + name + "', expected one of " +
                       list);
}

Result<double> EvalMetrics::figure(const Json &figures, const std::string &name) {
  std::string known;
  for (const auto &[key, value] : figures.items()) {
    if (!value.is_number_float())
      continue;
    if (key == name)
      return value.get<double>();
    known += (known.empty() ? "'" : ", '") + key + "'";
  }
  return Status::usage("the evaluation has no figure '" + name + "', expected one of " +
                       known);
}

} // namespace sluice::cli
