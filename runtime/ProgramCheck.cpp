// Checks of programs: ports, launches, operands.

#include "runtime/Crop.h"
#include "runtime/PlanCheck.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

namespace sluice {

namespace {

constexpr int64_t maxUnits = int64_t(1) << 48;
constexpr uint32_t maxStages = 1024;
constexpr uint32_t maxOperands = 4096;
constexpr uint32_t maxParams = 65536;

struct ProgramChecker {
  const fbs::Plan &plan;
  const fbs::Program &program;
  VisitBudget &budget;

  Status broken(const std::string &text) const {
    return Status::damaged("plan refused: program '" +
                           std::string(viewOf(program.name())) + "': " + text);
  }

  uint64_t reservation(fbs::Space space) const {
    return space == fbs::Space::state ? plan.state_bytes() : program.step_bytes();
  }

  Status checkPort(const fbs::Port &port, bool isInput) const;
  Status checkPorts(const flatbuffers::Vector<flatbuffers::Offset<fbs::Port>> *ports,
                    bool areInputs) const;
  Status checkInputsApart() const;
  Status checkOperand(const fbs::Operand &operand, const fbs::Launch &launch,
                      const std::string &where) const;
  Status checkStage(const fbs::Stage &stage, const fbs::Launch &launch,
                    const std::string &where) const;
  Status checkParts(const fbs::Launch &launch, const std::string &where) const;
  Status checkLaunches() const;
  Status checkBuffers() const;
  Status check() const;
};

Status ProgramChecker::checkPort(const fbs::Port &port, bool isInput) const {
  std::string name = std::string(isInput ? "input '" : "output '") +
                     std::string(viewOf(port.name()).substr(0, 200)) + "'";
  if (!budget.take(sizeOf(port.shape())) || !isAligned(port.shape()))
    return broken(name + " is shared or unaligned");
  if (viewOf(port.name()).empty() || port.dtype() < fbs::DType::MIN ||
      port.dtype() > fbs::DType::MAX)
    return broken(name + " has no name or an unknown element type");
  DType type = static_cast<DType>(port.dtype());
  std::optional<uint64_t> bytes = tensorBytes(type, port.shape());
  if (!bytes || *bytes != port.size())
    return broken(name + " has " + std::to_string(port.size()) +
                  " bytes, which is not its shape");
  if (port.space() != fbs::Space::step && (isInput || port.space() != fbs::Space::state))
    return broken(name + " lies in a space it may not be in");
  if (port.offset() % dtypeSize(type) != 0 ||
      !liesInside(port.offset(), port.size(), reservation(port.space())))
    return broken(name + " lies outside its reservation or is unaligned");
  if (port.bounded() && (isFloat(type) || port.lower() > port.upper()))
    return broken(name + " has impossible bounds");
  if (port.fills() && !isFloat(type) && !(std::abs(port.fill()) <= 0x1p53))
    return broken(name + " is filled up with no integer");
  if (isInput)
    return Status::success();
  if (!budget.take(3 * sizeOf(port.crops())))
    return broken(name + " is shared");
  for (uint32_t i = 0; i < sizeOf(port.crops()); ++i)
    if (const auto *steps = port.crops()->Get(i)->steps();
        !budget.take(sizeOf(steps)) || !isAligned(steps))
      return broken(name + " is shared or unaligned");
  if (std::string wrong = checkCrops(program, port); !wrong.empty())
    return broken(name + " " + wrong);
  return Status::success();
}

Status ProgramChecker::checkPorts(
    const flatbuffers::Vector<flatbuffers::Offset<fbs::Port>> *ports,
    bool areInputs) const {
  std::unordered_set<std::string_view> names;
  if (!budget.take(sizeOf(ports)))
    return broken("its parts are shared");
  for (uint32_t i = 0; i < sizeOf(ports); ++i) {
    const fbs::Port *port = ports->Get(i);
    if (Status status = checkPort(*port, areInputs); !status.ok())
      return status;
    if (!names.insert(viewOf(port->name())).second)
      return broken("two ports are named '" +
                    std::string(viewOf(port->name()).substr(0, 200)) + "'");
  }
  return Status::success();
}

Status ProgramChecker::checkInputsApart() const {
  std::vector<const fbs::Port *> byOffset;
  for (uint32_t i = 0; i < sizeOf(program.inputs()); ++i)
    if (program.inputs()->Get(i)->size() > 0)
      byOffset.push_back(program.inputs()->Get(i));
  std::sort(byOffset.begin(), byOffset.end(),
            [](auto *a, auto *b) { return a->offset() < b->offset(); });
  for (size_t i = 1; i < byOffset.size(); ++i)
    if (byOffset[i - 1]->offset() + byOffset[i - 1]->size() > byOffset[i]->offset())
      return broken("the inputs '" + std::string(viewOf(byOffset[i - 1]->name())) +
                    "' and '" + std::string(viewOf(byOffset[i]->name())) + "' overlap");
  return Status::success();
}

Status ProgramChecker::checkOperand(const fbs::Operand &operand,
                                    const fbs::Launch &launch,
                                    const std::string &where) const {
  if (operand.space() < fbs::Space::MIN || operand.space() > fbs::Space::step ||
      !liesInside(operand.offset(), operand.size(), reservation(operand.space())))
    return broken(where + " lies outside its reservation");
  uint64_t threads = static_cast<uint64_t>(plan.threads());
  uint64_t allWorkers = 0;
  if (__builtin_mul_overflow(operand.worker_stride(), threads, &allWorkers) ||
      allWorkers > operand.size())
    return broken(where + " has no room for the slices of " + std::to_string(threads) +
                  " workers");
  if (operand.unit_stride() == 0)
    return Status::success();
  // A value of one chunk: unit b is stored at the begin of the worker's slice.
  uint64_t slice = operand.worker_stride() ? operand.worker_stride() : operand.size();
  uint64_t units = static_cast<uint64_t>(std::min(launch.chunk(), launch.units()));
  uint64_t chunkBytes = 0;
  if (__builtin_mul_overflow(operand.unit_stride(), units, &chunkBytes) ||
      chunkBytes > slice)
    return broken(where + " has no room for the units of one chunk");
  if (operand.worker_stride() == 0 && threads > 1 && launch.units() > launch.chunk())
    return broken(where + " is shared by workers that would overwrite each other");
  return Status::success();
}

Status ProgramChecker::checkStage(const fbs::Stage &stage, const fbs::Launch &launch,
                                  const std::string &where) const {
  if (stage.kernel() >= sizeOf(plan.kernels()))
    return broken(where + " names kernel " + std::to_string(stage.kernel()) + " of " +
                  std::to_string(sizeOf(plan.kernels())));
  if (sizeOf(stage.operands()) > maxOperands || sizeOf(stage.params()) > maxParams)
    return broken(where + " has too many operands or parameters");
  if (!budget.take(sizeOf(stage.operands())) || !budget.take(sizeOf(stage.params())) ||
      !isAligned(stage.operands()) || !isAligned(stage.params()))
    return broken(where + " is shared or unaligned");
  int64_t units = 0;
  if (stage.unit_scale() < 1 ||
      __builtin_mul_overflow(launch.units(), stage.unit_scale(), &units) ||
      units > maxUnits)
    return broken(where + " has an impossible unit scale");
  for (uint32_t i = 0; i < sizeOf(stage.operands()); ++i) {
    Status status = checkOperand(*stage.operands()->Get(i), launch,
                                 where + ", operand " + std::to_string(i));
    if (!status.ok())
      return status;
  }
  return Status::success();
}

/// Parts are all units of the launch, one stage behind the other.
Status ProgramChecker::checkParts(const fbs::Launch &launch,
                                  const std::string &where) const {
  bool hasParts = launch.stages()->Get(0)->units() != 0;
  int64_t next = 0; // unit that no part has yet
  for (uint32_t s = 0; s < sizeOf(launch.stages()); ++s) {
    const fbs::Stage &stage = *launch.stages()->Get(s);
    bool fits = hasParts ? stage.first_unit() == next && stage.units() > 0 &&
                               stage.units() <= launch.units() - next
                         : stage.first_unit() == 0 && stage.units() == 0;
    if (!fits)
      return broken(where + ", stage " + std::to_string(s) +
                    " is no part that begins with unit " + std::to_string(next));
    next += stage.units();
  }
  if (hasParts && next != launch.units())
    return broken(where + " has units without a part");
  return Status::success();
}

Status ProgramChecker::checkLaunches() const {
  if (!budget.take(sizeOf(program.launches())))
    return broken("its parts are shared");
  for (uint32_t i = 0; i < sizeOf(program.launches()); ++i) {
    const fbs::Launch *launch = program.launches()->Get(i);
    std::string where = "launch " + std::to_string(i);
    if (launch->units() < 0 || launch->units() > maxUnits || launch->chunk() < 1)
      return broken(where + " has an impossible number of units");
    uint32_t stages = sizeOf(launch->stages());
    if (stages < 1 || stages > maxStages || !budget.take(stages))
      return broken(where + " has an impossible number of stages");
    if (Status status = checkParts(*launch, where); !status.ok())
      return status;
    for (uint32_t s = 0; s < stages; ++s) {
      Status status = checkStage(*launch->stages()->Get(s), *launch,
                                 where + ", stage " + std::to_string(s));
      if (!status.ok())
        return status;
    }
  }
  return Status::success();
}

Status ProgramChecker::checkBuffers() const {
  int64_t launches = sizeOf(program.launches());
  if (!budget.take(sizeOf(program.buffers())))
    return broken("its parts are shared");
  for (uint32_t i = 0; i < sizeOf(program.buffers()); ++i) {
    const fbs::BufferInfo *buffer = program.buffers()->Get(i);
    bool onHost = buffer->space() == fbs::Space::host_step;
    if (buffer->space() != fbs::Space::step && !onHost)
      return broken("buffer " + std::to_string(i) + " lies in a space it may not be in");
    int64_t count = onHost ? sizeOf(program.copies()) : launches; // its life counts them
    if (!liesInside(buffer->offset(), buffer->size(),
                    onHost ? program.host_bytes() : program.step_bytes()) ||
        buffer->first() < -1 || buffer->last() < buffer->first() ||
        buffer->last() > count)
      return broken("buffer " + std::to_string(i) +
                    " lies outside the reservation or lives at impossible times");
  }
  return Status::success();
}

Status ProgramChecker::check() const {
  if (program.step_bytes() > plan.step_bytes())
    return broken("needs " + std::to_string(program.step_bytes()) +
                  " bytes of a step reservation of " + std::to_string(plan.step_bytes()));
  if (program.host_bytes() > plan.host_step_bytes())
    return broken("needs " + std::to_string(program.host_bytes()) +
                  " bytes of a host step reservation of " +
                  std::to_string(plan.host_step_bytes()));
  Status status = checkPorts(program.inputs(), true);
  if (status.ok())
    status = checkPorts(program.outputs(), false);
  if (status.ok())
    status = checkInputsApart();
  if (status.ok())
    status = checkLaunches();
  if (status.ok())
    status = checkCollectives(plan, program, budget);
  if (status.ok())
    status = checkCopies(plan, program, budget);
  if (status.ok())
    status = checkBuffers();
  return status;
}

Status checkLossOutputs(const fbs::Program &program) {
  for (std::string_view wanted : {"loss_sum", "loss_count"}) {
    bool found = false;
    for (uint32_t i = 0; i < sizeOf(program.outputs()); ++i) {
      const fbs::Port *port = program.outputs()->Get(i);
      found |= viewOf(port->name()) == wanted && port->dtype() == fbs::DType::f32 &&
               port->size() == 4;
    }
    if (!found)
      return Status::damaged(
          "plan refused: program '" + std::string(viewOf(program.name())) +
          "' lacks the f32 scalar output '" + std::string(wanted) + "'");
  }
  return Status::success();
}

} // namespace

Status checkPrograms(const fbs::Plan &plan, VisitBudget &budget) {
  constexpr std::string_view known[] = {"step", "micro", "close_rank", "update",
                                        "eval", "infer", "probe",      "fisher"};
  if (!budget.take(sizeOf(plan.programs())))
    return Status::damaged("plan refused: its parts are shared");
  for (uint32_t i = 0; i < sizeOf(plan.programs()); ++i) {
    const fbs::Program *program = plan.programs()->Get(i);
    std::string_view name = viewOf(program->name());
    bool isTurn = plan.update_every() > 1 && name.starts_with("update.");
    if (!isTurn && std::find(std::begin(known), std::end(known), name) == std::end(known))
      return Status::damaged("plan refused: program '" + std::string(name.substr(0, 64)) +
                             "' is unknown");
    Status status = ProgramChecker{plan, *program, budget}.check();
    if (status.ok() && (name == "step" || name == "micro" || name == "eval" ||
                        name == "probe" || name == "fisher"))
      status = checkLossOutputs(*program);
    if (!status.ok())
      return status;
  }
  return Status::success();
}

} // namespace sluice
