#include "runtime/probe/DrawnLabels.h"

#include "runtime/probe/Signs.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace sluice {

Result<DrawnLabels> DrawnLabels::create(const Plan &plan, uint64_t seed, bool all) {
  DrawnLabels made;
  made.seed = seed;
  made.all = all;
  made.logits = viewOf(plan.raw().logits_output());
  made.labelsName = viewOf(plan.raw().labels_input());
  std::string_view kind = viewOf(plan.raw().loss_kind());
  if (kind != "cross_entropy" && kind != "nll")
    return Status::refused("labels can be drawn where the loss is 'cross_entropy' or "
                           "'nll', the plan's is '" +
                           std::string(kind) + "'");
  const fbs::Program *program = plan.program("probe");
  for (uint32_t i = 0; i < sizeOf(program->inputs()); ++i) {
    const fbs::Port &port = *program->inputs()->Get(i);
    if (viewOf(port.name()) != made.labelsName)
      continue;
    made.labelsIndex = i;
    made.type = static_cast<DType>(port.dtype());
    made.hasIgnored = port.has_ignored();
    made.ignored = port.ignored();
    made.classes = port.bounded() ? port.upper() + 1 : 0;
  }
  bool isInteger = made.type == DType::i64 || made.type == DType::i32;
  if (made.classes < 2 || !isInteger)
    return Status::refused("the input '" + made.labelsName +
                           "' holds no numbers of classes to draw");
  return made;
}

int64_t DrawnLabels::labelAt(const void *data, size_t row) const {
  if (type == DType::i32) {
    int32_t value;
    std::memcpy(&value, static_cast<const char *>(data) + row * sizeof value,
                sizeof value);
    return value;
  }
  int64_t value;
  std::memcpy(&value, static_cast<const char *>(data) + row * sizeof value, sizeof value);
  return value;
}

void DrawnLabels::store(size_t row, int64_t value) {
  auto narrow = static_cast<int32_t>(value);
  size_t size = dtypeSize(type);
  std::memcpy(labels.data() + row * size,
              size == 4 ? static_cast<const void *>(&narrow) : &value, size);
}

Status DrawnLabels::resize(const Session &session, const Batch &batch) {
  InputSpec input = session.plan().inputs("probe", batch.bucket)[labelsIndex];
  size_t rows = input.sampleBytes() / dtypeSize(type);
  if (!batch.shapes.empty())
    return Status::refused("labels cannot be drawn for samples that are filled up");
  if (all && rows != 1)
    return Status::refused("each sample has " + std::to_string(rows) +
                           " labels: the Fisher over all classes needs one; take "
                           "sampled labels");
  auto output = session.output(logits);
  auto shape = session.outputShape(logits);
  if (!output || !shape)
    return Status::refused("the program 'probe' gives no logits '" + logits + "'");
  bool isLast = !shape->empty() && shape->back() == classes &&
                output->port->dtype() == fbs::DType::f32 &&
                output->bytes == rows * static_cast<size_t>(classes) * sizeof(float);
  if (!isLast)
    return Status::refused("the logits '" + logits +
                           "' have no rows of classes in their last dimension, so that "
                           "labels cannot be drawn");
  labels.resize(rows * dtypeSize(type));
  counts.assign(rows, true);
  probabilities.resize(rows * static_cast<size_t>(classes));
  return Status::success();
}

int64_t DrawnLabels::drawn(size_t row, int64_t sample) const {
  double u = uniformOf(seed, static_cast<uint64_t>(sample), row);
  const double *p = probabilities.data() + row * static_cast<size_t>(classes);
  for (int64_t c = 0; c + 1 < classes; ++c) {
    if (u < p[c])
      return c;
    u -= p[c];
  }
  return classes - 1;
}

Status DrawnLabels::read(const Session &session, const Batch &batch, int64_t sample) {
  if (Status status = resize(session, batch); !status.ok())
    return status;
  const float *z = reinterpret_cast<const float *>(session.output(logits)->data);
  const void *given = batch.data[labelsIndex];
  std::memcpy(labels.data(), given, labels.size());
  for (size_t row = 0; row < counts.size(); ++row) {
    size_t first = row * static_cast<size_t>(classes);
    double largest = *std::max_element(z + first, z + first + classes), sum = 0;
    for (int64_t c = 0; c < classes; ++c)
      sum += probabilities[first + c] = std::exp(z[first + c] - largest);
    for (int64_t c = 0; c < classes; ++c)
      probabilities[first + c] /= sum;
    counts[row] = !hasIgnored || labelAt(given, row) != ignored;
    if (counts[row] && !all)
      store(row, drawn(row, sample));
  }
  changed = batch;
  changed.data[labelsIndex] = labels.data();
  return Status::success();
}

const Batch &DrawnLabels::batchOf(int64_t draw, double &weight) {
  weight = 1;
  if (!all)
    return changed;
  if (counts[0]) {
    store(0, draw);
    weight = probabilities[static_cast<size_t>(draw)];
  } else {
    weight = 0;
  }
  return changed;
}

} // namespace sluice
