#include "tools/sluice/GraphPicture.h"

#include "kernels/StoredFormats.h"
#include "passes/EntryFunctions.h"
#include "passes/PlanLaunches.h"
#include "passes/TensorFacts.h"
#include "passes/UpdateGroups.h"
#include "passes/lowering/ProgramBuilder.h"
#include "tools/sluice/Cli.h"
#include "tools/sluice/DotText.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <cstdlib>
#include <filesystem>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

namespace sluice::cli {
namespace {

using Mark = DotText::Mark;

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

std::string againText(int64_t run) {
  return run > 0 ? "\n(run again, " + std::to_string(run) + ")" : "";
}

int64_t runOf(mlir::Operation *op) {
  auto run = op->getAttrOfType<mlir::IntegerAttr>(recomputeAttr);
  return run ? run.getInt() : 0;
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
  std::string name = nodeNames(op.getLoc());
  return (name.empty() ? label : label + "\n" + name) + againText(runOf(&op));
}

/// Bits of the stored format that an operation reads or writes state in; 0: f32, or none.
int storedBitsOf(mlir::Operation &op) {
  if (auto format = op.getAttrOfType<mlir::StringAttr>("format"))
    if (auto known = storedFormat(format.getValue().str()))
      return traitsOf(*known).bits;
  auto read = mlir::dyn_cast<graph::ReadOp>(op);
  mlir::Type type = read ? graph::tensorType(read.getValue()).getElementType() : nullptr;
  bool isFloat = type && mlir::isa<mlir::FloatType>(type);
  return isFloat && type.getIntOrFloatBitWidth() < 32 ? type.getIntOrFloatBitWidth() : 0;
}

/// The same of a region: the fewest of what is in it.
int fewestBitsOf(mlir::Operation &op) {
  int fewest = 0;
  op.walk([&](mlir::Operation *inner) {
    int bits = storedBitsOf(*inner);
    if (bits > 0 && (fewest == 0 || bits < fewest))
      fewest = bits;
  });
  return fewest;
}

/// The group of parameters that an operation reads, writes or computes with; empty: none,
/// or several.
std::string groupOf(mlir::Operation &op, llvm::ArrayRef<UpdateGroup> groups) {
  if (groups.empty())
    return "";
  llvm::SmallVector<mlir::Operation *> sides{&op};
  for (mlir::Value operand : op.getOperands())
    if (mlir::Operation *producer = operand.getDefiningOp())
      sides.push_back(producer);
  std::string group;
  for (mlir::Operation *side : sides) {
    auto symbol = side->getAttrOfType<mlir::FlatSymbolRefAttr>("symbol");
    auto parameter = symbol
                         ? mlir::SymbolTable::lookupNearestSymbolFrom<graph::ParameterOp>(
                               side, symbol.getAttr())
                         : graph::ParameterOp();
    auto index = parameter ? parameter->getAttrOfType<mlir::IntegerAttr>(updateGroupAttr)
                           : mlir::IntegerAttr();
    if (!index || index.getInt() >= int64_t(groups.size()))
      continue;
    if (!group.empty() && group != groups[index.getInt()].name)
      return "";
    group = groups[index.getInt()].name;
  }
  return group;
}

/// What the loss is computed from: the names of gradients' nodes are the same.
llvm::DenseSet<mlir::Operation *> forwardPart(mlir::func::FuncOp function) {
  llvm::DenseSet<mlir::Operation *> forward;
  llvm::SmallVector<mlir::Value> open;
  if (mlir::Value loss = resultNamed(function, "loss_sum"))
    open.push_back(loss);
  else if (function.getSymName() == "forward")
    open.append(returnOf(function).operand_begin(), returnOf(function).operand_end());
  while (!open.empty())
    if (mlir::Operation *op = open.pop_back_val().getDefiningOp())
      if (forward.insert(op).second)
        open.append(op->operand_begin(), op->operand_end());
  return forward;
}

/// Of the first run of an operation, by the values it computes.
Mark markOf(mlir::Operation &op, const MemoryMarks &marks) {
  if (runOf(&op) > 0)
    return Mark::RunAgain;
  for (mlir::Value result : op.getResults()) {
    std::string names = valueNames(result);
    for (auto &[set, mark] : {std::pair(&marks.offloaded, Mark::Offloaded),
                              std::pair(&marks.recomputed, Mark::Recomputed)}) {
      if (set->contains(names))
        return mark;
      // Before regions are formed every node is an operation of its own.
      for (const std::string &marked : *set)
        if (!names.empty() &&
            ("+" + marked + "+").find("+" + names + "+") != std::string::npos)
          return mark;
    }
  }
  return Mark::None;
}

void functionDot(mlir::func::FuncOp function, unsigned index, const MemoryMarks &marks,
                 DotText &dot) {
  std::string prefix = "f" + std::to_string(index) + "_";
  dot.open(std::to_string(index), function.getName());
  llvm::DenseMap<mlir::Value, std::string> ids;
  llvm::DenseMap<mlir::Value, Mark> valueMarks;
  llvm::DenseSet<mlir::Operation *> forward = forwardPart(function);
  std::vector<UpdateGroup> groups =
      updateGroups(function->getParentOfType<mlir::ModuleOp>());
  unsigned next = 0;
  for (mlir::BlockArgument argument : function.getArguments()) {
    std::string id = prefix + std::to_string(next++);
    auto name = function.getArgAttrOfType<mlir::StringAttr>(argument.getArgNumber(),
                                                            "graph.name");
    dot.node(id, name ? name.getValue() : "input", Mark::None, "ellipse");
    ids[argument] = id;
  }
  for (mlir::Operation &op : function.getBody().front()) {
    std::string id = prefix + std::to_string(next++);
    bool counts = forward.contains(&op) || runOf(&op) > 0;
    Mark mark = counts ? markOf(op, marks) : Mark::None;
    int bits = mark == Mark::None ? fewestBitsOf(op) : 0;
    dot.inGroup(groupOf(op, groups));
    if (bits > 0)
      dot.stored(id, labelOf(op), bits);
    else
      dot.node(id, labelOf(op), mark);
    for (mlir::Value operand : op.getOperands())
      if (auto from = ids.find(operand); from != ids.end())
        dot.edge(from->second, id, typeText(operand.getType()),
                 valueMarks.lookup(operand));
    for (mlir::Value result : op.getResults())
      ids[result] = id, valueMarks[result] = mark;
  }
  dot.close();
}

std::string bytesLabel(llvm::StringRef name, uint64_t bytes) {
  return name.str() + " " + sizeText(bytes);
}

/// Launches and copies of a planned program; an edge from the last that wrote a buffer.
void planDot(plan::ProgramOp program, unsigned index, DotText &dot) {
  std::string prefix = "p" + std::to_string(index) + "_";
  dot.open("p" + std::to_string(index), program.getEntry());
  unsigned next = 0;
  llvm::DenseMap<mlir::Operation *, std::string> writer;
  for (auto input : program.getBody().front().getOps<plan::InputOp>()) {
    std::string id = prefix + std::to_string(next++);
    dot.node(id, input.getName(), Mark::None, "ellipse");
    writer[plan::rangeOf(input.getBuffer()).root] = id;
  }
  auto reads = [&](const std::string &id, mlir::Value value) {
    mlir::Operation *root = plan::rangeOf(value).root;
    auto buffer = mlir::dyn_cast<plan::BufferOp>(root);
    auto from = writer.find(root);
    if (buffer && from != writer.end() && from->second != id)
      dot.edge(from->second, id, bytesLabel(bufferNames(buffer), buffer.getSize()),
               buffer.getOffloaded() ? Mark::Offloaded
               : runOf(buffer) > 0   ? Mark::RunAgain
                                     : Mark::None);
  };
  auto writes = [&](const std::string &id, mlir::Value value) {
    writer[plan::rangeOf(value).root] = id;
  };
  program.walk([&](mlir::Operation *op) {
    if (auto copy = mlir::dyn_cast<plan::CopyOp>(op)) {
      std::string id = prefix + std::to_string(next++);
      dot.node(id, "copy\n" + copy.getLabel().str(), Mark::Offloaded, "cds");
      reads(id, copy.getSource()), writes(id, copy.getTarget());
    }
    auto launch = mlir::dyn_cast<plan::LaunchOp>(op);
    if (!launch)
      return;
    std::string id = prefix + std::to_string(next++);
    dot.node(id,
             launch.getLabel().str() + "\n" + launch.getNode().str() +
                 againText(runOf(launch)),
             runOf(launch) > 0 ? Mark::RunAgain : Mark::None);
    auto stages = launch.getBody().front().getOps<plan::StageOp>();
    for (plan::StageOp stage : stages)
      for (mlir::Value in : stage.getIns())
        reads(id, in);
    for (plan::StageOp stage : stages)
      for (mlir::Value out : stage.getOuts())
        writes(id, out);
  });
  dot.close();
}

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

MemoryMarks memoryMarks(mlir::ModuleOp planned) {
  MemoryMarks marks;
  for (auto program : planned.getOps<plan::ProgramOp>()) {
    for (auto buffer : program.getBody().front().getOps<plan::BufferOp>())
      if (buffer.getOffloaded())
        marks.offloaded.insert(buffer.getLabel().str());
    if (auto facts = program->getAttrOfType<mlir::ArrayAttr>(tensorFactsAttr))
      for (auto fact : facts.getAsRange<mlir::DictionaryAttr>())
        if (fact.getAs<mlir::StringAttr>("choice").getValue() == "recomputed")
          marks.recomputed.insert(fact.getAs<mlir::StringAttr>("name").str());
  }
  marks.recomputed.erase("");
  return marks;
}

std::string moduleDot(mlir::ModuleOp module, const MemoryMarks &marks) {
  DotText dot;
  unsigned index = 0;
  for (auto function : module.getOps<mlir::func::FuncOp>())
    functionDot(function, index++, marks, dot);
  for (auto program : module.getOps<plan::ProgramOp>())
    planDot(program, index++, dot);
  return dot.finish();
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
