#ifndef SLUICE_PASSES_TD
#define SLUICE_PASSES_TD
include "mlir/Pass/PassBase.td"

// A pass that reads the training spec takes it in its constructor (passes/Passes.h). `commandLineSpec()` is known
// to sluice-opt only, which registers the passes by name.
class SpecPass<string flag, string function> : Pass<flag, "::mlir::ModuleOp"> {
  let constructor = "::sluice::" # function # "(commandLineSpec())";
  let dependentDialects = ["::sluice::graph::GraphDialect"];
}

//===- train: the forward graph becomes the whole training step -----------------------------===//

def AssignGroups : SpecPass<"assign-groups", "createAssignGroups"> {
  let summary = "Decides which parameters train and with which optimizer options";
  let description = [{
    Matches the names of the parameters against `trainable`, `frozen` and `parameter_groups` (later ones win). Parameters with the same options form
    a group, which gets its scalars `control/GROUP/lr`, `bc1` and `bc2`; the groups are listed in the module's `graph.groups`.

    ```mlir
    graph.parameter @"param/w" : tensor<2xf32> "parameter" {trainable}
    // becomes, in the group without overrides
    graph.parameter @"param/w" : tensor<2xf32> "parameter" {group = "default", trainable}
    ```
  }];
}

def BuildLoss : SpecPass<"build-loss", "createBuildLoss"> {
  let summary = "Adds the labels and the loss to @forward";
  let description = [{
    @forward gets the input the loss compares with, and the results `loss_sum` and `loss_count` before its own: the
    sum over the valid samples (`control/valid`) and what it is divided by once, after all micro-batches.

    ```mlir
    func.func @forward(%x) -> (%logits)
    // becomes
    func.func @forward(%x, %labels) -> (%loss_sum, %loss_count, %logits)
    ```
  }];
}

def BuildBackward : SpecPass<"build-backward", "createBuildBackward"> {
  let summary = "Builds the gradients of the trainable parameters";
  let description = [{
    Reverse accumulation through the Differentiable interface. @forward is copied to @step (to @micro under
    accumulation), statistics are recorded there, and one result `grad/NAME` is added for each parameter that trains.
    Operations between a loss and a trainable parameter that have no gradient are reported together.
  }];
}

def BuildUpdate : SpecPass<"build-update", "createBuildUpdate"> {
  let summary = "Replaces the gradients by the optimizer's update";
  let description = [{
    The unnormalised sums are divided once by the global count, clipped, and given to the optimizer, whose results
    are written to the state. Under accumulation @micro adds to `grad/NAME` and `grad/count` instead, and @update does the rest.
  }];
}

def BuildEntries : SpecPass<"build-entries", "createBuildEntries"> {
  let summary = "Builds @eval and @infer with evaluation semantics and removes @forward";
  let description = [{
    Each entry keeps the inputs and results it needs. Operations that behave differently in training are replaced by
    their evaluation form.
  }];
}

def VerifyTrain : Pass<"verify-train", "::mlir::ModuleOp"> {
  let summary = "Checks what the train stage promises";
  let description = [{
    Every symbol read or written exists with the same type, an entry writes a symbol at most once, only @step, @micro and @update write,
    arguments and results are named, and controls are never written.
  }];
  let constructor = "::sluice::createVerifyTrain()";
}

#endif
