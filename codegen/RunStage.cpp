#include "codegen/RunStage.h"

using namespace mlir;

namespace sluice {

DiagnosticText::DiagnosticText(MLIRContext *context)
    : handler(context, [this](Diagnostic &diagnostic) {
        append(diagnostic, "");
        for (Diagnostic &note : diagnostic.getNotes())
          append(note, "  note: ");
        return success();
      }) {
  context->printOpOnDiagnostic(false); // the location names the node
}

void DiagnosticText::append(Diagnostic &diagnostic, StringRef prefix) {
  if (diagnostic.getSeverity() == DiagnosticSeverity::Remark)
    return;
  std::string line = prefix.str();
  llvm::raw_string_ostream stream(line);
  if (auto name = diagnostic.getLocation()->findInstanceOf<NameLoc>())
    if (!name.getName().empty())
      stream << "node '" << name.getName().getValue() << "': ";
  stream << diagnostic.str();
  text += (text.empty() ? "" : "\n") + line;
}

Status runStage(ModuleOp module, llvm::function_ref<void(OpPassManager &)> build) {
  DiagnosticText diagnostics(module.getContext());
  PassManager passes(module.getContext());
  build(passes);
  if (succeeded(passes.run(module)))
    return Status::success();
  return Status::refused(diagnostics.text.empty() ? "a pass failed without a reason"
                                                  : diagnostics.text);
}

} // namespace sluice
