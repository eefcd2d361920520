#pragma once
// The DOT language: one digraph, its nodes and edges, and how memory decisions, stored
// formats and update groups look.

#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

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
  /// Filled by the bits of what it reads or writes in a stored format: 16, 8 or 4.
  void stored(const std::string &id, std::string_view label, int bits);
  /// The node drawn next has a border in the colour of an update group; empty: none.
  void inGroup(const std::string &group) { nextGroup = group; }
  void edge(const std::string &from, const std::string &to, std::string_view label,
            Mark mark = Mark::None);
  /// That one is drawn below the other.
  void below(const std::string &above, const std::string &node);
  /// That one waits for the other.
  void order(const std::string &from, const std::string &to);

private:
  static std::string styleOf(Mark mark);
  std::string groupStyle();
  void legend();

  std::ostringstream out;
  bool marked = false;
  std::set<int> storedBits;        // that nodes have
  std::vector<std::string> groups; // in the order of their first nodes
  std::string nextGroup;
};

} // namespace sluice::cli
