#include "tests/emulator/HostModule.h"

#include "llvm/ADT/StringSwitch.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/ReplaceConstant.h"

#include <optional>

using namespace llvm;
using namespace sluice::emulator;

namespace {
constexpr unsigned sharedSpace = 3;

class HostModule {
public:
  explicit HostModule(Module &module)
      : module(module), context(module.getContext()), i32(Type::getInt32Ty(context)),
        i64(Type::getInt64Ty(context)), pointer(PointerType::get(context, 0)) {}

  Expected<std::vector<std::string>> prepare();

private:
  std::vector<Function *> findKernels();
  void replaceShared();
  Error replaceIntrinsics(Function &function);
  Value *replacement(IRBuilder<> &b, CallInst &call, StringRef name);
  Value *readRegister(IRBuilder<> &b, StringRef name);
  Value *shuffle(IRBuilder<> &b, CallInst &call, StringRef kind);
  void watchAccesses(Function &function);
  void addEntry(Function &kernel);

  Value *call(IRBuilder<> &b, StringRef name, Type *result, ArrayRef<Value *> operands) {
    SmallVector<Type *> types;
    for (Value *operand : operands)
      types.push_back(operand->getType());
    auto callee =
        module.getOrInsertFunction(name, FunctionType::get(result, types, false));
    return b.CreateCall(callee, operands);
  }
  ConstantInt *number(int64_t value) {
    return ConstantInt::get(cast<IntegerType>(i32), value);
  }

  Module &module;
  LLVMContext &context;
  Type *i32, *i64;
  PointerType *pointer;
  int accessNumber = 0;
};
} // namespace

std::vector<Function *> HostModule::findKernels() {
  std::vector<Function *> kernels;
  if (NamedMDNode *annotations = module.getNamedMetadata("nvvm.annotations"))
    for (MDNode *node : annotations->operands())
      for (unsigned i = 1; i + 1 < node->getNumOperands(); i += 2)
        if (cast<MDString>(node->getOperand(i))->getString() == "kernel")
          kernels.push_back(mdconst::extract<Function>(node->getOperand(0)));
  return kernels;
}

// Every thread asks for the memory of its block.
void HostModule::replaceShared() {
  SmallVector<GlobalVariable *> globals;
  for (GlobalVariable &global : module.globals())
    if (global.getAddressSpace() == sharedSpace)
      globals.push_back(&global);
  for (GlobalVariable *global : globals) {
    convertUsersOfConstantsToInstructions({global});
    for (Use &use : make_early_inc_range(global->uses())) {
      auto *user = cast<Instruction>(use.getUser());
      IRBuilder<> b(user);
      Value *base = call(b, "emulate_shared", pointer, {});
      use.set(b.CreateAddrSpaceCast(base, global->getType()));
    }
    global->eraseFromParent();
  }
}

Value *HostModule::readRegister(IRBuilder<> &b, StringRef name) {
  if (name == "laneid")
    return call(b, "emulate_register", i32,
                {number(static_cast<int>(Register::Lane)), number(0)});
  if (name == "warpsize")
    return number(32);
  auto [kind, axis] = name.split('.');
  auto which = StringSwitch<std::optional<Register>>(kind)
                   .Case("tid", Register::Thread)
                   .Case("ctaid", Register::Block)
                   .Case("ntid", Register::BlockSize)
                   .Case("nctaid", Register::GridSize)
                   .Default(std::nullopt);
  if (!which || axis.size() != 1)
    return nullptr;
  return call(b, "emulate_register", i32,
              {number(static_cast<int>(*which)), number(axis[0] - 'x')});
}

Value *HostModule::shuffle(IRBuilder<> &b, CallInst &site, StringRef name) {
  auto [kind, type] = name.split('.');
  auto which = StringSwitch<std::optional<Shuffle>>(kind)
                   .Case("up", Shuffle::Up)
                   .Case("down", Shuffle::Down)
                   .Case("bfly", Shuffle::Xor)
                   .Case("idx", Shuffle::Index)
                   .Default(std::nullopt);
  if (!which || (type != "i32" && type != "f32"))
    return nullptr;
  Value *word = b.CreateBitCast(site.getArgOperand(1), i32);
  Value *moved = call(b, "emulate_shuffle", i32,
                      {number(static_cast<int>(*which)), site.getArgOperand(0), word,
                       site.getArgOperand(2), site.getArgOperand(3)});
  return b.CreateBitCast(moved, site.getType());
}

/// Null: not emulated.
Value *HostModule::replacement(IRBuilder<> &b, CallInst &site, StringRef name) {
  Type *none = Type::getVoidTy(context);
  if (name.consume_front("read.ptx.sreg."))
    return readRegister(b, name);
  if (name.consume_front("shfl.sync."))
    return shuffle(b, site, name);
  if (name == "barrier0")
    return call(b, "emulate_barrier", none, {});
  if (name == "bar.warp.sync")
    return call(b, "emulate_warp_sync", none, {site.getArgOperand(0)});
  return nullptr;
}

Error HostModule::replaceIntrinsics(Function &function) {
  SmallVector<CallInst *> sites;
  for (Instruction &instruction : llvm::instructions(function))
    if (auto *site = dyn_cast<CallInst>(&instruction);
        site && site->getCalledFunction() &&
        site->getCalledFunction()->getName().starts_with("llvm.nvvm."))
      sites.push_back(site);
  for (CallInst *site : sites) {
    IRBuilder<> b(site);
    StringRef name = site->getCalledFunction()->getName();
    Value *value = replacement(b, *site, name.substr(StringRef("llvm.nvvm.").size()));
    if (!value)
      return createStringError("'" + name.str() + "' in '" + function.getName().str() +
                               "' is not emulated");
    if (!site->getType()->isVoidTy())
      site->replaceAllUsesWith(value);
    site->eraseFromParent();
  }
  return Error::success();
}

void HostModule::watchAccesses(Function &function) {
  const DataLayout &layout = module.getDataLayout();
  SmallVector<Instruction *> accesses;
  for (Instruction &instruction : llvm::instructions(function))
    if (isa<LoadInst, StoreInst>(instruction))
      accesses.push_back(&instruction);
  for (Instruction *access : accesses) {
    IRBuilder<> b(access);
    Value *address = getLoadStorePointerOperand(access);
    if (isa<AllocaInst>(address->stripPointerCasts()))
      continue;
    auto bytes = layout.getTypeStoreSize(getLoadStoreType(access)).getFixedValue();
    auto alignment = getLoadStoreAlignment(access).value();
    call(b, "emulate_access", Type::getVoidTy(context),
         {b.CreatePointerBitCastOrAddrSpaceCast(address, pointer),
          ConstantInt::get(i64, bytes), ConstantInt::get(i64, alignment),
          number(isa<StoreInst>(access)), number(accessNumber++)});
  }
}

void HostModule::addEntry(Function &kernel) {
  auto *entry = Function::Create(
      FunctionType::get(Type::getVoidTy(context), {pointer}, false),
      GlobalValue::ExternalLinkage, "emulate." + kernel.getName(), module);
  IRBuilder<> b(BasicBlock::Create(context, "", entry));
  SmallVector<Value *> operands;
  for (Argument &argument : kernel.args()) {
    Value *slot = b.CreateConstGEP1_64(pointer, entry->getArg(0), argument.getArgNo());
    operands.push_back(b.CreateLoad(pointer, slot));
  }
  b.CreateCall(&kernel, operands);
  b.CreateRetVoid();
}

Expected<std::vector<std::string>> HostModule::prepare() {
  std::vector<Function *> kernels = findKernels();
  replaceShared();
  std::vector<std::string> names;
  for (Function &function : module) {
    if (function.isDeclaration())
      continue;
    if (Error error = replaceIntrinsics(function))
      return error;
    watchAccesses(function);
  }
  for (Function *kernel : kernels) {
    names.push_back(kernel->getName().str());
    addEntry(*kernel);
  }
  if (NamedMDNode *annotations = module.getNamedMetadata("nvvm.annotations"))
    annotations->eraseFromParent();
  return names;
}

Expected<std::vector<std::string>>
sluice::emulator::prepareForHost(Module &module, const std::string &triple,
                                 const DataLayout &layout) {
  module.setTargetTriple(triple);
  module.setDataLayout(layout);
  return HostModule(module).prepare();
}
