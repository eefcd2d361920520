#include "kernels/Catalog.h"

#include "kernels/AttentionExtents.h"
#include "kernels/ConvExtents.h"
#include "kernels/CtcExtents.h"
#include "kernels/GemmExtents.h"
#include "kernels/MoveExtents.h"
#include "kernels/Params.h"
#include "kernels/cpu/Kernels.h"

#include <algorithm>
#include <array>

namespace sluice {
namespace {

struct Entry {
  std::string_view name;
  KernelFn byLevel[4]; ///< indexed by FeatureLevel
  int64_t params;
  extent::Describe describe;
  int64_t added = 0; ///< of the parameters, those that the first plans do not have
};

#define SLUICE_PAIRED(function)                                                          \
  {v3::function, v4::function, dots::function, amx::function}
#define SLUICE_LEVELS(function) {v3::function, v4::function, v4::function, v4::function}
#define SLUICE_ALL(function) {v3::function, v3::function, v3::function, v3::function}

// Sorted by name. To add a kernel: a struct of parameters, a description, a line here.
constexpr Entry kEntries[] = {
    {"arg_reduce_f32", SLUICE_ALL(argReduce), paramCount<ArgReduceParams>,
     extent::describeArgReduce},
    {"arg_reduce_i64", SLUICE_ALL(argReduceI64), paramCount<ArgReduceParams>,
     extent::describeArgReduceI64},
    {"attention_f32", SLUICE_PAIRED(attentionForward), paramCount<AttentionParams>,
     extent::describeAttention},
    {"attention_grad_f32", SLUICE_PAIRED(attentionGrad), paramCount<AttentionGradParams>,
     extent::describeAttentionGrad},
    {"avg_pool_f32", SLUICE_ALL(avgPool), paramCount<PoolParams>, extent::describeAvgPool,
     3},
    {"avg_pool_grad_f32", SLUICE_ALL(avgPoolGrad), paramCount<PoolParams>,
     extent::describeAvgPoolGrad, 3},
    {"conv_forward_f32", SLUICE_PAIRED(convForward), paramCount<ConvParams>,
     extent::describeConvForward},
    {"conv_input_grad_f32", SLUICE_PAIRED(convInputGrad), paramCount<ConvParams>,
     extent::describeConvInputGrad},
    {"conv_weight_grad_f32", SLUICE_PAIRED(convWeightGrad),
     paramCount<ConvWeightGradParams>, extent::describeConvWeightGrad, 3},
    {"copy_strided", SLUICE_ALL(copyStrided), paramCount<CopyParams>,
     extent::describeCopy},
    {"ctc_loss_f32", SLUICE_ALL(ctcLoss), paramCount<CtcParams>, extent::describeCtcLoss},
    {"ctc_loss_grad_f32", SLUICE_ALL(ctcLossGrad), paramCount<CtcParams>,
     extent::describeCtcLossGrad},
    {"cumsum_f32", SLUICE_ALL(cumsum), paramCount<CumsumParams>, extent::describeCumsum},
    {"cumsum_i64", SLUICE_ALL(cumsumI64), paramCount<CumsumParams>,
     extent::describeCumsumI64},
    {"depthwise_forward_f32", SLUICE_LEVELS(depthwiseForward),
     paramCount<DepthwiseParams>, extent::describeDepthwiseForward, 3},
    {"depthwise_input_grad_f32", SLUICE_LEVELS(depthwiseInputGrad),
     paramCount<DepthwiseParams>, extent::describeDepthwiseInputGrad, 3},
    {"depthwise_weight_grad_f32", SLUICE_LEVELS(depthwiseWeightGrad),
     paramCount<DepthwiseWeightGradParams>, extent::describeDepthwiseWeightGrad, 3},
    {"fill", SLUICE_ALL(fillElements), paramCount<FillParams>, extent::describeFill},
    {"gather", SLUICE_ALL(gather), paramCount<GatherParams>, extent::describeGather},
    {"gather_elements", SLUICE_ALL(gatherElements), paramCount<GatherElementsParams>,
     extent::describeGatherElements},
    {"gemm_f32", SLUICE_PAIRED(gemm), paramCount<GemmParams>, extent::describeGemm, 10},
    {"gemm_pack_b_f32", SLUICE_PAIRED(gemmPackB), paramCount<GemmPackBParams>,
     extent::describeGemmPackB, 2},
    {"gemm_packed_f32", SLUICE_PAIRED(gemmPacked), paramCount<GemmParams>,
     extent::describeGemmPacked, 10},
    {"gemm_splitk_f32", SLUICE_PAIRED(gemmSplitK), paramCount<GemmSplitKParams>,
     extent::describeGemmSplitK, 8},
    {"max_pool_f32", SLUICE_ALL(maxPool), paramCount<PoolParams>, extent::describeMaxPool,
     3},
    {"max_pool_grad_f32", SLUICE_ALL(maxPoolGrad), paramCount<PoolParams>,
     extent::describeMaxPoolGrad, 3},
    {"scatter_add_f32", SLUICE_ALL(scatterAdd), paramCount<ScatterAddParams>,
     extent::describeScatterAdd, 2},
    {"scatter_elements", SLUICE_ALL(scatterElements), paramCount<ScatterElementsParams>,
     extent::describeScatterElements},
    {"scatter_elements_add_f32", SLUICE_ALL(scatterElementsAdd),
     paramCount<ScatterElementsParams>, extent::describeScatterElementsAdd},
    {"scatter_elements_max_f32", SLUICE_ALL(scatterElementsMax),
     paramCount<ScatterElementsParams>, extent::describeScatterElementsAdd},
    {"scatter_elements_min_f32", SLUICE_ALL(scatterElementsMin),
     paramCount<ScatterElementsParams>, extent::describeScatterElementsAdd},
    {"scatter_elements_mul_f32", SLUICE_ALL(scatterElementsMul),
     paramCount<ScatterElementsParams>, extent::describeScatterElementsAdd},
    {"sum_slices_f32", SLUICE_LEVELS(sumSlices), paramCount<SumSlicesParams>,
     extent::describeSumSlices, 1},
};

constexpr bool entriesAreSorted() {
  for (size_t i = 1; i < std::size(kEntries); ++i)
    if (kEntries[i - 1].name >= kEntries[i].name)
      return false;
  return true;
}
static_assert(entriesAreSorted());

constexpr bool addedParamsAreBounded() {
  for (const Entry &e : kEntries)
    if (e.added > static_cast<int64_t>(kAddedParams))
      return false;
  return true;
}
static_assert(addedParamsAreBounded());

constexpr auto kNames = [] {
  std::array<std::string_view, std::size(kEntries)> names;
  for (size_t i = 0; i < names.size(); ++i)
    names[i] = kEntries[i].name;
  return names;
}();

const Entry *find(std::string_view name) {
  auto it =
      std::lower_bound(std::begin(kEntries), std::end(kEntries), name,
                       [](const Entry &e, std::string_view n) { return e.name < n; });
  return it != std::end(kEntries) && it->name == name ? it : nullptr;
}

} // namespace

KernelFn findBuiltinKernel(std::string_view name, FeatureLevel level) {
  const Entry *e = find(name);
  return e ? e->byLevel[static_cast<size_t>(level)] : nullptr;
}

std::span<const std::string_view> builtinKernelNames() { return kNames; }

bool describeBuiltinLaunch(std::string_view name, const int64_t *params, size_t nparams,
                           int64_t units, std::vector<OperandExtent> &extents,
                           std::string &why) {
  const Entry *e = find(name);
  if (!e) {
    why = "no builtin kernel is called '" + std::string(name) + "'";
    return false;
  }
  size_t most = static_cast<size_t>(e->params), added = static_cast<size_t>(e->added);
  if (nparams > most || nparams < most - added) {
    why = "'" + std::string(name) + "' got " + std::to_string(nparams) +
          " parameters, expected " + std::to_string(e->params);
    return false;
  }
  extent::Extents collected(extents, why);
  std::vector<int64_t> all(params, params + nparams);
  all.resize(most);
  if (e->describe(all.data(), units, collected))
    return true;
  why = "'" + std::string(name) + "': " + why;
  return false;
}

bool validBuiltinLaunch(std::string_view name, const int64_t *params, size_t nparams,
                        const int64_t *operandSizes, size_t nops, int64_t units,
                        std::string &why) {
  std::vector<OperandExtent> extents;
  if (!describeBuiltinLaunch(name, params, nparams, units, extents, why))
    return false;
  if (nops != extents.size()) {
    why = "'" + std::string(name) + "' got " + std::to_string(nops) +
          " operands, expected " + std::to_string(extents.size());
    return false;
  }
  for (size_t i = 0; i < nops; ++i)
    if (operandSizes[i] < extents[i].bytes) {
      why = "operand " + std::to_string(i) + " of '" + std::string(name) + "' has " +
            std::to_string(operandSizes[i]) + " bytes, expected at least " +
            std::to_string(extents[i].bytes);
      return false;
    }
  return true;
}

} // namespace sluice
