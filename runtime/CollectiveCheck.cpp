// Checks of the collectives of programs.

#include "runtime/PlanCheck.h"

namespace sluice {

namespace {

/// Rows are whole elements, and every rank has some.
Status checkRows(const fbs::Plan &plan, const fbs::CollectivePart &part,
                 uint64_t elementBytes, const std::string &where) {
  constexpr int64_t mostRows = int64_t(1) << 48;
  uint64_t rows = static_cast<uint64_t>(part.rows());
  if (part.rows() < plan.ranks() || part.rows() > mostRows || part.size() == 0 ||
      part.size() % rows != 0 || part.size() / rows % elementBytes != 0)
    return Status::damaged(where + " deals out " + std::to_string(part.size()) +
                           " bytes in " + std::to_string(part.rows()) + " rows over " +
                           std::to_string(plan.ranks()) + " ranks");
  return Status::success();
}

Status checkPart(const fbs::Plan &plan, const fbs::Program &program,
                 const fbs::CollectivePart &part, fbs::CollectiveKind kind,
                 uint64_t elementBytes, const std::string &where) {
  bool deals = kind != fbs::CollectiveKind::all_reduce;
  if (deals)
    if (Status status = checkRows(plan, part, elementBytes, where); !status.ok())
      return status;
  if (!deals && part.rows() != 0)
    return Status::damaged(where + " has rows, but is a sum of all");
  uint64_t own = part.size(); // of a rank
  if (deals)
    own = part.size() / static_cast<uint64_t>(part.rows()) *
          static_cast<uint64_t>((part.rows() + plan.ranks() - 1) / plan.ranks());
  auto lies = [&](fbs::Space space, uint64_t offset, uint64_t size) {
    if (space != fbs::Space::state && space != fbs::Space::step)
      return false;
    uint64_t limit =
        space == fbs::Space::state ? plan.state_bytes() : program.step_bytes();
    return offset % elementBytes == 0 && liesInside(offset, size, limit);
  };
  if (viewOf(part.name()).empty() || viewOf(part.name()).size() > 1024)
    return Status::damaged(where + " has no name, or one that is too long");
  if (part.size() % elementBytes != 0)
    return Status::damaged(where + " is not made of elements of " +
                           std::to_string(elementBytes) + " bytes");
  bool gathers = kind == fbs::CollectiveKind::all_gather;
  bool scatters = kind == fbs::CollectiveKind::reduce_scatter;
  if (!lies(part.from_space(), part.from_offset(), gathers ? own : part.size()) ||
      !lies(part.to_space(), part.to_offset(), scatters ? own : part.size()))
    return Status::damaged(where + " lies outside its reservation or is unaligned");
  return Status::success();
}

bool isSame(const fbs::Collective &a, const fbs::Collective &b) {
  if (a.kind() != b.kind() || a.dtype() != b.dtype() ||
      sizeOf(a.parts()) != sizeOf(b.parts()))
    return false;
  for (uint32_t i = 0; i < sizeOf(a.parts()); ++i)
    if (a.parts()->Get(i)->size() != b.parts()->Get(i)->size() ||
        a.parts()->Get(i)->rows() != b.parts()->Get(i)->rows() ||
        viewOf(a.parts()->Get(i)->name()) != viewOf(b.parts()->Get(i)->name()))
      return false;
  return true;
}

bool mayMeetRanks(std::string_view program) {
  return program == "step" || program == "update" || program.starts_with("update.");
}

} // namespace

Status checkCollectives(const fbs::Plan &plan, const fbs::Program &program,
                        VisitBudget &budget) {
  std::string where =
      "plan refused: program '" + std::string(viewOf(program.name())) + "': ";
  if (!budget.take(sizeOf(program.collectives())))
    return Status::damaged(where + "its parts are shared");
  if (sizeOf(program.collectives()) > 0 &&
      (plan.ranks() == 1 || !mayMeetRanks(viewOf(program.name()))))
    return Status::damaged(where + "it has collectives, which belong to 'step' and "
                                   "'update' of plans for several ranks");
  for (uint32_t i = 0; i < sizeOf(program.collectives()); ++i) {
    const fbs::Collective *collective = program.collectives()->Get(i);
    std::string name = where + "collective " + std::to_string(i);
    bool sums = collective->dtype() == fbs::DType::f32 ||
                collective->dtype() == fbs::DType::f64 ||
                collective->dtype() == fbs::DType::i64;
    bool known = collective->kind() == fbs::CollectiveKind::all_gather
                     ? collective->dtype() >= fbs::DType::MIN &&
                           collective->dtype() <= fbs::DType::MAX
                     : sums && collective->kind() >= fbs::CollectiveKind::MIN &&
                           collective->kind() <= fbs::CollectiveKind::MAX;
    if (!known)
      return Status::damaged(name + " is of an unknown kind or type");
    if (sizeOf(collective->parts()) < 1 || !budget.take(sizeOf(collective->parts())))
      return Status::damaged(name + " has no parts, or shares them");
    uint64_t bytes = dtypeSize(static_cast<DType>(collective->dtype()));
    for (uint32_t p = 0; p < sizeOf(collective->parts()); ++p) {
      Status status =
          checkPart(plan, program, *collective->parts()->Get(p), collective->kind(),
                    bytes, name + ", part " + std::to_string(p));
      if (!status.ok())
        return status;
    }
  }
  return Status::success();
}

Status checkRanks(const fbs::Plan &plan) {
  constexpr int64_t most = 4096;
  auto broken = [](const std::string &text) {
    return Status::damaged("plan refused: " + text);
  };
  if (plan.ranks() < 1 || plan.ranks() > most)
    return broken("ranks is " + std::to_string(plan.ranks()) + ", expected 1 to " +
                  std::to_string(most));
  if (plan.ranks() > 1 && plan.as_ranks() > 1)
    return broken("a rank of " + std::to_string(plan.ranks()) + " does not sum as by " +
                  std::to_string(plan.as_ranks()));
  constexpr int64_t mostMicroBatches = 1 << 20; // whose losses ranks tell each other
  if (plan.ranks() > 1 && plan.accumulate() > mostMicroBatches)
    return broken("accumulate is " + std::to_string(plan.accumulate()) +
                  " with several ranks, expected at most " +
                  std::to_string(mostMicroBatches));
  // A rank's window may end with either, so they say the same to the others.
  const fbs::Program *first = nullptr;
  for (uint32_t i = 0; i < sizeOf(plan.programs()); ++i) {
    const fbs::Program *program = plan.programs()->Get(i);
    // Where groups take turns all ranks run the same one of several updates.
    if (!mayMeetRanks(viewOf(program->name())) || plan.update_every() > 1)
      continue;
    first = first ? first : program;
    bool same = sizeOf(program->collectives()) == sizeOf(first->collectives());
    for (uint32_t c = 0; same && c < sizeOf(first->collectives()); ++c)
      same = isSame(*program->collectives()->Get(c), *first->collectives()->Get(c));
    if (!same)
      return broken("its programs 'step' and 'update' have different collectives");
  }
  return Status::success();
}

} // namespace sluice
