// Kernels of the hand-built plans. Compiled twice: into the tests, and into a machine
// code image as a plan carries it.

#include "test_kernels.h"

static float *f32(void *const *buffers, int i) { return (float *)buffers[i]; }
static int64_t *i64(void *const *buffers, int i) { return (int64_t *)buffers[i]; }

// loss (w - t)^2 summed over the valid targets; gives the sum of 2 (w - t)
static float lossAndGradient(const float *targets, int64_t valid, float w, float *lossSum,
                             float *lossCount) {
  float sum = 0, gradient = 0;
  for (int64_t i = 0; i < valid; ++i) {
    float difference = w - targets[i];
    sum += difference * difference;
    gradient += 2 * difference;
  }
  *lossSum = sum;
  *lossCount = (float)valid;
  return gradient;
}

// targets, valid, lr, w, loss_sum, loss_count
void test_step_sgd(TEST_KERNEL_ARGUMENTS) {
  (void)params, (void)begin, (void)end, (void)worker;
  int64_t valid = *i64(buffers, 1);
  float gradient = lossAndGradient(f32(buffers, 0), valid, *f32(buffers, 3),
                                   f32(buffers, 4), f32(buffers, 5));
  *f32(buffers, 3) -= *f32(buffers, 2) * (gradient / (float)valid);
}

// targets, valid, w, gradient, count, loss_sum, loss_count
void test_micro(TEST_KERNEL_ARGUMENTS) {
  (void)params, (void)begin, (void)end, (void)worker;
  int64_t valid = *i64(buffers, 1);
  *f32(buffers, 3) += lossAndGradient(f32(buffers, 0), valid, *f32(buffers, 2),
                                      f32(buffers, 5), f32(buffers, 6));
  *f32(buffers, 4) += (float)valid;
}

// gradient, count, lr, w
void test_update_sgd(TEST_KERNEL_ARGUMENTS) {
  (void)params, (void)begin, (void)end, (void)worker;
  *f32(buffers, 3) -= *f32(buffers, 2) * (*f32(buffers, 0) / *f32(buffers, 1));
  *f32(buffers, 0) = 0;
  *f32(buffers, 1) = 0;
}

// lr, bc1, bc2, w, m, v, loss_sum, loss_count: the gradient is 1 at every step
void test_step_adam(TEST_KERNEL_ARGUMENTS) {
  (void)params, (void)begin, (void)end, (void)worker;
  float *m = f32(buffers, 4), *v = f32(buffers, 5);
  *m = 0.9f * *m + 0.1f;
  *v = 0.999f * *v + 0.001f;
  float root = __builtin_sqrtf(*v / *f32(buffers, 2));
  *f32(buffers, 3) -= *f32(buffers, 0) * (*m / *f32(buffers, 1)) / (root + 1e-8f);
  *f32(buffers, 6) = *f32(buffers, 3);
  *f32(buffers, 7) = 1;
}

// targets, valid, w, loss_sum, loss_count
void test_eval(TEST_KERNEL_ARGUMENTS) {
  (void)params, (void)begin, (void)end, (void)worker;
  lossAndGradient(f32(buffers, 0), *i64(buffers, 1), *f32(buffers, 2), f32(buffers, 3),
                  f32(buffers, 4));
}

// x, w, y: y[unit] = w * x[unit]
void test_infer(TEST_KERNEL_ARGUMENTS) {
  (void)params, (void)worker;
  for (int64_t i = begin; i < end; ++i)
    f32(buffers, 2)[i] = *f32(buffers, 1) * f32(buffers, 0)[i];
}

// x, y; params: columns. y[row][c] = x[row][c] * 3 + row
void test_rows(TEST_KERNEL_ARGUMENTS) {
  (void)worker;
  int64_t columns = params[0];
  for (int64_t row = begin; row < end; ++row)
    for (int64_t c = 0; c < columns; ++c)
      f32(buffers, 1)[row * columns + c] =
          f32(buffers, 0)[row * columns + c] * 3 + (float)row;
}

// x, scratch per worker (columns floats), y; params: columns. The row reversed by way of
// the scratch
void test_reverse(TEST_KERNEL_ARGUMENTS) {
  (void)worker;
  int64_t columns = params[0];
  float *scratch = f32(buffers, 1);
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t c = 0; c < columns; ++c)
      scratch[c] = f32(buffers, 0)[row * columns + c];
    for (int64_t c = 0; c < columns; ++c)
      f32(buffers, 2)[row * columns + c] = scratch[columns - 1 - c];
  }
}

// out: adds the worker's number of units to counts[unit]
void test_count(TEST_KERNEL_ARGUMENTS) {
  (void)params, (void)worker;
  for (int64_t i = begin; i < end; ++i)
    f32(buffers, 0)[i] += 1;
}
