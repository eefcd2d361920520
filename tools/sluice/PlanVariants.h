#pragma once
// Which of a plan's variants a command speaks of.

#include "runtime/Plan.h"
#include "tools/sluice/Cli.h"

namespace sluice::cli {

/// What --bucket and --variant say.
struct VariantChoice {
  std::string bucket;   // "T=64"; empty: the first
  uint32_t variant = 0; // rung of the memory ladder
};

void addVariantOptions(CLI::App *app, VariantChoice &choice);

/// Refused with what there is.
Result<const PlanVariant *> findVariant(const Plan &plan, const VariantChoice &choice);

/// One object for each rung of the memory ladder.
Json ladderJson(const Plan &plan);
/// The same as rows of a table; empty where there is one rung.
std::vector<std::vector<std::string>> ladderRows(const Plan &plan);

} // namespace sluice::cli
