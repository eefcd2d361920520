// ChunkLogits: a loss takes large logits by blocks of rows, forward and backward in turn,
// so that neither they nor their gradient are in memory as a whole. Behind all that adds
// to the graph, in the entry that trains: evaluation keeps its logits.
//
// Bits stay: rows are independent of each other but for sums over them. Losses of rows
// are put together before they are summed up, the weight's gradient goes on block by
// block where the product would (blocks of k are 256 long: so is a block of rows, or a
// multiple), and a bias' gradient is added up from the sums of 64 rows that it consists
// of in any case.

#include "ir/graph/GraphBuilder.h"
#include "kernels/GemmParams.h"
#include "passes/AddProduct.h"
#include "passes/BlockOrder.h"
#include "passes/Passes.h"
#include "passes/RegionDomain.h"
#include "passes/RowBlocks.h"
#include "passes/StateSymbols.h"
#include "passes/StepProblem.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace sluice {
#define GEN_PASS_DECL_CHUNKLOGITS
#define GEN_PASS_DEF_CHUNKLOGITS
#include "passes/Passes.h.inc"
namespace {

using graph::ContractOp;
using graph::tensorType;

/// More blocks than this are made longer instead.
constexpr int64_t mostBlocks = 16;

/// Sums over rows are those of so many rows each, added up in order; so many of those are
/// one block again.
constexpr int64_t partRows = RegionDomain::blockRows;

/// How a kernel sums up a product of these sizes.
bool isSliced(int64_t m, int64_t n, int64_t k) {
  GemmParams p;
  p.m = m, p.n = n, p.k = k;
  p.aRow = k, p.bRow = n, p.cRow = n;
  return planGemm(p, /*wholeRows=*/false).kind == GemmPlan::SplitK;
}

/// The product that makes the logits of a loss, and all that is computed from them up to
/// sums over rows.
class LogitsUse {
public:
  /// What would have to be rewritten, if it can be.
  bool find(graph::CrossEntropyOp loss) {
    auto type = tensorType(loss.getLogits());
    rows = type.getDimSize(0), classes = type.getDimSize(1);
    product = productOf(loss.getLogits());
    if (!product || rows == classes)
      return false;
    width = tensorType(product.getLhs()).getShape().back();
    return width != classes && width != rows && width > 1;
  }

  /// The same, once the loss is decomposed.
  bool collect() {
    cone.insert(product.getY());
    for (Operation *op = product->getNextNode(); op; op = op->getNextNode())
      if (llvm::any_of(op->getOperands(), [&](Value v) { return cone.contains(v); }) &&
          !add(op))
        return false;
    return true;
  }

  /// Blocks of which products are cut as the whole ones are.
  bool keepsBits(int64_t block) const {
    for (int64_t m : {rows, block})
      if (isSliced(m, classes, width) || isSliced(m, width, classes))
        return false;
    return gradients.empty() || !isSliced(classes, width, rows);
  }

  /// The matrix is an embedding too, so that its gradient is a sum in any case.
  bool isLookedUp() const {
    ContractOp op = product;
    Value weight = op.getRhs();
    while (weight.getDefiningOp() &&
           isa<graph::TransposeOp, graph::CastOp>(weight.getDefiningOp()))
      weight = weight.getDefiningOp()->getOperand(0);
    auto looksUp = [](Operation *user) {
      return isa<graph::GatherOp>(user) ||
             (isa<graph::CastOp>(user) &&
              llvm::any_of(user->getUsers(), llvm::IsaPred<graph::GatherOp>));
    };
    return llvm::any_of(weight.getUsers(), looksUp);
  }

  int64_t rows = 0, classes = 0, width = 0;
  ContractOp product;
  std::vector<Operation *> inside;   ///< in block order; run for each block of rows
  std::vector<ContractOp> gradients; ///< sums over rows: of the weight
  std::vector<graph::ReduceOp> sums; ///< the same of a bias
  llvm::SetVector<Value> joined;     ///< results of `inside` that others read

private:
  /// Through what keeps rows as they are, and a bias.
  ContractOp productOf(Value logits) const {
    while (Operation *op = logits.getDefiningOp()) {
      if (auto contract = dyn_cast<ContractOp>(op))
        return isRowProduct(contract) ? contract : ContractOp();
      auto isBias = [&](unsigned operand) {
        return isa<graph::AddOp>(op) && isSameForRows(op->getOperand(operand), rows);
      };
      if (!isBias(0) && !isBias(1) && !isa<graph::ReshapeOp, graph::CastOp>(op))
        break;
      logits = op->getOperand(isBias(0) ? 1 : 0);
    }
    return {};
  }

  /// Rows of lhs by a matrix: the last dimension is summed over.
  static bool isRowProduct(ContractOp op) {
    int64_t rank = tensorType(op.getLhs()).getRank();
    return op.getLhsBatch().empty() && tensorType(op.getRhs()).getRank() == 2 &&
           op.getLhsContract() == ArrayRef<int64_t>{rank - 1};
  }

  bool isWide(Value value) const { return widthOf(value, rows) == classes; }

  bool add(Operation *op) {
    if (auto contract = dyn_cast<ContractOp>(op))
      if (cone.contains(contract.getLhs()) || cone.contains(contract.getRhs()))
        return addProduct(contract);
    if (mayRunByRows(op, rows, {1, classes})) {
      inside.push_back(op);
      cone.insert(op->getResult(0));
      return true;
    }
    if (addSum(dyn_cast<graph::ReduceOp>(op)))
      return true;
    for (Value operand : op->getOperands())
      if (cone.contains(operand) && !join(operand))
        return false;
    return true;
  }

  bool addSum(graph::ReduceOp op) {
    // A large sum to few columns is cut otherwise (LegalizeForKernels).
    bool isCut = classes < 8 * RegionDomain::stripColumns && rows * classes >= 65536;
    if (isCut || rows > partRows * partRows)
      return false;
    if (!op || op.getKind() != "sum" || !isWide(op.getX()) ||

        int64_t(op.getAxes().size()) != rowDims(op.getX(), rows) ||
        !llvm::equal(op.getAxes(), llvm::seq<int64_t>(0, op.getAxes().size())))
      return false;
    sums.push_back(op);
    return true;
  }

  bool addProduct(ContractOp op) {
    bool left = cone.contains(op.getLhs());
    Value wide = left ? op.getLhs() : op.getRhs(),
          other = left ? op.getRhs() : op.getLhs();
    if (!isWide(wide) || cone.contains(other) || !op.getLhsBatch().empty())
      return false;
    if (left && isRowProduct(op)) { // of the rows
      inside.push_back(op);
      joined.insert(op.getY());
      return true;
    }
    // Both sum over all dimensions of the rows.
    if (widthOf(other, rows) != width || op.getRoundTo() ||
        tensorType(op.getY()).getRank() != 2 ||
        !tensorType(op.getY()).getElementType().isF32())
      return false;
    for (auto [value, dims] : {std::pair(op.getLhs(), op.getLhsContract()),
                               std::pair(op.getRhs(), op.getRhsContract())})
      if (int64_t(dims.size()) != rowDims(value, rows) ||
          !llvm::equal(dims, llvm::seq<int64_t>(0, dims.size())))
        return false;
    gradients.push_back(op);
    return true;
  }

  bool join(Value value) {
    if (value == product.getY() || widthOf(value, rows) != 1)
      return false;
    joined.insert(value);
    return true;
  }

  llvm::DenseSet<Value> cone;
};

/// Writes the uses block by block.
class LogitsChunker {
public:
  LogitsChunker(LogitsUse &use, int64_t block)
      : use(use), block(block), builder(use.product.getContext()) {
    Operation *last = use.product;
    auto visit = [&](Operation *op) { last = last->isBeforeInBlock(op) ? op : last; };
    llvm::for_each(use.inside, visit);
    llvm::for_each(use.gradients, visit);
    llvm::for_each(use.sums, visit);
    builder.setInsertionPointAfter(last);
  }

  void run() {
    for (int64_t first = 0; first < use.rows; first += block)
      addBlock(first, std::min(block, use.rows - first));
    for (Value value : use.joined)
      value.replaceAllUsesWith(join(value));
    for (graph::ReduceOp sum : use.sums)
      replaceSum(sum);
    // Last: what is built goes before the transposes that this erases.
    for (ContractOp gradient : use.gradients)
      replaceGradient(gradient);
    std::vector<Operation *> dead = use.inside;
    dead.insert(dead.begin(), use.product);
    llvm::append_range(dead, use.gradients);
    llvm::append_range(dead, use.sums);
    llvm::sort(dead, [](Operation *a, Operation *b) { return b->isBeforeInBlock(a); });
    Block *body = use.product->getBlock();
    for (Operation *op : dead)
      op->erase();
    sortBlock(*body);
  }

private:
  void addBlock(int64_t first, int64_t count) {
    RowBlock rows(builder, use.rows, use.classes, first, count);
    Operation *logits = rows.clone(use.product);
    logits->setAttr(rowBlockAttr, builder.getUnitAttr());
    for (Operation *op : use.inside)
      rows.clone(op);
    for (Value value : use.joined)
      parts[value].push_back(rows.of(value));
    for (ContractOp gradient : use.gradients)
      addGradient(gradient, rows);
    for (graph::ReduceOp sum : use.sums)
      addSums(sum, rows.of(sum.getX()), count);
  }

  /// Of 64 rows each, and of what is left of the last block.
  void addSums(graph::ReduceOp op, Value wide, int64_t count) {
    graph::GraphBuilder b(op.getLoc(), builder);
    int64_t whole = count / partRows * partRows;
    auto sumOf = [&](int64_t first, int64_t length) {
      int64_t blocks = llvm::divideCeil(length, partRows);
      Value rows = wide;
      if (length < count)
        rows = b.make<graph::SliceOp>(wide, SmallVector<int64_t>{first, 0},
                                      SmallVector<int64_t>{length, use.classes},
                                      SmallVector<int64_t>{1, 1});
      rows = b.reshape(rows, {blocks, length / blocks, use.classes});
      parts[op.getY()].push_back(b.sum(rows, {1}, /*keep=*/false));
    };
    if (whole > 0)
      sumOf(0, whole);
    if (whole < count)
      sumOf(whole, count - whole);
  }

  void addGradient(ContractOp op, RowBlock &rows) {
    graph::GraphBuilder b(op.getLoc(), builder);
    Value lhs = rows.of(op.getLhs()), rhs = rows.of(op.getRhs());
    if (transposeOf(op)) // written as it is read
      std::swap(lhs, rhs);
    Value &sum = sums[op];
    int64_t dims[] = {0};
    sum = sum ? createAddProduct(b, lhs, rhs, sum)
              : b.make<ContractOp>(lhs, rhs, ArrayRef<int64_t>(), ArrayRef<int64_t>(),
                                   ArrayRef<int64_t>(dims), ArrayRef<int64_t>(dims));
  }

  static graph::TransposeOp transposeOf(ContractOp op) {
    return op->hasOneUse() ? dyn_cast<graph::TransposeOp>(*op->getUsers().begin())
                           : graph::TransposeOp();
  }

  void replaceGradient(ContractOp op) {
    Value sum = sums[op];
    if (graph::TransposeOp transpose = transposeOf(op)) {
      transpose.getY().replaceAllUsesWith(sum);
      transpose->erase();
      return;
    }
    op.getY().replaceAllUsesWith(sum);
  }

  void replaceSum(graph::ReduceOp op) {
    graph::GraphBuilder b(op.getLoc(), builder);
    Value all = b.make<graph::ConcatOp>(ValueRange(parts[op.getY()]), 0);
    op.getY().replaceAllUsesWith(
        b.reshape(b.sum(all, {0}, /*keep=*/false), tensorType(op.getY()).getShape()));
  }

  Value join(Value value) {
    graph::GraphBuilder b(value.getLoc(), builder);
    Value joined = b.make<graph::ConcatOp>(ValueRange(parts[value]), 0);
    return b.reshape(joined, tensorType(value).getShape());
  }

  LogitsUse &use;
  int64_t block;
  OpBuilder builder;
  llvm::DenseMap<Value, SmallVector<Value>> parts;
  llvm::DenseMap<Operation *, Value> sums;
};

struct ChunkLogits : impl::ChunkLogitsBase<ChunkLogits> {
  ChunkLogits(const ChunkLogitsOptions &options, bool storesGradients)
      : ChunkLogitsBase(options), storesGradients(storesGradients) {}

  void runOnOperation() override {
    func::FuncOp entry = trainingEntry(getOperation());
    if (!entry)
      return;
    SmallVector<graph::CrossEntropyOp> losses;
    entry.walk([&](graph::CrossEntropyOp op) { losses.push_back(op); });
    for (graph::CrossEntropyOp loss : losses)
      chunk(loss);
  }

private:
  /// Whether fewer logits are worth a gradient that is added up in memory, where it would
  /// otherwise be consumed tile by tile: the other rows outweigh it by far.
  bool isWorthIt(const LogitsUse &use, int64_t block) const {
    return storesGradients || use.gradients.empty() || use.isLookedUp() ||
           use.rows - block >= 2 * use.width;
  }

  /// Rows of a block: as few blocks of k as `target-bytes` of logits are.
  int64_t blockOf(int64_t rows, int64_t classes) const {
    int64_t fits = targetBytes / (classes * 4) / gemm::kBlockK;
    int64_t least = llvm::divideCeil(rows, mostBlocks * gemm::kBlockK);
    return std::max<int64_t>({1, fits, least}) * gemm::kBlockK;
  }

  void chunk(graph::CrossEntropyOp loss) {
    auto type = tensorType(loss.getLogits());
    int64_t rows = type.getDimSize(0), classes = type.getDimSize(1);
    int64_t block = blockOf(rows, classes);
    LogitsUse use;
    if (rows * classes * 4 <= targetBytes || rows <= block || !use.find(loss) ||
        !use.keepsBits(block))
      return;
    OpBuilder builder(loss);
    loss->replaceAllUsesWith(loss.decompose(builder));
    loss->erase();
    if (!use.collect() || !use.keepsBits(block) || !isWorthIt(use, block))
      return;
    LogitsChunker(use, block).run();
    std::string bytes = std::to_string((rows - block) * classes * 4);
    report(getOperation(),
           "logits: the loss takes its " + std::to_string(rows) + " rows of " +
               std::to_string(classes) + " logits " + std::to_string(block) +
               " at a time: " + bytes +
               " bytes of them and of their gradient are never in memory with the rest");
  }

  bool storesGradients; // a norm, a scale or a sum needs all of them
};

} // namespace

std::unique_ptr<Pass> createChunkLogits(int64_t targetBytes, bool storesGradients) {
  return std::make_unique<ChunkLogits>(ChunkLogitsOptions{targetBytes}, storesGradients);
}
} // namespace sluice
