#include "tools/sluice/DotText.h"

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

} // namespace

DotText::DotText() {
  out << "digraph sluice {\nnode [shape=box,fontname=\"sans-serif\",fontsize=10];\n"
         "edge [fontname=\"sans-serif\",fontsize=8];\n";
}

std::string DotText::finish() {
  if (marked)
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
  out << styleOf(mark) << "];\n";
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
  open("legend", "memory decisions");
  node("legend_0", "its result is dropped\nand computed again", Mark::Recomputed);
  node("legend_1", "run again\nfor the backward part", Mark::RunAgain);
  node("legend_2", "offloaded to\nthe host's memory", Mark::Offloaded);
  close();
}

} // namespace sluice::cli
