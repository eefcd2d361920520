#include "tools/sluice/TensorStory.h"

#include "tools/sluice/Cli.h"
#include "tools/sluice/MemoryCertificate.h"

#include <algorithm>

namespace sluice::cli {
namespace {

std::string text(const flatbuffers::String *string) {
  return std::string(viewOf(string));
}

std::string bytesText(uint64_t bytes) { return std::to_string(bytes) + " bytes"; }

/// "relu.2_output_0" is what PyTorch calls the result of node "relu.2".
std::string withoutOutputNumber(const std::string &name) {
  size_t at = name.rfind("_output_");
  bool digits = at != std::string::npos && at + 8 < name.size() &&
                name.find_first_not_of("0123456789", at + 8) == std::string::npos;
  return digits ? name.substr(0, at) : name;
}

class Story {
public:
  Story(const Plan &plan, const PlanVariant &variant) : plan(plan) {
    for (uint32_t index : variant.programs) {
      const fbs::Program *program = plan.raw().programs()->Get(index);
      programs.push_back(program);
      if (sizeOf(program->tensors()) > 0)
        trains = program;
    }
    hasBudget = budgetOf(plan, variant) > 0;
    for (uint32_t i = 0; trains && i < sizeOf(trains->tensors()); ++i)
      trades |= trains->tensors()->Get(i)->runs() > 0;
    for (const fbs::Program *program : programs)
      trades |= sizeOf(program->copies()) > 0;
  }

  Reasons reasons;

  void addChoices() {
    for (uint32_t i = 0; trains && i < sizeOf(trains->tensors()); ++i) {
      const fbs::TensorFact &fact = *trains->tensors()->Get(i);
      switch (fact.choice()) {
      case fbs::Choice::kept:
      case fbs::Choice::marked:
      case fbs::Choice::fixed:
      case fbs::Choice::recomputed:
        addFact(fact);
        break;
      default:
        break;
      }
    }
    for (uint32_t i = 0; i < sizeOf(plan.raw().state()); ++i)
      if (isOnHost(*plan.raw().state()->Get(i)))
        addState(*plan.raw().state()->Get(i));
  }
  bool worthListing() const { return hasBudget || trades; }

  /// All that has the name, or with `part` all whose name contains it.
  void addNamed(const std::string &name, bool part) {
    auto matches = [&](std::string_view names) {
      return part ? names.find(name) != std::string_view::npos : hasName(names, name);
    };
    for (uint32_t i = 0; i < sizeOf(plan.raw().state()); ++i) {
      const fbs::StateTensor &tensor = *plan.raw().state()->Get(i);
      std::string own = text(tensor.name());
      if (part ? matches(own) : own == name || modelName(own) == name)
        addState(tensor);
    }
    std::string of; // the value that a fused or renamed one stands for
    for (uint32_t i = 0; trains && i < sizeOf(trains->tensors()); ++i)
      if (const fbs::TensorFact &fact = *trains->tensors()->Get(i);
          matches(viewOf(fact.name()))) {
        addFact(fact);
        of = text(fact.of());
      }
    if (!of.empty() && !part)
      addNamed(of, false);
    for (const fbs::Program *program : programs)
      for (uint32_t i = 0; i < sizeOf(program->buffers()); ++i)
        if (matches(viewOf(program->buffers()->Get(i)->name())))
          addBuffer(*program, *program->buffers()->Get(i));
  }

private:
  /// "opt/fc1.weight/m" -> "fc1.weight".
  static std::string modelName(const std::string &state) {
    size_t slash = state.find('/');
    if (slash == std::string::npos)
      return state;
    bool isMoment = state.starts_with("opt/");
    size_t end = isMoment ? state.rfind('/') : std::string::npos;
    return state.substr(slash + 1, end == std::string::npos ? end : end - slash - 1);
  }

  static bool isOnHost(const fbs::StateTensor &tensor) {
    return tensor.space() == fbs::Space::host_state;
  }

  /// Time of a step's copies that carry the name, both ways.
  double copyUs(std::string_view name) const {
    double us = 0;
    for (const fbs::Program *program : programs)
      for (uint32_t i = 0; isTraining(*program) && i < sizeOf(program->copies()); ++i)
        if (viewOf(program->copies()->Get(i)->name()) == name)
          us += program->copies()->Get(i)->predicted_us();
    return us;
  }

  void addState(const fbs::StateTensor &tensor) {
    std::string name = text(tensor.name());
    std::string why =
        std::string(fbs::EnumNameRole(tensor.role())) + " " + shapeText(tensor.shape()) +
        " " + fbs::EnumNameDType(tensor.dtype()) + ", " + bytesText(tensor.size()) +
        " at " + (isOnHost(tensor) ? "the host's " : "") + "state offset " +
        std::to_string(tensor.offset());
    switch (tensor.role()) {
    case fbs::Role::parameter:
      why += tensor.trainable() ? ", trained: kept, every step reads and updates it"
                                : ", frozen: no gradient, no moments";
      break;
    case fbs::Role::moment:
      why += ": kept between steps, each update reads and writes it; no run could "
             "compute it again";
      break;
    case fbs::Role::master:
      why += ": completes a parameter of 16 bits to the f32 that updates compute";
      break;
    case fbs::Role::accumulator:
      why += ": kept between micro-batches, which add to it";
      break;
    default:
      break;
    }
    if (double us = copyUs(name); us > 0)
      why += "; in the host's memory, copies take " + timeText(us) + " a step";
    reasons.push_back({name, why});
  }

  /// The buffers of a value: its first instance or those of its further runs.
  std::vector<const fbs::BufferInfo *> buffersOf(std::string_view name,
                                                 bool again) const {
    std::vector<const fbs::BufferInfo *> list;
    for (uint32_t i = 0; i < sizeOf(trains->buffers()); ++i) {
      const fbs::BufferInfo *buffer = trains->buffers()->Get(i);
      if ((buffer->run() > 0) == again && hasName(viewOf(buffer->name()), name) &&
          viewOf(buffer->category()) == "activations")
        list.push_back(buffer);
    }
    return list;
  }

  bool isOffloaded(std::string_view name) const {
    for (uint32_t i = 0; i < sizeOf(trains->buffers()); ++i)
      if (trains->buffers()->Get(i)->offloaded() &&
          hasName(viewOf(trains->buffers()->Get(i)->name()), name))
        return true;
    return false;
  }

  /// "2.1 us a run, 67.0 us for a MiB".
  static std::string priceText(double us, uint64_t bytes) {
    std::string price = timeText(us);
    if (bytes > 0)
      price += ", " + timeText(us * 0x1p20 / static_cast<double>(bytes)) + " for a MiB";
    return price;
  }

  std::string recomputedText(const fbs::TensorFact &fact) const {
    std::string why = "recomputed " + std::to_string(fact.runs()) +
                      (fact.runs() == 1 ? " time" : " times") +
                      " for the backward part: its " + bytesText(fact.bytes());
    auto first = buffersOf(viewOf(fact.name()), false),
         later = buffersOf(viewOf(fact.name()), true);
    if (first.size() == 1 && !later.empty() && later[0]->first() > first[0]->last())
      why += " are free between launch " + std::to_string(first[0]->last()) + " and " +
             std::to_string(later[0]->first());
    else
      why += " are free until then";
    return why + "; a run more takes " + priceText(fact.again_us(), fact.bytes());
  }

  std::string keptText(const fbs::TensorFact &fact) const {
    std::string why = "kept until the backward part reads it: " + bytesText(fact.bytes());
    if (fact.choice() == fbs::Choice::fixed)
      return why + "; what computes it also writes state and cannot run again";
    why += "; a run more would take " + priceText(fact.again_us(), fact.bytes());
    if (fact.choice() == fbs::Choice::marked)
      return why + "; 'memory.keep' names it";
    if (!worthListing())
      return why + "; no budget asks for less";
    return why + (hasBudget && trades ? "; others are cheaper to do without"
                  : hasBudget         ? "; the budget has room for it"
                                      : "; the policy keeps it");
  }

  void addFact(const fbs::TensorFact &fact) {
    std::string name = text(fact.name()), why;
    if (isOffloaded(name))
      why = "offloaded to the host's memory until the backward part reads it: " +
            bytesText(fact.bytes()) + ", the copies take " +
            priceText(copyUs(name), fact.bytes());
    else if (fact.choice() == fbs::Choice::recomputed)
      why = recomputedText(fact);
    else if (fact.choice() == fbs::Choice::passing)
      why = "not kept: only the forward part reads it, and its " +
            bytesText(fact.bytes()) + " are free after that";
    else if (fact.choice() == fbs::Choice::fused)
      why = "never stored: computed inside the kernel of '" + text(fact.of()) + "'" +
            (fact.runs() > 0 ? ", each time that runs" : "");
    else if (fact.choice() == fbs::Choice::renamed)
      why = "the bytes of '" + text(fact.of()) + "' under another name";
    else if (fact.choice() == fbs::Choice::backward)
      why = "of the backward part: its " + bytesText(fact.bytes()) +
            " are live from the launch that computes it to the last that reads it; "
            "computed once, in " +
            timeText(fact.again_us());
    else
      why = keptText(fact);
    reasons.push_back({name, why});
  }

  void addBuffer(const fbs::Program &program, const fbs::BufferInfo &buffer) {
    auto [first, last] = launchesOf(buffer, program);
    bool isGradient = viewOf(buffer.category()) == "gradients";
    std::string why = text(program.name()) + ": " +
                      (isGradient ? "gradient" : text(buffer.category())) +
                      (buffer.run() > 0 ? ", run again" : "") +
                      (buffer.offloaded() ? ", partly in the host's memory" : "") + ", " +
                      bytesText(buffer.size()) + " at " +
                      (buffer.space() == fbs::Space::host_step ? "the host's offset "
                                                               : "step offset ") +
                      std::to_string(buffer.offset()) + ", live from launch " +
                      std::to_string(first) + " to " + std::to_string(last);
    if (isGradient)
      why += isClipped(program) ? ": kept until the norm of all gradients is known and "
                                  "the update has read it"
                                : ": computed once, kept until the update has read it";
    reasons.push_back({text(buffer.name()), why});
  }

  static bool isTraining(const fbs::Program &program) {
    return viewOf(program.name()) != "eval" && viewOf(program.name()) != "infer";
  }

  static bool isClipped(const fbs::Program &program) {
    for (uint32_t i = 0; i < sizeOf(program.outputs()); ++i)
      if (viewOf(program.outputs()->Get(i)->name()) == "grad_norm")
        return true;
    return false;
  }

  const Plan &plan;
  std::vector<const fbs::Program *> programs;
  const fbs::Program *trains = nullptr; // null where nothing does
  bool hasBudget = false, trades = false;
};

} // namespace

Reasons memoryChoices(const Plan &plan, const PlanVariant &variant) {
  Story story(plan, variant);
  if (story.worthListing())
    story.addChoices();
  return story.reasons;
}

Reasons tensorStory(const Plan &plan, const PlanVariant &variant,
                    const std::string &wanted) {
  std::vector<std::string> names{wanted, withoutOutputNumber(wanted)};
  for (uint32_t i = 0; i < sizeOf(plan.raw().aliases()); ++i)
    if (viewOf(plan.raw().aliases()->Get(i)->key()) == wanted)
      names.push_back(text(plan.raw().aliases()->Get(i)->value()));
  for (const std::string &name : names) {
    Story story(plan, variant);
    story.addNamed(name, false);
    if (!story.reasons.empty())
      return story.reasons;
  }
  Story story(plan, variant);
  story.addNamed(wanted, true);
  return story.reasons;
}

} // namespace sluice::cli
