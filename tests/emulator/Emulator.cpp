#include "tests/emulator/Emulator.h"

#include "tests/emulator/Block.h"
#include "tests/emulator/HostModule.h"

#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/Support/TargetSelect.h"

using namespace llvm;
using namespace sluice::emulator;

namespace {
// The kernel's code calls functions, so the grid that runs is found here.
thread_local Grid *running = nullptr;

int32_t emulateRegister(int32_t which, int32_t axis) {
  return running->readRegister(static_cast<Register>(which), axis);
}
void *emulateShared() { return running->shared(); }
void emulateAccess(void *address, int64_t bytes, int64_t alignment, int32_t isStore,
                   int32_t instruction) {
  running->access(static_cast<char *>(address), bytes, alignment, isStore != 0,
                  instruction);
}
void emulateBarrier() { running->barrier(); }
void emulateWarpSync(int32_t lanes) { running->warpSync(static_cast<uint32_t>(lanes)); }
int32_t emulateShuffle(int32_t kind, int32_t lanes, int32_t value, int32_t operand,
                       int32_t clamp) {
  return running->shuffle(static_cast<Shuffle>(kind), static_cast<uint32_t>(lanes), value,
                          operand, clamp);
}

class JitEmulator : public Emulator {
public:
  explicit JitEmulator(std::unique_ptr<orc::LLJIT> jit) : jit(std::move(jit)) {}

  Error defineCalls() {
    orc::SymbolMap symbols;
    auto define = [&](const char *name, auto *function) {
      symbols[jit->mangleAndIntern(name)] = {orc::ExecutorAddr::fromPtr(function),
                                             JITSymbolFlags::Exported};
    };
    define("emulate_register", &emulateRegister);
    define("emulate_shared", &emulateShared);
    define("emulate_access", &emulateAccess);
    define("emulate_barrier", &emulateBarrier);
    define("emulate_warp_sync", &emulateWarpSync);
    define("emulate_shuffle", &emulateShuffle);
    return jit->getMainJITDylib().define(orc::absoluteSymbols(std::move(symbols)));
  }

  void addBuffer(void *data, size_t bytes, bool isWritten) override {
    ShadowedMemory &memory = global[static_cast<char *>(data)];
    memory.data = static_cast<char *>(data);
    memory.bytes = bytes;
    ByteShadow initial;
    initial.isWritten = isWritten;
    memory.shadow.assign(bytes, initial);
  }

  void mark(void *data, size_t bytes, bool isWritten) override {
    auto *address = static_cast<char *>(data);
    auto after = global.upper_bound(address);
    if (after == global.begin())
      return;
    ShadowedMemory &memory = std::prev(after)->second;
    auto from = static_cast<size_t>(address - memory.data);
    for (size_t i = from; i < std::min(from + bytes, memory.bytes); ++i)
      memory.shadow[i].isWritten = isWritten;
  }

  Expected<Report> run(const Launch &launch) override {
    auto symbol = jit->lookup("emulate." + launch.kernel);
    if (!symbol)
      return symbol.takeError();
    Report report;
    Grid grid(launch, symbol->toPtr<Grid::Entry>(), global, report);
    running = &grid;
    grid.run();
    running = nullptr;
    return report;
  }

private:
  std::unique_ptr<orc::LLJIT> jit;
  std::map<char *, ShadowedMemory> global;
};
} // namespace

Expected<std::unique_ptr<Emulator>> Emulator::create(const std::string &bitcode) {
  InitializeNativeTarget();
  InitializeNativeTargetAsmPrinter();
  auto jit = orc::LLJITBuilder().create();
  if (!jit)
    return jit.takeError();
  auto context = std::make_unique<LLVMContext>();
  auto module = parseBitcodeFile(MemoryBufferRef(bitcode, "kernels"), *context);
  if (!module)
    return module.takeError();
  auto kernels =
      prepareForHost(**module, (*jit)->getTargetTriple().str(), (*jit)->getDataLayout());
  if (!kernels)
    return kernels.takeError();
  if (Error error = (*jit)->addIRModule(
          orc::ThreadSafeModule(std::move(*module), std::move(context))))
    return std::move(error);
  auto emulator = std::make_unique<JitEmulator>(std::move(*jit));
  if (Error error = emulator->defineCalls())
    return std::move(error);
  return emulator;
}
