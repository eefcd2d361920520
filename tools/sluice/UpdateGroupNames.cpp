#include "tools/sluice/UpdateGroupNames.h"

#include "runtime/Plan.h"

namespace sluice::cli {

std::map<std::string, std::string> updateGroupsOf(const fbs::Plan &plan) {
  constexpr std::string_view topic = "updates: group ";
  std::map<std::string, std::string> groups;
  for (uint32_t i = 0; i < sizeOf(plan.decisions()); ++i) {
    const fbs::KeyValue &line = *plan.decisions()->Get(i);
    std::string_view why = viewOf(line.value());
    if (!why.starts_with(topic))
      continue;
    why.remove_prefix(topic.size());
    groups[std::string(viewOf(line.key()))] = std::string(why.substr(0, why.find(';')));
  }
  return groups;
}

std::vector<ParameterSet> updateGroupList(const fbs::Plan &plan) {
  std::vector<ParameterSet> list;
  constexpr std::string_view topic = "group ";
  for (uint32_t i = 0; i < sizeOf(plan.decisions()); ++i)
    if (std::string_view key = viewOf(plan.decisions()->Get(i)->key());
        key.starts_with(topic))
      list.push_back({std::string(key.substr(topic.size())), {}});
  for (const auto &[parameter, group] : updateGroupsOf(plan))
    for (ParameterSet &set : list)
      if (set.first == group)
        set.second.push_back(parameter);
  std::erase_if(list, [](const ParameterSet &set) { return set.second.empty(); });
  return list;
}

} // namespace sluice::cli
