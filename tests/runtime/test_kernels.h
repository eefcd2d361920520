#pragma once
// The calling convention of kernels/Kernel.h, for C.

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TEST_KERNEL_ARGUMENTS                                                            \
  void *const *buffers, const int64_t *params, int64_t begin, int64_t end, int64_t worker

void test_step_sgd(TEST_KERNEL_ARGUMENTS);
void test_micro(TEST_KERNEL_ARGUMENTS);
void test_update_sgd(TEST_KERNEL_ARGUMENTS);
void test_step_adam(TEST_KERNEL_ARGUMENTS);
void test_eval(TEST_KERNEL_ARGUMENTS);
void test_infer(TEST_KERNEL_ARGUMENTS);
void test_rows(TEST_KERNEL_ARGUMENTS);
void test_reverse(TEST_KERNEL_ARGUMENTS);
void test_count(TEST_KERNEL_ARGUMENTS);

#ifdef __cplusplus
}
#endif
