#include "tools/sluice/DotText.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace sluice::cli {
namespace {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\')
      out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out + "\"";
}

std::string fillOf(int bits) {
  std::string color = bits >= 16 ? "#e0f0d4" : bits >= 8 ? "#fff3b0" : "#f7c5d1";
  return ",style=filled,fillcolor=\"" + color + "\"";
}

} // namespace

DotText::DotText() {
  out << "digraph sluice {\nnode [shape=box,fontname=\"sans-serif\",fontsize=10];\n"
         "edge [fontname=\"sans-serif\",fontsize=8];\n";
}

std::string DotText::finish() {
  if (marked || !storedBits.empty() || !groups.empty())
    legend();
  out << "}\n";
  return out.str();
}

void DotText::open(const std::string &id, std::string_view label) {
  out << "subgraph cluster_" << id << " { label=" << quoted(label) << ";\n";
}

std::string DotText::styleOf(Mark mark) {
  switch (mark) {
  case Mark::Recomputed:
    return ",style=\"filled,dashed\",color=\"#c05a00\",fillcolor=\"#fff1e2\",penwidth=2";
  case Mark::RunAgain:
    return ",style=filled,color=\"#c05a00\",fillcolor=\"#ffc98a\"";
  case Mark::Offloaded:
    return ",style=\"filled,dashed\",color=\"#1f4e9c\",fillcolor=\"#d6e4fb\",penwidth=2";
  case Mark::None:
    break;
  }
  return "";
}

void DotText::node(const std::string &id, std::string_view label, Mark mark,
                   const char *shape) {
  marked |= mark != Mark::None;
  out << id << " [label=" << quoted(label);
  if (*shape)
    out << ",shape=" << shape;
  out << styleOf(mark) << (mark == Mark::None ? groupStyle() : "") << "];\n";
  nextGroup.clear();
}

/// Hues that stand apart whatever the number of groups: multiples of the golden ratio.
std::string DotText::groupStyle() {
  if (nextGroup.empty())
    return "";
  auto found = std::find(groups.begin(), groups.end(), nextGroup);
  if (found == groups.end())
    found = groups.insert(groups.end(), nextGroup);
  double hue = 0.58 + 0.618034 * static_cast<double>(found - groups.begin());
  char text[64];
  std::snprintf(text, sizeof text, ",color=\"%.3f 0.75 0.70\",penwidth=3",
                hue - std::floor(hue));
  return text;
}

void DotText::stored(const std::string &id, std::string_view label, int bits) {
  storedBits.insert(bits);
  out << id << " [label=" << quoted(label) << fillOf(bits) << groupStyle() << "];\n";
  nextGroup.clear();
}

void DotText::edge(const std::string &from, const std::string &to, std::string_view label,
                   Mark mark) {
  marked |= mark != Mark::None;
  out << from << " -> " << to << " [label=" << quoted(label);
  if (mark == Mark::Recomputed || mark == Mark::RunAgain)
    out << ",color=\"#c05a00\",fontcolor=\"#c05a00\"";
  if (mark == Mark::Offloaded)
    out << ",color=\"#1f4e9c\",fontcolor=\"#1f4e9c\"";
  out << "];\n";
}

void DotText::below(const std::string &above, const std::string &node) {
  out << above << " -> " << node << " [style=invis,weight=50];\n";
}

void DotText::order(const std::string &from, const std::string &to) {
  out << from << " -> " << to << " [style=dotted,color=\"#1f4e9c\"];\n";
}

void DotText::legend() {
  open("legend", marked                ? "memory decisions"
                 : !storedBits.empty() ? "stored formats"
                                       : "update groups");
  if (marked) {
    node("legend_0", "its result is dropped\nand computed again", Mark::Recomputed);
    node("legend_1", "run again\nfor the backward part", Mark::RunAgain);
    node("legend_2", "offloaded to\nthe host's memory", Mark::Offloaded);
  }
  for (int bits : storedBits)
    stored("legend_bits" + std::to_string(bits),
           "stored in\n" + std::to_string(bits) + " bits", bits);
  const std::vector<std::string> known = groups;
  for (size_t i = 0; i < known.size(); ++i) {
    inGroup(known[i]);
    node("legend_group" + std::to_string(i), "updated with\n" + known[i]);
  }
  close();
}

} // namespace sluice::cli
