#pragma once
// The DOT language: one digraph, its nodes and edges, and how memory decisions look.

#include <sstream>
#include <string>
#include <string_view>

namespace sluice::cli {

class DotText {
public:
  DotText();

  /// Ends the graph, with a legend if a mark was used.
  std::string finish();

  void open(const std::string &id, std::string_view label);
  void close() { out << "}\n"; }

  enum class Mark { None, Recomputed, RunAgain, Offloaded };
  void node(const std::string &id, std::string_view label, Mark mark = Mark::None,
            const char *shape = "");
  void edge(const std::string &from, const std::string &to, std::string_view label,
            Mark mark = Mark::None);
  /// That one is drawn below the other.
  void below(const std::string &above, const std::string &node);
  /// That one waits for the other.
  void order(const std::string &from, const std::string &to);

private:
  static std::string styleOf(Mark mark);
  void legend();

  std::ostringstream out;
  bool marked = false;
};

} // namespace sluice::cli
