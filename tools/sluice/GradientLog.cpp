#include "tools/sluice/GradientLog.h"

#include "tools/sluice/UpdateGroupNames.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace sluice::cli {

double GradientLayer::rms() const {
  return elements > 0 ? std::sqrt(squares / elements) : 0;
}

double GradientLayer::factor() const {
  return squares > 0 ? std::sqrt(clipped / squares) : 1;
}

double GradientFigures::dispersion() const {
  double least = INFINITY, most = 0;
  for (const GradientLayer &layer : layers)
    if (layer.squares > 0) {
      least = std::min(least, layer.rms());
      most = std::max(most, layer.rms());
    }
  return most > 0 ? most / least : 1;
}

namespace {

constexpr std::string_view squaresPrefix = "grad_squares/";

std::string layerOf(const std::string &parameter) {
  size_t dot = parameter.find_last_of("./");
  return dot == std::string::npos ? parameter : parameter.substr(0, dot);
}

double elementsOf(const Plan &plan, const std::string &parameter) {
  const fbs::StateTensor *tensor = plan.state("param/" + parameter);
  if (!tensor)
    return 0;
  const auto *shape =
      sizeOf(tensor->value_shape()) ? tensor->value_shape() : tensor->shape();
  double elements = 1;
  for (uint32_t i = 0; i < sizeOf(shape); ++i)
    elements *= static_cast<double>(shape->Get(i));
  return elements;
}

double valueOf(const Session &session, const std::string &name, double otherwise) {
  auto view = session.output(name);
  if (!view)
    return otherwise;
  double wide = 0;
  float narrow = 0;
  if (view->bytes == sizeof wide) {
    std::memcpy(&wide, view->data, sizeof wide);
    return wide;
  }
  std::memcpy(&narrow, view->data, sizeof narrow);
  return static_cast<double>(narrow);
}

void addTo(GradientLayer &layer, double elements, double squares, double factor) {
  layer.elements += elements;
  layer.squares += squares;
  layer.clipped += squares * factor * factor;
}

/// The group each parameter is updated or optimized in.
std::map<std::string, std::string> groupsOf(const Plan &plan) {
  std::map<std::string, std::string> groups;
  for (const auto *group : *plan.raw().groups())
    for (uint32_t i = 0; i < sizeOf(group->members()); ++i) {
      std::string_view member = viewOf(group->members()->Get(i));
      if (member.starts_with("param/"))
        groups[std::string(member.substr(6))] = std::string(viewOf(group->name()));
    }
  for (auto &[parameter, group] : updateGroupsOf(plan.raw()))
    groups[parameter] = group;
  return groups;
}

} // namespace

GradientFigures gradientFigures(const Session &session) {
  GradientFigures figures;
  const fbs::Program *program = session.lastRun();
  if (!program)
    return figures;
  std::map<std::string, std::string> groups = groupsOf(session.plan());
  std::map<std::string, size_t> layers;
  double ofAll = valueOf(session, "clip_factor", 1);
  for (uint32_t i = 0; i < sizeOf(program->outputs()); ++i) {
    std::string_view port = viewOf(program->outputs()->Get(i)->name());
    if (!port.starts_with(squaresPrefix))
      continue;
    std::string name(port.substr(squaresPrefix.size())), group = groups[name];
    double squares = valueOf(session, std::string(port), 0);
    double factor = ofAll * valueOf(session, "group_factor/" + group, 1) *
                    valueOf(session, "tensor_factor/" + name, 1);
    auto [found, isNew] = layers.try_emplace(layerOf(name), figures.layers.size());
    if (isNew)
      figures.layers.push_back({layerOf(name)});
    double elements = elementsOf(session.plan(), name);
    addTo(figures.layers[found->second], elements, squares, factor);
    addTo(figures.groups[group], elements, squares, factor);
    addTo(figures.all, elements, squares, factor);
  }
  return figures;
}

void GradientHistory::add(const GradientFigures &figures) {
  if (!std::isfinite(figures.all.squares))
    return;
  ++updates;
  clippedUpdates += figures.all.factor() < 1;
  normSum += std::sqrt(figures.all.squares);
  factorSum += figures.all.factor();
  dispersionSum += figures.dispersion();
  for (const GradientLayer &layer : figures.layers) {
    auto found = std::find_if(layers.begin(), layers.end(),
                              [&](const Layer &l) { return l.name == layer.name; });
    if (found == layers.end())
      found = layers.insert(layers.end(), {layer.name});
    found->factorSum += layer.factor();
    ++found->updates;
    if (double rms = layer.rms(); rms > 0) {
      found->least = found->seen ? std::min(found->least, rms) : rms;
      found->most = found->seen ? std::max(found->most, rms) : rms;
      found->logSum += std::log10(rms);
      ++found->seen;
    }
  }
}

Json GradientHistory::summary() const {
  double count = static_cast<double>(std::max<int64_t>(1, updates));
  Json out;
  out["updates"] = updates;
  out["norm_mean"] = normSum / count;
  out["clipped_share"] = static_cast<double>(clippedUpdates) / count;
  out["rate_factor_mean"] = factorSum / count;
  out["dispersion_mean"] = dispersionSum / count;
  Json &list = out["layers"] = Json::array();
  for (const Layer &layer : layers)
    list.push_back(
        {{"layer", layer.name},
         {"rms_least", layer.least},
         {"rms", layer.seen ? std::pow(10, layer.logSum / double(layer.seen)) : 0},
         {"rms_most", layer.most},
         {"rate_factor", layer.factorSum / double(layer.updates)}});
  return out;
}

Status GradientLog::open(const std::vector<std::string> &wanted, const Plan &plan) {
  if (wanted.empty())
    return Status::success();
  bool measures = false;
  for (const fbs::Program *program : *plan.raw().programs())
    for (uint32_t i = 0; i < sizeOf(program->outputs()); ++i)
      measures |= viewOf(program->outputs()->Get(i)->name()).starts_with(squaresPrefix);
  if (!measures)
    return Status::usage("--gradients: the plan measures no norms; compile it with "
                         "'gradient_norms: true' or a clip");
  title = std::string(viewOf(plan.raw().model_name()));
  for (const std::string &path : wanted) {
    if (!path.ends_with(".jsonl") && !path.ends_with(".svg"))
      return Status::usage("--gradients '" + path +
                           "': expected a name ending in .jsonl or .svg");
    if (path.ends_with(".svg"))
      continue;
    lines.open(path);
    if (!lines)
      return Status::refused("cannot write '" + path +
                             "': check that the folder exists and is writable");
  }
  paths = wanted;
  return Status::success();
}

static Json jsonOf(const GradientLayer &layer, double rate) {
  return {{"norm", std::sqrt(layer.squares)},
          {"rms", layer.rms()},
          {"factor", layer.factor()},
          {"effective_rate", rate * layer.factor()}};
}

void GradientLog::add(const TrainProgress &progress, const Session &session) {
  if (!isOn())
    return;
  GradientFigures figures = gradientFigures(session);
  history.add(figures);
  if (!lines.is_open())
    return;
  Json line;
  line["update"] = progress.updates;
  line["loss"] = progress.loss;
  line["rate"] = progress.rate;
  line["skipped"] = progress.skipped;
  line["outlier"] = progress.outlier;
  line["spike_factor"] = progress.spikeFactor;
  if (progress.fluctuation)
    line["fluctuation"] = *progress.fluctuation;
  line["grad_norm"] = std::sqrt(figures.all.squares);
  line["clip_factor"] = figures.all.factor();
  line["effective_rate"] = progress.rate * figures.all.factor();
  line["dispersion"] = figures.dispersion();
  for (const auto &[name, group] : figures.groups)
    line["groups"][name] = jsonOf(group, progress.rate);
  for (const GradientLayer &layer : figures.layers)
    line["layers"][layer.name] = jsonOf(layer, progress.rate);
  lines << line.dump() << '\n';
}

Status GradientLog::finish(Console &console) {
  if (!isOn())
    return Status::success();
  console.result["gradients"] = history.summary();
  for (const std::string &path : paths)
    if (path.ends_with(".svg"))
      if (Status status = writeWholeFile(path, history.svg(title)); !status.ok())
        return status;
  lines.flush();
  return lines.is_open() && !lines ? Status::refused("cannot write --gradients: the disk "
                                                     "may be full")
                                   : Status::success();
}

} // namespace sluice::cli
