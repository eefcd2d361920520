#include "tools/sluice/GraphPicture.h"
#include "tools/sluice/Cli.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <spawn.h>
#include <sstream>
#include <sys/wait.h>

extern char **environ;

namespace sluice::cli {
namespace {

std::string quoted(llvm::StringRef text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\')
      out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out + "\"";
}

std::string typeText(mlir::Type type) {
  std::string text;
  llvm::raw_string_ostream os(text);
  if (auto tensor = mlir::dyn_cast<mlir::RankedTensorType>(type)) {
    for (int64_t size : tensor.getShape())
      os << size << "x";
    os << tensor.getElementType();
  } else {
    os << type;
  }
  return os.str();
}

std::string locationName(mlir::Location location) {
  if (auto name = mlir::dyn_cast<mlir::NameLoc>(location))
    return name.getName().str();
  if (auto fused = mlir::dyn_cast<mlir::FusedLoc>(location))
    for (mlir::Location part : fused.getLocations())
      if (std::string name = locationName(part); !name.empty())
        return name;
  return "";
}

/// "region: contract add relu" for a fused region, else the operation's own name.
std::string labelOf(mlir::Operation &op) {
  std::string label = op.getName().stripDialect().str();
  if (op.getNumRegions() == 1 && !op.getRegion(0).empty())
    for (mlir::Operation &inner : op.getRegion(0).front())
      if (!inner.hasTrait<mlir::OpTrait::IsTerminator>())
        label += " " + inner.getName().stripDialect().str();
  if (auto symbol = op.getAttrOfType<mlir::FlatSymbolRefAttr>("symbol"))
    label += " @" + symbol.getValue().str();
  std::string name = locationName(op.getLoc());
  return name.empty() ? label : label + "\n" + name;
}

void functionDot(mlir::func::FuncOp function, unsigned index, std::ostringstream &out) {
  std::string prefix = "f" + std::to_string(index) + "_";
  out << "subgraph cluster_" << index << " { label=" << quoted(function.getName())
      << ";\n";
  llvm::DenseMap<mlir::Value, std::string> ids;
  unsigned next = 0;
  for (mlir::BlockArgument argument : function.getArguments()) {
    std::string id = prefix + std::to_string(next++);
    auto name = function.getArgAttrOfType<mlir::StringAttr>(argument.getArgNumber(),
                                                            "graph.name");
    out << id << " [shape=ellipse,label=" << quoted(name ? name.getValue() : "input")
        << "];\n";
    ids[argument] = id;
  }
  for (mlir::Operation &op : function.getBody().front()) {
    std::string id = prefix + std::to_string(next++);
    out << id << " [label=" << quoted(labelOf(op)) << "];\n";
    for (mlir::Value operand : op.getOperands())
      if (auto from = ids.find(operand); from != ids.end())
        out << from->second << " -> " << id
            << " [label=" << quoted(typeText(operand.getType())) << "];\n";
    for (mlir::Value result : op.getResults())
      ids[result] = id;
  }
  out << "}\n";
}

constexpr const char *kHead =
    "digraph sluice {\nnode [shape=box,fontname=\"sans-serif\",fontsize=10];\n"
    "edge [fontname=\"sans-serif\",fontsize=8];\n";

Status runDot(const std::string &dotPath, const std::string &format,
              const std::string &outPath) {
  std::string formatFlag = "-T" + format;
  const char *arguments[] = {"dot",           formatFlag.c_str(), "-o",
                             outPath.c_str(), dotPath.c_str(),    nullptr};
  pid_t child = 0;
  int status = 0;
  if (posix_spawnp(&child, "dot", nullptr, nullptr, const_cast<char **>(arguments),
                   environ) != 0)
    return Status::cannotRunHere(
        "Graphviz's 'dot' is not installed; install graphviz, or write a .dot file");
  if (waitpid(child, &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return Status::refused("Graphviz could not write '" + outPath +
                           "': check that the folder is writable");
  return Status::success();
}

} // namespace

std::string moduleDot(mlir::ModuleOp module) {
  std::ostringstream out;
  out << kHead;
  unsigned index = 0;
  for (auto function : module.getOps<mlir::func::FuncOp>())
    functionDot(function, index++, out);
  out << "}\n";
  return out.str();
}

std::string programDot(const fbs::Program &program) {
  std::ostringstream out;
  out << kHead << "label=" << quoted(std::string(viewOf(program.name()))) << ";\n";
  uint32_t launches = sizeOf(program.launches());
  for (uint32_t i = 0; i < launches; ++i) {
    const fbs::Launch &launch = *program.launches()->Get(i);
    out << "l" << i << " [label="
        << quoted(std::to_string(i) + ": " + std::string(viewOf(launch.op())) + " " +
                  std::string(viewOf(launch.node())))
        << "];\n";
  }
  // Which launches touch a buffer: those in its live range with an operand inside it.
  for (uint32_t b = 0; b < sizeOf(program.buffers()); ++b) {
    const fbs::BufferInfo &buffer = *program.buffers()->Get(b);
    if (buffer.first() < 0)
      out << "b" << b
          << " [shape=ellipse,label=" << quoted(std::string(viewOf(buffer.name())))
          << "];\n";
    for (int64_t i = std::max(0, buffer.first()); i <= buffer.last() && i < launches;
         ++i) {
      if (i == buffer.first())
        continue;
      bool touches = false;
      const fbs::Launch &launch = *program.launches()->Get(static_cast<uint32_t>(i));
      for (uint32_t s = 0; s < sizeOf(launch.stages()); ++s)
        for (uint32_t o = 0; o < sizeOf(launch.stages()->Get(s)->operands()); ++o) {
          const fbs::Operand &operand = *launch.stages()->Get(s)->operands()->Get(o);
          touches |= operand.space() == fbs::Space::step &&
                     operand.offset() < buffer.offset() + buffer.size() &&
                     buffer.offset() < operand.offset() + operand.size();
        }
      if (touches)
        out << (buffer.first() < 0 ? "b" + std::to_string(b)
                                   : "l" + std::to_string(buffer.first()))
            << " -> l" << i << " [label="
            << quoted(std::string(viewOf(buffer.name())) + " " + sizeText(buffer.size()))
            << "];\n";
    }
  }
  out << "}\n";
  return out.str();
}

Status writeGraph(const std::string &dot, const std::string &path) {
  std::string extension = std::filesystem::path(path).extension();
  if (extension == ".dot")
    return writeWholeFile(path, dot);
  if (extension != ".svg" && extension != ".png")
    return Status::usage("'" + path + "': expected a name ending in .svg, .png or .dot");
  std::string source = path + ".dot";
  if (Status written = writeWholeFile(source, dot); !written.ok())
    return written;
  Status drawn = runDot(source, extension.substr(1), path);
  std::filesystem::remove(source);
  return drawn;
}

} // namespace sluice::cli
