#include "passes/NamePatterns.h"

#include "llvm/ADT/StringSet.h"
#include "llvm/Support/GlobPattern.h"

using namespace mlir;

namespace sluice {
namespace {

StringRef withoutRoot(StringRef name) {
  name.consume_front("/");
  return name;
}

/// "relu_output_0" is PyTorch's name of a result of node "relu".
bool isResult(StringRef pattern, StringRef node) {
  return pattern.consume_front(node) && pattern.consume_front("_output_") &&
         !pattern.empty() && pattern.find_first_not_of("0123456789") == StringRef::npos;
}

/// "/a/b/c" lies in "/a/b" and "/a".
void addScopes(StringRef name, llvm::StringSet<> &scopes) {
  for (size_t slash = name.rfind('/'); slash != StringRef::npos && slash > 0;
       slash = name.rfind('/')) {
    name = name.take_front(slash);
    scopes.insert(name);
  }
}

} // namespace

void visitNames(Location loc, llvm::function_ref<void(StringRef)> visit) {
  loc->walk([&](Location part) {
    if (auto name = dyn_cast<NameLoc>(part); name && !name.getName().empty())
      visit(name.getName().getValue());
    return WalkResult::advance();
  });
}

bool namesNode(StringRef pattern, StringRef node) {
  pattern = withoutRoot(pattern), node = withoutRoot(node);
  if (pattern.find_first_of("*?[{\\") == StringRef::npos && isResult(pattern, node))
    return true;
  if (pattern.find_first_of("*?[{\\") == StringRef::npos)
    return node.starts_with(pattern) && !pattern.empty() &&
           (node.size() == pattern.size() || node[pattern.size()] == '/');
  auto glob = llvm::GlobPattern::create(pattern);
  if (glob)
    return glob->match(node);
  llvm::consumeError(glob.takeError());
  return false;
}

bool namesAny(ArrayRef<std::string> patterns, Location loc) {
  bool any = false;
  visitNames(loc, [&](StringRef name) {
    any |= llvm::any_of(patterns,
                        [&](StringRef pattern) { return namesNode(pattern, name); });
  });
  return any;
}

std::string nearestNames(StringRef pattern, ArrayRef<std::string> names) {
  constexpr size_t shown = 3;
  llvm::StringSet<> known;
  for (const std::string &name : names) {
    known.insert(name);
    addScopes(name, known);
  }
  std::vector<std::pair<unsigned, StringRef>> list;
  StringRef plain = withoutRoot(pattern);
  for (StringRef name : known.keys())
    list.push_back({withoutRoot(name).edit_distance_insensitive(plain), name});
  llvm::sort(list);
  list.resize(std::min(list.size(), shown));
  std::string text;
  for (auto &[distance, name] : list)
    text += (text.empty() ? "; nearest: '" : ", '") + name.str() + "'";
  return text;
}

} // namespace sluice
