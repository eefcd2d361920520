#include "frontend/onnx/GraphImporter.h"
#include "frontend/onnx/Limits.h"
#include "frontend/onnx/Node.h"
#include "frontend/onnx/OpTable.h"

namespace sluice::frontend {

using namespace mlir;

Entry *Scope::find(StringRef name) {
  for (Scope *scope = this; scope; scope = scope->parent) {
    auto found = scope->entries.find(name);
    if (found != scope->entries.end())
      return &found->second;
  }
  return nullptr;
}

std::string nodeName(const onnx::NodeProto &node) {
  if (!node.name().empty())
    return node.name();
  for (const std::string &output : node.output())
    if (!output.empty())
      return node.op_type() + "_" + output;
  return node.op_type();
}
std::string operatorName(const onnx::NodeProto &node) {
  bool standard = node.domain().empty() || node.domain() == "ai.onnx";
  return standard ? node.op_type() : node.domain() + "." + node.op_type();
}

bool isKnown(const onnx::ModelProto &model, const onnx::NodeProto &node) {
  for (const auto &function : model.functions())
    if (function.name() == node.op_type() && function.domain() == node.domain())
      return true;
  StringRef domain = node.domain() == "ai.onnx" ? StringRef() : StringRef(node.domain());
  return findHandler(domain, node.op_type());
}

static void addUses(const onnx::GraphProto &graph, UseMap &uses, int depth) {
  for (const onnx::NodeProto &node : graph.node()) {
    for (int i = 0; i < node.input_size(); ++i)
      if (!node.input(i).empty())
        uses[node.input(i)].push_back({&node, i});
    if (depth < maxNesting)
      for (const auto &attribute : node.attribute())
        if (attribute.has_g())
          addUses(attribute.g(), uses, depth + 1);
  }
}
UseMap collectUses(const onnx::GraphProto &graph) {
  UseMap uses;
  addUses(graph, uses, 0);
  return uses;
}

GraphImporter::GraphImporter(onnx::ModelProto &model, TensorReader &reader,
                             const ImportOptions &options, ImportReport &report,
                             Emitter &emitter, Block *symbols)
    : model(model), reader(reader), options(options), report(report), e(emitter),
      symbols(symbols) {
  for (const auto &import : model.opset_import())
    opsets[import.domain() == "ai.onnx" ? "" : import.domain()] = import.version();
  if (opsets.empty())
    opsets[""] = 1;
}

void GraphImporter::note(const std::string &topic, const std::string &text) {
  if (noted.insert(topic + ": " + text).second)
    report.notes.push_back(topic + ": " + text);
}
void GraphImporter::unsupported(const onnx::NodeProto &node, const std::string &reason) {
  report.unsupported.push_back({operatorName(node), nodeName(node), reason});
}

/// Names that the graph's outputs depend on; dead nodes are not emitted.
static llvm::StringSet<> neededNames(const onnx::GraphProto &graph) {
  llvm::StringSet<> needed;
  for (const auto &output : graph.output())
    needed.insert(output.name());
  std::function<void(const onnx::NodeProto &, int)> addInputs = [&](auto &node,
                                                                    int depth) {
    for (const std::string &input : node.input())
      needed.insert(input);
    if (depth > maxNesting)
      return;
    for (const auto &attribute : node.attribute())
      if (attribute.has_g()) {
        for (const auto &inner : attribute.g().node())
          addInputs(inner, depth + 1);
        for (const auto &output : attribute.g().output())
          needed.insert(output.name());
      }
  };
  for (int i = graph.node_size() - 1; i >= 0; --i)
    if (llvm::any_of(graph.node(i).output(),
                     [&](const std::string &name) { return needed.contains(name); }))
      addInputs(graph.node(i), 0);
  return needed;
}

bool GraphImporter::importGraph(onnx::GraphProto &graph, Scope &scope) {
  if (scope.depth > maxNesting) {
    report.errors.push_back("subgraphs are nested more than " +
                            std::to_string(maxNesting) + " deep");
    return false;
  }
  UseMap uses = collectUses(graph);
  scope.uses = &uses;
  if (graph.sparse_initializer_size() > 0)
    report.errors.push_back("sparse initializer '" +
                            graph.sparse_initializer(0).values().name() +
                            "' is not supported yet; store it dense");
  for (auto &tensor : *graph.mutable_initializer()) {
    auto [position, inserted] = scope.entries.try_emplace(tensor.name());
    if (!inserted && position->second.initializer)
      report.errors.push_back("initializer '" + tensor.name() + "' is given twice");
    if (inserted)
      position->second.initializer = &tensor;
  }
  if (!scope.parent) {
    checkTies(scope);
    if (!report.errors.empty())
      return false;
    noteSharing(graph, uses);
    noteNames(graph, uses);
    noteFoldedNorms(graph);
    noteCopies(graph, uses);
  }
  llvm::StringSet<> needed = neededNames(graph);
  bool ok = importNodes(*graph.mutable_node(), scope, opsets, &needed);
  // The outputs of a subgraph are read by its caller, while the uses still stand.
  for (const auto &output : graph.output())
    if (Entry *entry = scope.find(output.name()); entry && entry->initializer)
      entry->value = read(scope, output.name(), {nullptr, 0});
  scope.uses = nullptr;
  return ok;
}

bool GraphImporter::importFunction(const onnx::FunctionProto &function,
                                   const onnx::NodeProto &call, Scope &scope) {
  std::string name = function.domain() + "." + function.name();
  if (llvm::is_contained(functionStack, name) ||
      static_cast<int>(functionStack.size()) >= maxNesting) {
    e.fail("function '" + name + "' calls itself, or functions are nested too deep");
    return false;
  }
  for (const auto &import : function.opset_import())
    if ((import.domain().empty() || import.domain() == "ai.onnx") &&
        import.version() > maxOpset) {
      e.fail("function '" + name + "' uses opset " + Twine(import.version()) +
             ", newer than the newest known, " + Twine(maxOpset));
      return false;
    }
  functionStack.push_back(name);
  llvm::StringMap<int64_t> versions = opsets;
  for (const auto &import : function.opset_import())
    versions[import.domain() == "ai.onnx" ? "" : import.domain()] = import.version();
  // A copy: attributes that refer to the call's are replaced.
  onnx::FunctionProto body = function;
  for (onnx::NodeProto &node : *body.mutable_node()) {
    bindAttributes(node, call, function);
    for (std::string &input : *node.mutable_input()) // operands the call leaves out
      if (llvm::is_contained(function.input(), input) && !scope.entries.contains(input))
        input.clear();
  }
  onnx::GraphProto &graph =
      *functionBodies.emplace_back(std::make_unique<onnx::GraphProto>());
  graph.mutable_node()->Swap(body.mutable_node());
  UseMap uses = collectUses(graph);
  scope.uses = &uses;
  bool ok = importNodes(*graph.mutable_node(), scope, versions, nullptr);
  scope.uses = nullptr;
  functionStack.pop_back();
  return ok;
}

const onnx::FunctionProto *
GraphImporter::findFunction(const onnx::NodeProto &node) const {
  for (const auto &function : model.functions())
    if (function.name() == node.op_type() && function.domain() == node.domain())
      return &function;
  return nullptr;
}

bool GraphImporter::importNodes(
    google::protobuf::RepeatedPtrField<onnx::NodeProto> &nodes, Scope &scope,
    const llvm::StringMap<int64_t> &versions, const llvm::StringSet<> *needed) {
  bool ok = true;
  for (onnx::NodeProto &node : nodes) {
    bool wanted = !needed || llvm::any_of(node.output(), [&](const std::string &name) {
      return needed->contains(name);
    });
    if (wanted)
      ok &= importNode(node, scope, versions);
  }
  return ok;
}

bool GraphImporter::importNode(onnx::NodeProto &node, Scope &scope,
                               const llvm::StringMap<int64_t> &versions) {
  auto poison = [&] {
    for (const std::string &output : node.output())
      if (!output.empty())
        scope.entries[output].poisoned = true;
    return false;
  };
  StringRef domain = node.domain() == "ai.onnx" ? StringRef() : StringRef(node.domain());
  const onnx::FunctionProto *function = findFunction(node);
  Handler handler = function ? importCall : findHandler(domain, node.op_type());
  if (!handler) {
    unsupported(node, unknownReason(node));
    return poison();
  }
  bool dark = false;
  for (const std::string &input : node.input()) {
    if (input.empty())
      continue;
    Entry *entry = scope.find(input);
    if (!entry) {
      unsupported(node, "reads '" + input +
                            "', which nothing before it computes (the graph "
                            "is cyclic, out of order or incomplete)");
      return poison();
    }
    dark |= entry->poisoned;
  }
  if (dark)
    return poison();
  e.begin(NameLoc::get(StringAttr::get(e.context(), nodeName(node))));
  auto version = versions.find(domain);
  Node context(*this, scope, node, version == versions.end() ? 1 : version->second);
  if (succeeded(handler(context))) {
    for (const std::string &output : node.output())
      if (output.find(nodeName(node)) == std::string::npos && !output.empty())
        report.tensorNodes.try_emplace(output, nodeName(node));
    return true;
  }
  std::string reason = context.reason.empty() ? e.error() : context.reason;
  // An empty reason: the cause lies in a subgraph and is reported there.
  if (reason != "reported")
    unsupported(node, reason.empty() ? "cannot be imported" : reason);
  return poison();
}

} // namespace sluice::frontend
