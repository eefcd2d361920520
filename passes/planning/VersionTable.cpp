#include "passes/planning/VersionTable.h"

#include <algorithm>

namespace sluice {

VersionTable versionTable(std::vector<GroupTiming> groups) {
  VersionTable table;
  table.groups = std::move(groups);
  int64_t longest = 0;
  for (const GroupTiming &group : table.groups) {
    table.every = std::max(table.every, group.every);
    longest = std::max(longest, group.delay);
  }
  table.steps = longest + 2 * table.every;
  std::vector<int64_t> versions(table.groups.size(), 0);
  for (int64_t step = 0; step < table.steps; ++step)
    for (size_t g = 0; g < table.groups.size(); ++g) {
      const GroupTiming &group = table.groups[g];
      VersionRow row;
      row.step = step, row.group = static_cast<int32_t>(g);
      row.read = row.version = versions[g];
      if (step % group.every == group.phase && step >= group.delay) {
        row.lastGradient = step - group.delay;
        row.firstGradient = std::max<int64_t>(0, row.lastGradient - group.every + 1);
        row.version = ++versions[g];
      }
      table.rows.push_back(row);
    }
  return table;
}

} // namespace sluice
