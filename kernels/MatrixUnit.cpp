#include "kernels/MatrixUnit.h"

#include "kernels/Params.h"

#include <cstring>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace sluice {

std::vector<std::string> missingForTiles() {
  std::vector<std::string> missing;
#if defined(__x86_64__) && defined(__linux__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
    edx = 0;
  if (!(edx & 1u << 24))
    missing.push_back("amx-tile");
  if (!(edx & 1u << 22))
    missing.push_back("amx-bf16");
  constexpr long kRequestPermission = 0x1023; // ARCH_REQ_XCOMP_PERM, Linux 5.16
  constexpr long kTileData = 18;              // the state component
  if (missing.empty() && syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0)
    missing.push_back("the operating system's permission to use tiles");
#else
  missing.push_back("amx-tile");
#endif
  return missing;
}

template <typename P> static bool readsPairs(const int64_t *params, size_t nparams) {
  if (static_cast<int64_t>(nparams) > paramCount<P>)
    return false;
  P p; // later parameters may be absent
  std::memcpy(static_cast<void *>(&p), params, nparams * sizeof *params);
  return usesPairs(p.aType, p.bType);
}

bool multipliesBf16(std::string_view kernel, const int64_t *params, size_t nparams) {
  if (kernel == "gemm_f32" || kernel == "gemm_packed_f32")
    return readsPairs<GemmParams>(params, nparams);
  if (kernel == "gemm_splitk_f32")
    return readsPairs<GemmSplitKParams>(params, nparams);
  if (kernel == "conv_forward_f32" || kernel == "conv_input_grad_f32") {
    if (static_cast<int64_t>(nparams) != paramCount<ConvParams>)
      return false;
    auto p = unpackParams<ConvParams>(params);
    return usesPairs(p.sourceType, p.wType);
  }
  if (kernel == "conv_weight_grad_f32") {
    if (static_cast<int64_t>(nparams) != paramCount<ConvWeightGradParams>)
      return false;
    auto p = unpackParams<ConvWeightGradParams>(params);
    return usesPairs(p.xType, p.dyType);
  }
  // A gradient begins with the parameters of its attention.
  constexpr size_t kAttention = paramCount<AttentionParams>;
  return (kernel == "attention_f32" || kernel == "attention_grad_f32") &&
         nparams >= kAttention &&
         unpackParams<AttentionParams>(params).type == format::kBf16;
}

} // namespace sluice
