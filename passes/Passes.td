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

def InitParameters : SpecPass<"init-parameters", "createInitParameters"> {
  let summary = "Draws initial values where the spec asks for others than the model's";
  let description = [{
    The rules of `init`, later ones first. Draws are keyed by seed, name and element; fans are what the parameter's product sums
    over, else PyTorch's reading of the shape.

    ```mlir
    graph.parameter @"param/w" : tensor<2x2xf32> "parameter" {init = dense<...>}
    // becomes, under {from: zeros}
    graph.parameter @"param/w" : tensor<2x2xf32> "parameter"
    ```
  }];
}

def ApplyLora : SpecPass<"apply-lora", "createApplyLora"> {
  let summary = "Puts low-rank adapters beside the weights that `lora` matches";
  let description = [{
    A weight W keeps its value and no longer trains; what uses it adds scale * (x A') B' with the new parameters `NAME.lora_A` [rank, in] and
    `NAME.lora_B` [out, rank] (of convolutions with the kernel's dimensions behind). Products, embeddings and convolutions without groups.

    ```mlir
    %y = graph.contract %x, %w {lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>, ...}
    // becomes
    %y = graph.contract %x, %w {lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>, ...}
    %h = graph.contract %x, %a {lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>, ...}
    %d = graph.contract %h, %b {lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>, ...}
    %s = graph.mul %d, %scale
    %z = graph.add %y, %s
    ```
  }];
}

def AssignGroups : SpecPass<"assign-groups", "createAssignGroups"> {
  let summary = "Decides which parameters train and with which optimizer options";
  let description = [{
    Matches the names of the parameters against `trainable`, `frozen` and `parameter_groups` (later ones win). Parameters with the same options form
    a group; the groups and their options are listed in the module's `graph.groups`, and later passes look nowhere else.

    ```mlir
    graph.parameter @"param/w" : tensor<2xf32> "parameter"
    // becomes, in the group without overrides
    graph.parameter @"param/w" : tensor<2xf32> "parameter" {group = "default", trainable}
    ```
  }];
}

def GroupParameters : SpecPass<"group-parameters", "createGroupParameters"> {
  let summary = "Puts trainable parameters into groups by the topology of @forward or by rules";
  let description = [{
    Under `update.grouping`. By topology: single-entry single-exit blocks form a chain that is cut exactly into groups of equal bytes and
    backward time (planning/Grouping.h); group 0 is the first whose gradients are complete. A parameter used twice goes with its last gradient.
    Groups are listed in the module's `graph.update_groups`.

    ```mlir
    graph.parameter @"param/w" : tensor<2x2xf32> "parameter" {group = "default", trainable}
    // becomes
    graph.parameter @"param/w" : tensor<2x2xf32> "parameter" {graph.update_group = 0 : i64, group = "default", trainable}
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

def FuseAttention : Pass<"fuse-attention", "::mlir::ModuleOp"> {
  let summary = "Computes softmax attention in one operation that stores no scores";
  let description = [{
    In @forward: a product of queries and keys, scaled before or after, masked (a constant triangle is `causal`; other masks become one addend), softmax over
    keys, dropout if any, and the product with values; keys and values that groups of heads share are not repeated. Taken where no part has other readers,
    the mask has no gradient, rows that see nothing keep their value, and there are queries and keys enough for the kernel's blocks. The report says how many.

    ```mlir
    %s = graph.contract %q, %k {lhs_batch = array<i64: 0, 1>, lhs_contract = array<i64: 3>, ...} -> tensor<2x4x64x64xf32>
    %t = graph.mul %s, %scale
    %p = graph.softmax %t {axis = 3}
    %y = graph.contract %p, %v {...}
    // becomes
    %y, %stats = graph.attention %q, %k, %v {scale = 0.125 : f64}
    ```
  }];
  let constructor = "::sluice::createFuseAttention()";
  let dependentDialects = ["::sluice::graph::GraphDialect"];
}

def BuildBackward : SpecPass<"build-backward", "createBuildBackward"> {
  let summary = "Builds the gradients of the trainable parameters";
  let description = [{
    Reverse accumulation through the Differentiable interface. @forward is copied to @step (to @micro under
    accumulation), statistics are recorded there, and one result `grad/NAME` is added for each parameter that trains.
    Operations between a loss and a trainable parameter that have no gradient are reported together. With
    `precision.loss_scale` the gradient of the loss is `scale/value` in place of 1.
  }];
}

def BuildProbe : SpecPass<"build-probe", "createBuildProbe"> {
  let summary = "Builds @probe, which gives the gradients of a batch (`entries: [..., probe]`)";
  let description = [{
    @probe has evaluation semantics (no dropout, running statistics) and writes nothing. Its results are `loss_sum`, `loss_count`, the logits, and
    `grad/NAME`, the gradient of `loss_sum`, for each parameter that trains. A batch of one valid sample gives the gradient of that sample.
    What `sluice probe` estimates importance from.
  }];
}

def BuildFisher : SpecPass<"build-fisher", "createBuildFisher"> {
  let summary = "Builds @fisher, the squared gradients of the samples of a batch (`continual.ewc`)";
  let description = [{
    @fisher has evaluation semantics and writes nothing. Its results are `loss_sum`, `loss_count` and `fisher/NAME`, the sum over samples of the squared gradient of each sample's loss,
    for each parameter that trains. Products with one row per sample and vectors that are repeated along the samples are squared before they are summed; all else is taken from slices
    of single samples, or, where samples cannot be told apart, from batches of one (`graph.fisher_one_by_one`, with a line of the report).
  }];
}

def BuildUpdate : SpecPass<"build-update", "createBuildUpdate"> {
  let summary = "Replaces the gradients by the optimizer's update";
  let description = [{
    The unnormalised sums are divided once by the global count, clipped, and given to the optimizer, whose results
    are written to the state. Under accumulation @micro adds to `grad/NAME` and `grad/count` instead, and @update does the rest.
    In the order of several ranks (`accumulate.as_ranks`) @close_rank moves a rank's sum into a binomial tree of sums `sum1/NAME`,
    `sum2/NAME`, `sum4/NAME`, ... and @update adds what is left.
    With `precision.loss_scale` the sums are divided by the scale too, then checked, then clipped: unless all are finite, every write keeps the
    old value but those of `scale/...`. Under accumulation @micro keeps buffers as they were before a window in `restore/NAME`.
  }];
}

def BuildEntries : SpecPass<"build-entries", "createBuildEntries"> {
  let summary = "Builds @eval and @infer with evaluation semantics and removes @forward";
  let description = [{
    Each entry keeps the inputs and results it needs. Operations that behave differently in training are replaced by
    their evaluation form.
  }];
}

def ApplyMasks : SpecPass<"apply-masks", "createApplyMasks"> {
  let summary = "Gives each task weights of its own inside one model (`continual.masks`)";
  let description = [{
    packnet: `mask/NAME` has the task of each element of a weight; @eval and @infer read 0 where it is above `task/limit`, and updates change an element only where it is `task/trains`.
    supermask: `param/NAME.score` trains in place of the weight, which counts where its score is above 0. What trains and has no mask, and statistics, are in `task/own/NAME` for every task.
  }];
}

def AssignFormats : SpecPass<"assign-formats", "createAssignFormats"> {
  let summary = "Chooses stored formats of parameters within a number of bytes (`precision.policy`)";
  let description = [{
    One format for each parameter of two or more dimensions that trains, by a multiple-choice knapsack: expected rise of the loss (of `sluice probe`), bytes with master, predicted time. Written down as
    `graph.assigned_format`; rules win over it. The report has the expected rise and the bound that no choice of as few bytes is below.
  }];
}

def AssignStorage : SpecPass<"assign-storage", "createAssignStorage"> {
  let summary = "Stores parameters, and what is saved for the backward part, in formats of fewer bits (`precision.rules`, `precision.policy`)";
  let description = [{
    A parameter becomes codes with `scale/NAME/...` beside them; each reader decodes them for itself. With `master: fp32` updates read and write
    `master/NAME`, else the codes are the parameter, and updates round stochastically. Of values of the nodes that a rule with `saved` names, the backward part reads what
    `graph.quantize` leaves of them; the forward part has the values themselves.

    ```mlir
    %w = graph.read @"param/w" : tensor<64x32xf32>
    // becomes
    %c = graph.read @"param/w" : tensor<64x32xi8>
    %s = graph.read @"scale/w/blocks" : tensor<64xi8>
    %w = graph.dequantize %c, %s {format = "mxfp8", shape = array<i64: 64, 32>} : (tensor<64x32xi8>, tensor<64xi8>) -> tensor<64x32xf32>
    ```
  }];
}

def AssignPrecision : SpecPass<"assign-precision", "createAssignPrecision"> {
  let summary = "Rounds what products read and give to 16 bits (`precision.compute`)";
  let description = [{
    Products take bf16 or f16, sum in f32 and round once; all else computes in f32. Each rounded value exists once and all of its readers see
    it; moves of elements carry 16 bits. Gradients of parameters stay f32. Parameters that products read are stored in 16 bits, beside
    `master/NAME/low` (split) or `master/NAME` (fp32). Nothing happens under `fp32`.

    ```mlir
    %w = graph.read @"param/w" : tensor<4x2xf32>
    %y = graph.contract %x, %w {...} : (tensor<3x4xf32>, tensor<4x2xf32>) -> tensor<3x2xf32>
    // becomes
    %w = graph.read @"param/w" : tensor<4x2xbf16>
    %0 = graph.cast %x {element_type = bf16} : (tensor<3x4xf32>) -> tensor<3x4xbf16>
    %1 = graph.contract %0, %w {..., round_to = bf16} : (tensor<3x4xbf16>, tensor<4x2xbf16>) -> tensor<3x2xbf16>
    %y = graph.cast %1 {element_type = f32} : (tensor<3x2xbf16>) -> tensor<3x2xf32>
    ```
  }];
}

def ChunkLogits : Pass<"chunk-logits", "::mlir::ModuleOp"> {
  let summary = "Large logits are computed, used and differentiated by blocks of rows";
  let description = [{
    Where the logits of a cross entropy have more than `target-bytes`, and only the loss reads them, the entry that trains computes a block of
    their rows, their losses, their gradient and what follows from it, then the next block. Losses of rows are joined before they are
    added up; the gradient of the weight goes on from block to block in the same bytes (a region of the kernel `add_product`). A block is a
    multiple of 256 rows, so that all sums keep their order and their bits; 256 at least, and at most 16 blocks.
  }];
  let options = [Option<"targetBytes", "target-bytes", "int64_t", "16 << 20", "logits of a block, in f32">];
  let constructor = "::sluice::createChunkLogits(16 << 20)";
}

def VerifyTrain : Pass<"verify-train", "::mlir::ModuleOp"> {
  let summary = "Checks what the train stage promises";
  let description = [{
    Every symbol read or written exists with the same type, an entry writes a symbol at most once, only @step, @micro, @close_rank and @update write,
    arguments and results are named, and `control/...` is never written.
  }];
  let constructor = "::sluice::createVerifyTrain()";
}

//===- regions: what will really be materialised --------------------------------------------===//

def DecomposeComposites : Pass<"decompose-composites", "::mlir::ModuleOp"> {
  let summary = "Writes composites with core operations";
  let description = [{
    Softmax, normalisations, losses, dropout and optimizers, down to elementwise operations, reductions and broadcasts.
  }];
  let constructor = "::sluice::createDecomposeComposites()";
}

def TrackSamples : Pass<"track-samples", "::mlir::ModuleOp"> {
  let summary = "Finds the results of @eval and @infer whose rows belong to samples";
  let description = [{
    A result with the samples in dimension 0, each the same number of rows, is marked `graph.batched`: a short batch gives as many rows. An
    @infer in which samples meet, so that rows of padding would be seen, is marked `graph.mixes`. Dimensions of the results of @infer that are as long as
    an input which may be filled up (`graph.fill`, `graph.ignored`) are listed in `graph.crops`: argument, its dimension, dimension, stride and size of the axis, and how
    its length follows, as (mul, add, div) in turn; where positions are not followed, the report says so.

    ```mlir
    func.func @infer(%x: tensor<4x3xf32> {graph.batched}) -> (tensor<12xf32> {graph.name = "flat"})
    // becomes
    func.func @infer(%x: tensor<4x3xf32> {graph.batched}) -> (tensor<12xf32> {graph.batched, graph.name = "flat"})
    ```
  }];
  let constructor = "::sluice::createTrackSamples()";
}

def LegalizeForKernels : Pass<"legalize-for-kernels", "::mlir::ModuleOp"> {
  let summary = "Brings products and reductions into forms that a kernel exists for";
  let description = [{
    Transposes are folded into dimension numbers, or added where no kernel can do without. Large reductions with few
    results are cut in two, so that all workers have a share.

    ```mlir
    %t = graph.transpose %w {permutation = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
    %y = graph.contract %x, %t {lhs_contract = array<i64: 1>, rhs_contract = array<i64: 0>, ...}
    // becomes
    %y = graph.contract %x, %w {lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>, ...}
    ```
  }];
  let constructor = "::sluice::createLegalizeForKernels()";
}

def FormRegions : Pass<"form-regions", "::mlir::ModuleOp"> {
  let summary = "Joins elementwise operations and reductions to regions, each one kernel";
  let description = [{
    An operation joins the region that is its only user, else the first user it may join. Constants, broadcasts and views are cloned
    into the regions that read them. A concatenation that nothing but regions reads goes into them too and is read from its parts, and a
    slice that would be copied is read in the larger tensor where that keeps little more in memory. Without `fuse` every operation is a
    region: the same bits, more trips through memory.
  }];
  let constructor = "::sluice::createFormRegions(true)";
  let options = [Option<"fuse", "fuse", "bool", /*default=*/"true", "Join operations">];
}

//===- decide: what memory is traded for time ------------------------------------------------===//

def PlaceRecompute : SpecPass<"place-recompute", "createPlaceRecompute"> {
  let summary = "Runs operations of the forward part again where the spec's policy says so";
  let description = [{
    `memory.recompute: sqrt` or `{every: N}`: the plan of planning/Recompute.h, written into @step or @micro. A clone
    has the attribute `recompute`, and what comes behind it reads its results. Nothing is done for `none`, nor for
    `auto`, which needs the bytes of whole plans and is decided by codegen/BudgetSearch with the same parts.

    ```mlir
    %h = graph.region(%x) {...} : (tensor<8x64xf32>) -> tensor<8x64xf32>
    // becomes, before the first operation of the backward part that reads it
    %h2 = graph.region(%x) {...} {recompute = 1 : i64} : (tensor<8x64xf32>) -> tensor<8x64xf32>
    ```
  }];
}

//===- plan: when and where ------------------------------------------------------------------===//

def LowerGraphToPlan : Pass<"lower-graph-to-plan", "::mlir::ModuleOp"> {
  let summary = "Makes each entry a plan.program of launches over buffers";
  let description = [{
    Regions become generated kernels, other operations launches of hand-written ones; reshapes and contiguous slices are
    views. A new value of the state is written in place where every reader of the old one can run before.
  }];
  let constructor = "::sluice::createLowerGraphToPlan()";
  let dependentDialects = ["::sluice::plan::PlanDialect"];
}

def ChainLaunches : Pass<"chain-launches", "::mlir::ModuleOp"> {
  let summary = "Runs a region on the rows of a product while they are in the cache";
  let description = [{
    A product or convolution and the region that reads its result row by row become one launch of two stages.

    ```mlir
    plan.launch "contract" units 21 chunk 2 { plan.stage @gemm_packed_f32 ins(%x, %w) outs(%h) ... }
    plan.launch "add+gelu" units 1024 chunk 64 { plan.stage @kernel_0 ins(%b, %h) outs(%y) }
    // becomes
    plan.launch "contract+add+gelu" units 16 chunk 2 {
      plan.stage @gemm_packed_f32 ins(%x, %w) outs(%h) ...
      plan.stage @kernel_0 ins(%b, %h) outs(%y) {unit_scale = 64 : i64}
    }
    ```
  }];
  let constructor = "::sluice::createChainLaunches()";
}

def OrderPlan : Pass<"order-plan", "::mlir::ModuleOp"> {
  let summary = "Moves launches so that fewer bytes are live together";
  let constructor = "::sluice::createOrderPlan()";
}

def StreamOffload : Pass<"stream-offload", "::mlir::ModuleOp"> {
  let summary = "Moves what lies in the host's memory to the device where launches need it, and back";
  let description = [{
    State with `space = "host"`, and buffers with `offload`, get bytes on the device for each stretch of launches that
    uses them, copies in a queue beside the launches, and waits between the two queues. Copies to the device begin as
    late as the predicted times allow without keeping a launch waiting. With `at_once` launches wait instead, which
    needs the fewest bytes.

    ```mlir
    %h = plan.buffer "h" "activations" size 4096 {offload}
    // becomes
    %0 = plan.buffer "h" "activations" in "host" size 4096
    %1 = plan.buffer "h" "activations" size 4096 {offloaded}
    %2 = plan.buffer "h" "activations" size 4096 {offloaded}
    plan.queue @copy {
      plan.wait @compute 1
      plan.copy "h" %1 to %0 {predicted_us = 2.4 : f64}
      plan.wait @compute 6
      plan.copy "h" %0 to %2 {predicted_us = 2.4 : f64}
      plan.signal 2
    }
    ```
  }];
  let constructor = "::sluice::createStreamOffload()";
}

def FuseUpdates : Pass<"fuse-updates", "::mlir::ModuleOp"> {
  let summary = "Applies updates to tiles of gradients that are never stored";
  let description = [{
    Where a gradient of f32 is written by one product (or convolution) and read by nothing but the elementwise update of its parameter, both
    become a launch of two stages: a worker computes a tile of the gradient in its scratch and updates the same tile of the
    parameter and its moments. Taken where the cost model sees no loss and no instant then needs more than the peak.
    Programs with copies to the host are left as they are. Predicted times are added up.

    ```mlir
    plan.launch "contract" units 22 chunk 1 node "fc1" { plan.stage @gemm_f32 ins(%dy, %x) outs(%g) scratch(%s) {params = ...} }
    plan.launch "mul+sub" units 100 chunk 8 node "fc1.weight" { plan.stage @kernel_0 ins(%lr, %g, %w) outs(%w) {params = array<i64: 409600>} }
    // becomes
    plan.launch "contract+mul+sub" units 22 chunk 1 node "fc1+fc1.weight" {
      plan.stage @gemm_f32 ins(%dy, %x) outs(%tiles) scratch(%s) {params = ..., unit_strides = array<i64: 0, 0, 98304, 0>, ...}
      plan.stage @kernel_0_tiles_1 ins(%lr, %tiles, %w) outs(%w) {params = array<i64: 409600, 512, 800, 48, 512>, ...}
    }
    ```
  }];
  let constructor = "::sluice::createFuseUpdates()";
}

def MergeUpdates : Pass<"merge-updates", "::mlir::ModuleOp"> {
  let summary = "Makes launches of the same elementwise update one launch over many tensors";
  let description = [{
    Updates of parameters share a kernel that takes any number of elements. Those that follow each other become one launch whose
    parts are the tensors, and so do small ones that other launches lie between, where their gradients may wait
    without raising the peak. Programs with copies to the host are left as they are. Predicted times are added up.

    ```mlir
    plan.launch "mul+sub" units 25 chunk 8 node "fc1.weight" { plan.stage @kernel_0 ins(%lr, %g1, %w1) outs(%w1) {params = array<i64: 100352>} }
    plan.launch "mul+sub" units 1 chunk 1 node "fc2.weight" { plan.stage @kernel_0 ins(%lr, %g2, %w2) outs(%w2) {params = array<i64: 640>} }
    // becomes
    plan.launch "mul+sub" units 26 chunk 9 node "fc1.weight+fc2.weight" {
      plan.stage @kernel_0 ins(%lr, %g1, %w1) outs(%w1) {params = array<i64: 100352>, part = array<i64: 0, 25>}
      plan.stage @kernel_0 ins(%lr, %g2, %w2) outs(%w2) {params = array<i64: 640>, part = array<i64: 25, 1>}
    }
    ```
  }];
  let constructor = "::sluice::createMergeUpdates()";
}

def ScheduleCollectives : Pass<"schedule-collectives", "::mlir::ModuleOp"> {
  let summary = "Gives the collectives of ranks a queue of their own, several buffers as one message";
  let description = [{
    A message (bucket) begins when the last of its buffers is complete and travels while other launches run; launches that need its results go
    behind those that do not, as long as the predicted times gain from it, under a budget only where the peak stays what it is. Bytes per message:
    `comm.bucket`, or those at which latency is a twentieth of the time. @update has the messages of @step.

    ```mlir
    plan.launch "all_reduce" ... {plan.collective = "grad/w"} { plan.stage @all_reduce ins(%dw) outs(%dw) }
    plan.launch "sgd" ... { plan.stage @kernel_0 ins(%dw, %w) outs(%w) }
    plan.launch "contract" ... { plan.stage @gemm_f32 ins(%dy, %v) outs(%dx) }
    // becomes
    plan.signal 4
    plan.launch "contract" ... { plan.stage @gemm_f32 ins(%dy, %v) outs(%dx) }
    plan.wait @comm 1
    plan.launch "sgd" ... { plan.stage @kernel_0 ins(%dw, %w) outs(%w) }
    plan.queue @comm {
      plan.wait @compute 4
      plan.collective "all_reduce" ["grad/w"] of f32 ins(%dw) outs(%dw)
      plan.signal 1
    }
    ```
  }];
  let constructor = "::sluice::createScheduleCollectives()";
}

def PlanMemory : Pass<"plan-memory", "::mlir::ModuleOp"> {
  let summary = "Gives every buffer its live range and its offset";
  let constructor = "::sluice::createPlanMemory()";
}

def PredictTimes : Pass<"predict-times", "::mlir::ModuleOp"> {
  let summary = "Writes the roofline time of each launch and program";
  let constructor = "::sluice::createPredictTimes()";
}

def VerifyPlan : Pass<"verify-plan", "::mlir::ModuleOp"> {
  let summary = "Proves that no live buffers overlap, both queues are ordered and no launch leaves its operands";
  let constructor = "::sluice::createVerifyPlan()";
}

#endif
