// The public header as C11, used the way a service would.

#include "c_api.h"

#include <sluice/sluice.h>

#include <stdalign.h>
#include <stdio.h>
#include <string.h>

static char problem[512];

// Leaves the function with the condition, the line and the library's own reason.
#define CHECK(condition)                                                                 \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      snprintf(problem, sizeof problem, "line %d: %s (%s | %s)", __LINE__, #condition,   \
               sluice_last_error(), sluice_session_error(session));                      \
      sluice_session_destroy(session);                                                   \
      sluice_plan_close(plan);                                                           \
      return problem;                                                                    \
    }                                                                                    \
  } while (0)

static void countLine(const char *line, void *user) {
  if (line[0] != 0)
    ++*(int *)user;
}

const char *c_api_train(const char *path, const char *folder) {
  sluice_plan *plan = NULL;
  sluice_session *session = NULL;
  static alignas(64) unsigned char state[4096], step[4096];
  int lines = 0;
  sluice_session_options options = {0};
  options.log = countLine;
  options.log_user = &lines;
  options.state_memory = state;
  options.state_bytes = sizeof state;
  options.step_memory = step;
  options.step_bytes = sizeof step;
  CHECK(sluice_plan_open(path, &plan) == SLUICE_OK);
  sluice_memory memory;
  CHECK(sluice_plan_memory(plan, &memory) == SLUICE_OK);
  CHECK(memory.state_bytes <= sizeof state && memory.step_bytes <= sizeof step);
  CHECK(memory.host_state_bytes == 0 && memory.host_step_bytes == 0);
  CHECK(sluice_session_create(plan, &options, &session) == SLUICE_OK);
  sluice_plan_close(plan); // the session keeps it
  plan = NULL;

  float targets[2] = {0, 1}, w = 0;
  const void *inputs[1] = {targets};
  sluice_step_result result;
  CHECK(sluice_session_step(session, inputs, 1, 2, &result) == SLUICE_OK);
  CHECK(result.updated && result.loss_sum == 5 && result.loss_count == 2);
  CHECK(!result.has_grad_norm);
  CHECK(sluice_session_read_state(session, "param/w", &w, sizeof w) == SLUICE_OK);
  CHECK(w == 1.25f);
  CHECK(sluice_session_eval(session, inputs, 1, 1, &result) == SLUICE_OK);
  CHECK(result.loss_sum == 1.5625 && !result.updated);
  CHECK(sluice_session_save(session, folder) == SLUICE_OK);

  double lr = 0;
  CHECK(sluice_session_get_lr(session, NULL, &lr) == SLUICE_OK && lr == 0.25);
  CHECK(sluice_session_set_lr(session, "main", 0.5) == SLUICE_OK);
  CHECK(sluice_session_step(session, inputs, 1, 1, NULL) == SLUICE_OK);
  CHECK(sluice_session_updates(session) == 2 && sluice_session_samples(session) == 3);
  CHECK(sluice_session_load(session, folder) == SLUICE_OK);
  CHECK(sluice_session_updates(session) == 1 && sluice_session_samples(session) == 2);
  CHECK(sluice_session_read_state(session, "param/w", &w, sizeof w) == SLUICE_OK);
  CHECK(w == 1.25f);
  w = 3;
  CHECK(sluice_session_write_state(session, "param/w", &w, sizeof w) == SLUICE_OK);
  CHECK(sluice_session_infer(session, inputs, 1, 2) == SLUICE_OK);
  const void *data = NULL;
  size_t bytes = 0;
  CHECK(sluice_session_output(session, "y", &data, &bytes) == SLUICE_OK);
  CHECK(bytes == 8 && ((const float *)data)[1] == 3.0f);
  int64_t shape[2] = {0, 0};
  size_t rank = 0;
  CHECK(sluice_session_output_shape(session, "y", shape, 2, &rank) == SLUICE_OK);
  CHECK(rank == 1 && shape[0] == 2);
  CHECK(sluice_session_output_shape(session, "y", shape, 0, &rank) == SLUICE_USAGE);
  CHECK(strcmp(sluice_session_error(session),
               "output 'y' has rank 1, there is room for 0") == 0);
  CHECK(sluice_session_output(session, "y", &data, &bytes) == SLUICE_OK);
  CHECK(strcmp(sluice_session_error(session), "") == 0);
  CHECK(lines == 0);
  sluice_session_destroy(session);
  return "";
}

const char *c_api_describe(const char *path) {
  sluice_plan *plan = NULL;
  sluice_session *session = NULL;
  sluice_tensor_info info;
  CHECK(strcmp(sluice_version(), "0.1.0") == 0);
  CHECK(sluice_plan_open(path, &plan) == SLUICE_OK);
  CHECK(sluice_plan_check(plan) == SLUICE_OK);
  CHECK(sluice_plan_program_count(plan) == 3);
  CHECK(strcmp(sluice_plan_program(plan, 2), "infer") == 0);
  CHECK(sluice_plan_program(plan, 3) == NULL);
  CHECK(sluice_plan_input_count(plan, "step") == 1);
  CHECK(sluice_plan_output_count(plan, "step") == 2);
  CHECK(sluice_plan_input_count(plan, "none") == 0);
  CHECK(sluice_plan_input(plan, "step", 0, &info) == SLUICE_OK);
  CHECK(strcmp(info.name, "t") == 0 && info.dtype == SLUICE_F32 && info.batched);
  CHECK(info.rank == 1 && info.shape[0] == 2 && info.bytes == 8);
  CHECK(sluice_plan_output(plan, "step", 1, &info) == SLUICE_OK);
  CHECK(strcmp(info.name, "loss_count") == 0 && info.rank == 0 && !info.batched);
  CHECK(sluice_plan_output(plan, "step", 2, &info) == SLUICE_USAGE);
  CHECK(sluice_plan_state(plan, 0, &info) == SLUICE_OK);
  CHECK(strcmp(info.name, "param/w") == 0 && info.trainable && info.saved);
  CHECK(sluice_plan_state(plan, sluice_plan_state_count(plan), &info) == SLUICE_USAGE);
  CHECK(sluice_plan_group_count(plan) == 1);
  CHECK(strcmp(sluice_plan_group(plan, 0), "main") == 0);
  CHECK(strcmp(sluice_plan_model_name(plan), "test") == 0);
  CHECK(sluice_plan_threads(plan) == 1 && sluice_plan_batch(plan) == 2);
  CHECK(sluice_plan_accumulate(plan) == 1 && !sluice_plan_full_batches(plan));
  sluice_plan_close(plan);
  return "";
}

const char *c_api_misuse(const char *path) {
  sluice_plan *plan = NULL;
  sluice_session *session = NULL;
  sluice_session_options options = {0};
  float targets[2] = {0, 1};
  const void *inputs[1] = {targets};
  const void *none[1] = {NULL};
  CHECK(sluice_plan_open(NULL, &plan) == SLUICE_USAGE);
  CHECK(sluice_plan_open(path, NULL) == SLUICE_USAGE);
  CHECK(sluice_plan_open("no-such-file", &plan) == SLUICE_REFUSED && plan == NULL);
  CHECK(strstr(sluice_last_error(), "no-such-file") != NULL);
  CHECK(sluice_plan_open_memory("SLUICEPL", 8, &plan) == SLUICE_DAMAGED);
  CHECK(sluice_session_create(NULL, NULL, &session) == SLUICE_USAGE);
  CHECK(sluice_session_step(NULL, inputs, 1, 2, NULL) == SLUICE_USAGE);
  sluice_session_destroy(NULL);
  sluice_plan_close(NULL);

  CHECK(sluice_plan_open(path, &plan) == SLUICE_OK);
  CHECK(strcmp(sluice_last_error(), "") == 0);
  options.threads = 9;
  CHECK(sluice_session_create(plan, &options, &session) == SLUICE_USAGE);
  options.threads = 0;
  options.level = (sluice_level)7;
  CHECK(sluice_session_create(plan, &options, &session) == SLUICE_USAGE);
  options.level = SLUICE_LEVEL_V3;
  options.release = NULL;
  CHECK(sluice_session_create(plan, &options, &session) == SLUICE_OK);
  CHECK(sluice_session_step(session, inputs, 2, 2, NULL) == SLUICE_USAGE);
  CHECK(sluice_session_step(session, NULL, 1, 2, NULL) == SLUICE_USAGE);
  CHECK(sluice_session_step(session, none, 1, 2, NULL) == SLUICE_USAGE);
  CHECK(sluice_session_step(session, inputs, 1, 0, NULL) == SLUICE_USAGE);
  CHECK(sluice_session_step(session, inputs, 1, 3, NULL) == SLUICE_USAGE);
  CHECK(strstr(sluice_session_error(session), "1 to 2 samples, 3 are given") != NULL);
  CHECK(sluice_session_read_state(session, "param/u", targets, 4) == SLUICE_USAGE);
  CHECK(sluice_session_read_state(session, "param/w", targets, 8) == SLUICE_USAGE);
  CHECK(sluice_session_load(session, "no-such-folder") == SLUICE_REFUSED);
  CHECK(sluice_session_load_weights(session, "no-such-file") == SLUICE_REFUSED);
  CHECK(sluice_session_updates(session) == 0);
  sluice_session_destroy(session);
  sluice_plan_close(plan);
  return "";
}

const char *c_api_accumulate(const char *path) {
  sluice_plan *plan = NULL;
  sluice_session *session = NULL;
  float targets[2] = {0, 1};
  const void *inputs[1] = {targets};
  sluice_step_result result;
  CHECK(sluice_plan_open(path, &plan) == SLUICE_OK);
  CHECK(sluice_plan_accumulate(plan) == 3);
  CHECK(sluice_session_create(plan, NULL, &session) == SLUICE_OK);
  CHECK(sluice_session_step(session, inputs, 1, 2, &result) == SLUICE_OK);
  CHECK(!result.updated);
  CHECK(sluice_session_save(session, "nowhere") == SLUICE_USAGE);
  CHECK(sluice_session_flush(session, &result) == SLUICE_OK);
  CHECK(result.updated && result.window_loss_sum == 5);
  CHECK(sluice_session_flush(session, &result) == SLUICE_OK && !result.updated);
  CHECK(sluice_session_apply_pending(session) == SLUICE_OK); /* nothing ever waits */
  sluice_session_destroy(session);
  sluice_plan_close(plan);
  return "";
}

const char *c_api_host(const char *path) {
  sluice_plan *plan = NULL;
  sluice_session *session = NULL;
  static alignas(64) unsigned char host[256];
  sluice_session_options options = {0};
  CHECK(sluice_plan_open(path, &plan) == SLUICE_OK);
  sluice_memory memory;
  CHECK(sluice_plan_memory(plan, &memory) == SLUICE_OK);
  CHECK(memory.host_state_bytes == 128 && memory.host_step_bytes == 0);
  options.host_state_memory = host;
  options.host_state_bytes = 64;
  CHECK(sluice_session_create(plan, &options, &session) == SLUICE_DOES_NOT_FIT);
  CHECK(strstr(sluice_last_error(), "host state") != NULL);
  options.host_state_bytes = sizeof host;
  CHECK(sluice_session_create(plan, &options, &session) == SLUICE_OK);

  float target = 1, in_arena = 0, read = 0;
  const void *inputs[1] = {&target};
  CHECK(sluice_session_step(session, inputs, 1, 1, NULL) == SLUICE_OK);
  CHECK(sluice_session_read_state(session, "opt/w/m", &read, sizeof read) == SLUICE_OK);
  memcpy(&in_arena, host, sizeof in_arena);
  CHECK(read != 0 && read == in_arena);
  sluice_session_destroy(session);
  sluice_plan_close(plan);
  return "";
}

// 'a' is stored in 16 bits and the rest to f32, 'b' in 16 bits alone, 'n' as integers.
const char *c_api_parameters(const char *path) {
  sluice_plan *plan = NULL;
  sluice_session *session = NULL;
  float a[2] = {0.1f, -3.3333333f}, b[2] = {0.1f, 1.5f}, read[2] = {0, 0};
  uint16_t high[2], zeros[2] = {0, 0};
  int16_t low[2];
  CHECK(sluice_plan_open(path, &plan) == SLUICE_OK);
  CHECK(sluice_session_create(plan, NULL, &session) == SLUICE_OK);
  CHECK(sluice_session_write_parameter(session, "a", a, 2) == SLUICE_OK);
  CHECK(sluice_session_read_parameter(session, "a", read, 2) == SLUICE_OK);
  CHECK(memcmp(read, a, sizeof a) == 0);
  CHECK(sluice_session_read_parameter(session, "param/a", read, 2) == SLUICE_OK);
  CHECK(memcmp(read, a, sizeof a) == 0);
  CHECK(sluice_session_read_state(session, "param/a", high, 4) == SLUICE_OK);
  CHECK(sluice_session_read_state(session, "master/a/low", low, 4) == SLUICE_OK);
  CHECK(high[0] == 0x3dcd && low[0] == (int16_t)0xcccd); // 0.1f is 0x3dcccccd
  CHECK(sluice_session_write_state(session, "master/a/low", zeros, 4) == SLUICE_OK);
  CHECK(sluice_session_read_parameter(session, "a", read, 2) == SLUICE_OK);
  CHECK(read[0] == 0.10009765625f); // the 16 bits alone

  CHECK(sluice_session_write_parameter(session, "b", b, 2) == SLUICE_OK);
  CHECK(sluice_session_read_parameter(session, "b", read, 2) == SLUICE_OK);
  CHECK(read[0] == 0.10009765625f && read[1] == 1.5f);
  CHECK(sluice_session_read_parameter(session, "w", read, 1) == SLUICE_OK);
  CHECK(read[0] == 2.0f);

  CHECK(sluice_session_read_parameter(session, "a", read, 1) == SLUICE_USAGE);
  CHECK(strstr(sluice_session_error(session), "'a' has 2 values, 1 are given") != NULL);
  CHECK(sluice_session_write_parameter(session, "n", b, 2) == SLUICE_USAGE);
  CHECK(strstr(sluice_session_error(session), "'n' is i64") != NULL);
  CHECK(sluice_session_write_parameter(session, "none", b, 2) == SLUICE_USAGE);
  CHECK(sluice_session_read_parameter(session, NULL, read, 2) == SLUICE_USAGE);
  CHECK(sluice_session_read_parameter(session, "a", NULL, 2) == SLUICE_USAGE);
  CHECK(sluice_session_write_parameter(NULL, "a", b, 2) == SLUICE_USAGE);
  sluice_session_destroy(session);
  sluice_plan_close(plan);
  return "";
}
