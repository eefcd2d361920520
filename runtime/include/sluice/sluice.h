/* Sluice: running compiled training plans from C (C11) and everything that calls C.
 *
 *   sluice_plan *plan;
 *   sluice_session *session;
 *   if (sluice_plan_open("model.plan", &plan) != SLUICE_OK) puts(sluice_last_error());
 *   if (sluice_session_create(plan, NULL, &session) != SLUICE_OK)
 * puts(sluice_last_error()); const void *inputs[] = {images, labels};          // in the
 * order of sluice_plan_port sluice_step_result result; sluice_session_step(session,
 * inputs, 2, 32, &result);
 *
 * Ownership
 *   - What a call of the form sluice_X_open or sluice_X_create gives belongs to the
 * caller, who ends it with sluice_X_close or sluice_X_destroy; both take NULL.
 *   - A session keeps its plan alive: the plan may be closed first.
 *   - Strings and structs the library returns belong to the plan (names, shapes) or to
 * the handle (messages) and stay valid until it is closed or, for messages, until the
 * next call with that handle.
 *   - Memory given by the caller (reservations, inputs, paths) stays the caller's.
 * Reservations must stay valid until the session is destroyed, everything else until the
 * call returns.
 *   - Memory from the allocator hooks is released through them when the session is
 * destroyed.
 *
 * Threads
 *   - A plan may be used by many threads at once. A session by one at a time. Different
 * sessions are independent.
 *   - A session owns `threads - 1` workers that sleep between calls; the calling thread
 * is the other worker. Its floating-point mode is set during a call and restored
 * afterwards.
 *
 * Errors
 *   - Every call returns a status; its value is the exit code the command line tool would
 * give. On failure the reason is sluice_session_error(session), or for calls without a
 * session sluice_last_error() of the calling thread.
 *   - No exception leaves the library, nothing is printed, the process is never ended.
 *   - Steps allocate no memory.
 */
#ifndef SLUICE_SLUICE_H
#define SLUICE_SLUICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SLUICE_API __attribute__((visibility("default")))
#else
#define SLUICE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define SLUICE_VERSION_MAJOR 0
#define SLUICE_VERSION_MINOR 1
#define SLUICE_VERSION_PATCH 0

typedef enum sluice_status {
  SLUICE_OK = 0,
  SLUICE_REFUSED = 1, /* the input or the request is wrong */
  SLUICE_USAGE = 2, /* the call is wrong: a null pointer, an unknown name, a wrong size */
  SLUICE_DOES_NOT_FIT = 3,    /* memory */
  SLUICE_CANNOT_RUN_HERE = 4, /* this machine lacks something the plan needs */
  SLUICE_DAMAGED = 5,         /* a file or its data is not what it says it is */
  SLUICE_FAILED = 6           /* a rank or device failed */
} sluice_status;

/* Element types; SLUICE_I1 takes one byte per element. */
typedef enum sluice_dtype {
  SLUICE_F32 = 0,
  SLUICE_F64,
  SLUICE_F16,
  SLUICE_BF16,
  SLUICE_I8,
  SLUICE_U8,
  SLUICE_I16,
  SLUICE_U16,
  SLUICE_I32,
  SLUICE_U32,
  SLUICE_I64,
  SLUICE_U64,
  SLUICE_I1
} sluice_dtype;

/* The best there is: AMX, then AVX512_BF16, where a plan multiplies bf16 and the
   processor can, else v4, v3. v3 (AVX2), v4 (AVX-512) and AVX512_BF16 (v4 with dot
   products of bf16) give the same bits; AMX is v4 with bf16 products on the matrix unit,
   which rounds in another order. AMX needs the operating system's permission, which is
   asked for when a session or a check needs it.
 */
typedef enum sluice_level {
  SLUICE_LEVEL_BEST = 0,
  SLUICE_LEVEL_V3 = 3,
  SLUICE_LEVEL_V4 = 4,
  SLUICE_LEVEL_AMX = 5,
  SLUICE_LEVEL_AVX512_BF16 = 6
} sluice_level;

typedef struct sluice_plan sluice_plan;
typedef struct sluice_session sluice_session;
typedef struct sluice_comm sluice_comm;           /* a rank's end of a group of ranks */
typedef struct sluice_transport sluice_transport; /* sluice/transport.h */

/* A tensor of the plan: an input or output of a program, or a piece of state. */
typedef struct sluice_tensor_info {
  const char *name;
  sluice_dtype dtype;
  size_t rank;
  const int64_t *shape; /* NULL when rank is 0 */
  size_t bytes;
  bool batched;   /* input or output: dimension 0 counts samples */
  bool trainable; /* state: a parameter that training changes */
  bool saved;     /* state: part of checkpoints */
} sluice_tensor_info;

/* A tensor of the caller's, row-major, for calls that choose the plan's shapes by it. */
typedef struct sluice_tensor {
  const void *data;
  size_t rank;
  const int64_t *shape; /* NULL when rank is 0; dimension 0 of a batched input counts the
                           samples given */
} sluice_tensor;

typedef struct sluice_memory {
  uint64_t state_bytes; /* parameters, moments, counters: the same in every call */
  uint64_t step_bytes;  /* everything else */
  uint64_t alignment;   /* of all, when the caller gives them */
  uint64_t
      host_state_bytes; /* of state that lies in the host's memory; 0 for most plans */
  uint64_t host_step_bytes; /* of values that lie there between two uses */
} sluice_memory;

typedef struct sluice_step_result {
  double loss_sum, loss_count; /* of this micro-batch; the mean loss is sum / count */
  double window_loss_sum,
      window_loss_count; /* since the last update, this micro-batch included */
  bool updated;          /* an update ended the window */
  bool has_grad_norm;
  float grad_norm;  /* before clipping */
  bool skipped;     /* an update that changed no parameter: a gradient was not finite */
  float loss_scale; /* of this step; 1 where the plan has none */
} sluice_step_result;

/* Zero is the default of every field: sluice_session_options options = {0}; */
typedef struct sluice_session_options {
  int threads; /* 0: as planned; at most as planned */
  sluice_level level;
  const char *weights;  /* file of the initial state; NULL: beside the plan */
  void *state_memory;   /* NULL: allocated */
  uint64_t state_bytes; /* size of state_memory */
  void *step_memory;
  uint64_t step_bytes;
  void *(*allocate)(size_t bytes, size_t alignment,
                    void *user); /* NULL: from the system */
  void (*release)(void *memory, size_t bytes, void *user);
  void *allocator_user;
  void (*log)(const char *line, void *user); /* NULL: dropped */
  void *log_user;
  bool accept_non_finite;  /* do not look for NaN and infinities in the inputs */
  void *host_state_memory; /* NULL: allocated */
  uint64_t host_state_bytes;
  void *host_step_memory;
  uint64_t host_step_bytes;
  uint32_t variant; /* of the plan's memory ladder to begin with */
  /* Of a plan for several ranks: this rank's end of the group, which outlives the
   * session; creating the session waits for those of the other ranks. NULL: it evaluates
   * and infers, alone. */
  sluice_comm *comm;
} sluice_session_options;

/* The version of the library, "0.1.0". */
SLUICE_API const char *sluice_version(void);

/* Why the last call without a session failed on this thread; "" when it did not. */
SLUICE_API const char *sluice_last_error(void);

/* ---- Ranks ---- */

/* Ranks share updates through a group that all of them belong to. A rank is used by one
 * thread at a time. A call that waits for another rank longer than `timeout` seconds (0:
 * 60) fails and names it; the first failure ends the group, on all ranks. */

/* Ranks that are threads of this process: fills comms[0] to comms[ranks - 1]. */
SLUICE_API sluice_status sluice_comm_local(int ranks, double timeout,
                                           sluice_comm **comms);
/* This process of an MPI job; once in a process. */
SLUICE_API sluice_status sluice_comm_mpi(double timeout, sluice_comm **comm);
/* This process as one of `size` that meet at `where`: "tcp:HOST:PORT", where rank 0
 * listens, or "file:PATH", which rank 0 writes and all see. Waits for the others, for the
 * timeout at most. */
SLUICE_API sluice_status sluice_comm_tcp(const char *where, int rank, int size,
                                         double timeout, sluice_comm **comm);
/* Over messages that the caller carries. Copies the struct; what it points to stays
 * valid until sluice_comm_destroy. */
SLUICE_API sluice_status sluice_comm_custom(const sluice_transport *transport,
                                            double timeout, sluice_comm **comm);
SLUICE_API int sluice_comm_rank(const sluice_comm *comm);
SLUICE_API int sluice_comm_size(const sluice_comm *comm);
/* Ends the group, from any thread: ranks that wait get an error with this reason. */
SLUICE_API void sluice_comm_abort(sluice_comm *comm, const char *reason);
/* After the sessions that use it. */
SLUICE_API void sluice_comm_destroy(sluice_comm *comm);

/* ---- Plans ---- */

SLUICE_API sluice_status sluice_plan_open(const char *path, sluice_plan **plan);
/* Copies the bytes. The initial state has to be named in the session's options. */
SLUICE_API sluice_status sluice_plan_open_memory(const void *data, size_t size,
                                                 sluice_plan **plan);
SLUICE_API void sluice_plan_close(sluice_plan *plan);

/* Can it run here? SLUICE_OK, or the reason in sluice_last_error(). Allocates no
 * reservation. */
SLUICE_API sluice_status sluice_plan_check(const sluice_plan *plan);
SLUICE_API sluice_status sluice_plan_memory(const sluice_plan *plan,
                                            sluice_memory *memory);

SLUICE_API int sluice_plan_threads(const sluice_plan *plan);
SLUICE_API int64_t
sluice_plan_batch(const sluice_plan *plan); /* samples of a micro-batch */
SLUICE_API int64_t
sluice_plan_accumulate(const sluice_plan *plan); /* micro-batches per update */
/* Ranks that share an update, with `accumulate` micro-batches each. */
SLUICE_API int64_t sluice_plan_ranks(const sluice_plan *plan);
/* The model computes its own loss, which would count padding: training and evaluation
 * refuse short batches. */
SLUICE_API bool sluice_plan_full_batches(const sluice_plan *plan);
SLUICE_API const char *sluice_plan_model_name(const sluice_plan *plan);

/* "step" (or "micro" and "update"), "eval", "infer", "probe", "fisher"; NULL behind the
 * last. */
SLUICE_API size_t sluice_plan_program_count(const sluice_plan *plan);
SLUICE_API const char *sluice_plan_program(const sluice_plan *plan, size_t index);

SLUICE_API size_t sluice_plan_input_count(const sluice_plan *plan, const char *program);
SLUICE_API size_t sluice_plan_output_count(const sluice_plan *plan, const char *program);
SLUICE_API sluice_status sluice_plan_input(const sluice_plan *plan, const char *program,
                                           size_t index, sluice_tensor_info *info);
SLUICE_API sluice_status sluice_plan_output(const sluice_plan *plan, const char *program,
                                            size_t index, sluice_tensor_info *info);

/* A plan of several shapes has a bucket for each: the same programs with inputs and
 * outputs of other shapes, on the same state. Calls that name none speak of bucket 0. */
SLUICE_API size_t sluice_plan_bucket_count(const sluice_plan *plan);
/* "T=64"; "" in a plan of one bucket; NULL behind the last. */
SLUICE_API const char *sluice_plan_bucket(const sluice_plan *plan, size_t bucket);
SLUICE_API int64_t sluice_plan_bucket_batch(const sluice_plan *plan, size_t bucket);
SLUICE_API sluice_status sluice_plan_bucket_input(const sluice_plan *plan, size_t bucket,
                                                  const char *program, size_t index,
                                                  sluice_tensor_info *info);
SLUICE_API sluice_status sluice_plan_bucket_output(const sluice_plan *plan, size_t bucket,
                                                   const char *program, size_t index,
                                                   sluice_tensor_info *info);
/* The bucket with the smallest inputs that takes these tensors (their data is not
 * looked at). A tensor may be smaller than its input where the spec's `pad`, or an
 * ignored label, says what it is filled up with. Refused with the list of buckets. */
SLUICE_API sluice_status sluice_plan_find_bucket(const sluice_plan *plan,
                                                 const char *program,
                                                 const sluice_tensor *inputs,
                                                 size_t count, size_t *bucket);

/* A plan with a memory ladder has a variant for each of its shares of the budget, from
 * the one with most memory to the one with least. They have the same inputs, outputs and
 * state and give the same bits. */
typedef struct sluice_variant_info {
  double memory_fraction; /* of the budget */
  uint64_t budget_bytes;  /* 0: none */
  uint64_t state_bytes;   /* the same in all */
  uint64_t step_bytes;
} sluice_variant_info;

SLUICE_API size_t sluice_plan_variant_count(const sluice_plan *plan);
SLUICE_API sluice_status sluice_plan_variant(const sluice_plan *plan, size_t variant,
                                             sluice_variant_info *info);

/* State: parameters ("param/NAME"), moments ("opt/NAME/m"), counters. */
SLUICE_API size_t sluice_plan_state_count(const sluice_plan *plan);
SLUICE_API sluice_status sluice_plan_state(const sluice_plan *plan, size_t index,
                                           sluice_tensor_info *info);

SLUICE_API size_t sluice_plan_group_count(const sluice_plan *plan);
SLUICE_API const char *sluice_plan_group(const sluice_plan *plan, size_t index);

/* ---- Sessions ---- */

/* `options` may be NULL. */
SLUICE_API sluice_status sluice_session_create(sluice_plan *plan,
                                               const sluice_session_options *options,
                                               sluice_session **session);
SLUICE_API void sluice_session_destroy(sluice_session *session);

/* Why the last call with this session failed; "" when it did not. */
SLUICE_API const char *sluice_session_error(const sluice_session *session);

/* Of a plan for several ranks: refused on all of them unless they have the same state, as
 * before the first step, or after loading weights or a checkpoint. Every rank calls it.
 */
SLUICE_API sluice_status sluice_session_agree(sluice_session *session);

/* Trains on one micro-batch of 1 <= samples <= batch samples; a short one is filled up
 * and masked, or refused when the model needs full batches. inputs[i] is input i of
 * program "step" (or "micro"). Updates the parameters when `accumulate` micro-batches are
 * complete. `result` may be NULL. */
SLUICE_API sluice_status sluice_session_step(sluice_session *session,
                                             const void *const *inputs, size_t count,
                                             int64_t samples, sluice_step_result *result);
/* Updates from the micro-batches since the last update, if there are any. Of several
 * ranks those that have not completed their window call it when others have, even without
 * a micro-batch: they share the update. */
SLUICE_API sluice_status sluice_session_flush(sluice_session *session,
                                              sluice_step_result *result);
/* Where groups of parameters interleave or are deferred (`update.mode` of the spec):
 * applies the gradients that wait, oldest first; counts no update of the session. Every
 * rank calls it. Not inside a window of micro-batches. */
SLUICE_API sluice_status sluice_session_apply_pending(sluice_session *session);
SLUICE_API sluice_status sluice_session_eval(sluice_session *session,
                                             const void *const *inputs, size_t count,
                                             int64_t samples, sluice_step_result *result);
/* The gradients of the batch's sum of losses with evaluation semantics, as outputs
 * "grad/NAME" of f32 (sluice_session_output); changes no state. Of one sample: that
 * sample's. Needs a plan with the program "probe" ('entries' of the spec). */
SLUICE_API sluice_status sluice_session_probe(sluice_session *session,
                                              const void *const *inputs, size_t count,
                                              int64_t samples,
                                              sluice_step_result *result);
/* Adds a batch of a task's data to the estimate of how important each weight is; changes
 * no state. Needs a plan with the program "fisher" ('continual.ewc' of the spec). What is
 * estimated is of one set of weights: consolidate before the next step. */
SLUICE_API sluice_status sluice_session_fisher(sluice_session *session,
                                               const void *const *inputs, size_t count,
                                               int64_t samples);
/* Ends a task of a plan with 'continual.ewc' or 'continual.si': the estimate becomes the
 * weights' importance, and the weights the anchor. Refused, with nothing changed, without
 * an estimate (ewc), and when all anchors are in use. */
SLUICE_API sluice_status sluice_session_consolidate(sluice_session *session);
/* The penalty at the weights: lambda / 2 * sum of importance * (w - anchor)^2. */
SLUICE_API sluice_status sluice_session_penalty(sluice_session *session, double *value);

/* Tasks of a plan with 'continual.masks', by their names in the spec. The one that has
 * begun trains until it ends; what it has kept then changes no more. packnet: prune keeps
 * the largest of what is free, and the steps from there to the end train that. */
SLUICE_API sluice_status sluice_session_begin_task(sluice_session *session,
                                                   const char *name);
SLUICE_API sluice_status sluice_session_prune_task(sluice_session *session);
SLUICE_API sluice_status sluice_session_end_task(sluice_session *session);
/* From here on eval and infer see the weights of that task, until they are to see the
 * session's own again (NULL), which comes before the next step. */
SLUICE_API sluice_status sluice_session_view_task(sluice_session *session,
                                                  const char *name);

/* Samples that are shown again, of a plan with 'continual.replay'; of any session of the
 * plan. With a folder, what sluice_replay_add has acknowledged is there after a crash,
 * and comes back when the folder is opened again; with NULL it lies in memory alone. */
typedef struct sluice_replay sluice_replay;
SLUICE_API sluice_status sluice_replay_open(sluice_session *session, const char *folder,
                                            sluice_replay **out);
SLUICE_API void sluice_replay_free(sluice_replay *replay);
/* Offers samples: the inputs of the program that trains, in order, without those that
 * begin with "replay/"; at most a micro-batch. `task` is a number of the caller's. */
SLUICE_API sluice_status sluice_replay_add(sluice_replay *replay, sluice_session *session,
                                           const void *const *inputs, size_t count,
                                           int64_t samples, int64_t task);
/* What is kept, what was offered so far, and what is kept of a class. */
SLUICE_API int64_t sluice_replay_samples(const sluice_replay *replay);
SLUICE_API int64_t sluice_replay_seen(const sluice_replay *replay);
SLUICE_API int64_t sluice_replay_class_samples(const sluice_replay *replay,
                                               int64_t label);
/* Of the policy 'prioritized': how much of a task was forgotten in so many epochs. */
SLUICE_API sluice_status sluice_replay_forgetting(sluice_replay *replay, int64_t task,
                                                  double best_accuracy, double accuracy,
                                                  double epochs);
/* A step on new samples, at most those of a micro-batch less what the plan replays, and
 * the plan's number of kept ones. Refused, with nothing changed, on an empty buffer. */
SLUICE_API sluice_status sluice_session_step_replay(sluice_session *session,
                                                    const sluice_replay *replay,
                                                    const void *const *inputs,
                                                    size_t count, int64_t samples,
                                                    sluice_step_result *result);
/* The same, of one class alone; refused where nothing of it is kept. */
SLUICE_API sluice_status sluice_session_step_replay_class(
    sluice_session *session, const sluice_replay *replay, int64_t label,
    const void *const *inputs, size_t count, int64_t samples, sluice_step_result *result);

/* A copy of a session's whole state, for predictions while it learns and to go back to.
 * One thread may take while others apply it: it is always the state between two updates.
 * A session that predicts applies it between its own calls. */
typedef struct sluice_snapshot sluice_snapshot;
SLUICE_API sluice_status sluice_snapshot_create(const sluice_plan *plan,
                                                sluice_snapshot **out);
SLUICE_API void sluice_snapshot_free(sluice_snapshot *snapshot);
SLUICE_API sluice_status sluice_snapshot_take(sluice_snapshot *snapshot,
                                              sluice_session *session);
/* Makes it the state of a session of the same plan. */
SLUICE_API sluice_status sluice_snapshot_apply(const sluice_snapshot *snapshot,
                                               sluice_session *session);
/* How often it was taken. */
SLUICE_API int64_t sluice_snapshot_version(const sluice_snapshot *snapshot);
SLUICE_API sluice_status sluice_session_infer(sluice_session *session,
                                              const void *const *inputs, size_t count,
                                              int64_t samples);

/* The same with tensors that bring their shapes: the bucket is chosen by them as
 * sluice_plan_find_bucket does, the samples are counted by dimension 0. Outputs of infer
 * are cut to the shapes they would have without what fills tensors up, except where the
 * plan's report says that a dimension cannot be followed; those of eval have the shapes
 * of the bucket. */
SLUICE_API sluice_status sluice_session_step_tensors(sluice_session *session,
                                                     const sluice_tensor *inputs,
                                                     size_t count,
                                                     sluice_step_result *result);
SLUICE_API sluice_status sluice_session_eval_tensors(sluice_session *session,
                                                     const sluice_tensor *inputs,
                                                     size_t count,
                                                     sluice_step_result *result);
SLUICE_API sluice_status sluice_session_infer_tensors(sluice_session *session,
                                                      const sluice_tensor *inputs,
                                                      size_t count);
/* The bucket of the last call that took a batch. */
SLUICE_API size_t sluice_session_bucket(const sluice_session *session);

/* Goes on with another variant of the memory ladder, at any time between two calls. The
 * step reservation is made anew before the old one is given up (or the memory given by
 * the caller is used again, if it is large enough); when that fails the session stays as
 * it was. */
SLUICE_API sluice_status sluice_session_use_variant(sluice_session *session,
                                                    size_t variant);
SLUICE_API size_t sluice_session_variant(const sluice_session *session);

/* An output of the program that ran last, for the real samples only; valid until the next
 * one runs. */
SLUICE_API sluice_status sluice_session_output(sluice_session *session, const char *name,
                                               const void **data, size_t *bytes);
/* The shape of what sluice_session_output gives. `rank` is set also where `capacity`, the
 * room in `shape`, is too small, which is refused. */
SLUICE_API sluice_status sluice_session_output_shape(sluice_session *session,
                                                     const char *name, int64_t *shape,
                                                     size_t capacity, size_t *rank);

SLUICE_API int64_t sluice_session_updates(const sluice_session *session);
/* Samples of training consumed: where the data goes on after a checkpoint was loaded. */
SLUICE_API int64_t sluice_session_samples(const sluice_session *session);

/* State as it is stored; `bytes` must be the tensor's size. A parameter that is stored in
 * 16 bits may have state beside it that completes it ("master/NAME", f32, or
 * "master/NAME/low", i16): the calls below keep the two in step. */
SLUICE_API sluice_status sluice_session_read_state(sluice_session *session,
                                                   const char *name, void *data,
                                                   size_t bytes);
SLUICE_API sluice_status sluice_session_write_state(sluice_session *session,
                                                    const char *name, const void *data,
                                                    size_t bytes);

/* A parameter or buffer as f32 values, by the model's name ("fc1.weight") or by that of
 * its state ("param/fc1.weight"), in whatever form the plan stores it: with a master its
 * exact value, without one its 16 bits widened. Writing stores the exact value where
 * there is a master, and rounds to the nearest where there is none. `count` must be the
 * number of its elements. Those of other types (integers, f64) are state only.
 * Where ranks hold a master in shards, its 16 bits are read widened, and all ranks write.
 */
SLUICE_API sluice_status sluice_session_read_parameter(sluice_session *session,
                                                       const char *name, float *values,
                                                       size_t count);
SLUICE_API sluice_status sluice_session_write_parameter(sluice_session *session,
                                                        const char *name,
                                                        const float *values,
                                                        size_t count);

/* The rate of the group's next update; a NULL group is the first. */
SLUICE_API sluice_status sluice_session_get_lr(sluice_session *session, const char *group,
                                               double *lr);
/* A fixed rate in place of the schedule; NaN returns to the schedule. */
SLUICE_API sluice_status sluice_session_set_lr(sluice_session *session, const char *group,
                                               double lr);

/* Hyper-parameters of a group from its next update on, by their names: "lr", "beta1",
 * "beta2", "eps", "weight_decay", "momentum", "dampening", "lr_decay", "alpha",
 * "momentum_decay", "beta2_decay", "eps2", "d" (those that its optimizer has), and
 * "clip_max" where the group is NULL. NaN returns to the plan's value. What decides which
 * state there is (a momentum of zero, amsgrad, centered) is compiled in. Changes are
 * saved with checkpoints; loading one replaces those of the session. */
SLUICE_API sluice_status sluice_session_get_hyper(sluice_session *session,
                                                  const char *group, const char *name,
                                                  double *value);
SLUICE_API sluice_status sluice_session_set_hyper(sluice_session *session,
                                                  const char *group, const char *name,
                                                  double value);
/* A frozen group keeps every bit of its parameters and moments: no update, no momentum,
 * no decay. It does not count updates and is no part of the gradient's norm. */
SLUICE_API sluice_status sluice_session_freeze(sluice_session *session,
                                               const char *group);
SLUICE_API sluice_status sluice_session_unfreeze(sluice_session *session,
                                                 const char *group);
SLUICE_API sluice_status sluice_session_is_frozen(sluice_session *session,
                                                  const char *group, bool *frozen);

/* Every parameter from a safetensors file, by name, with or without the prefix "param/".
 * f32, bf16 and f16 values, with or without a master beside them, become what the plan
 * stores; the log says what was converted. When the file does not fit nothing changes. */
SLUICE_API sluice_status sluice_session_load_weights(sluice_session *session,
                                                     const char *path);

/* A new checkpoint in the folder, which is made when missing; the one before is kept,
 * older ones are removed. Of a plan whose ranks hold state in shards (parallel.zero) all
 * ranks call it together, and write one checkpoint. */
SLUICE_API sluice_status sluice_session_save(sluice_session *session, const char *folder);
/* The newest checkpoint of the folder (or the file) that is whole; damaged ones are
 * skipped with a line in the log. One of a plan of another precision is converted, which
 * the log says too. */
SLUICE_API sluice_status sluice_session_load(sluice_session *session, const char *folder);

#ifdef __cplusplus
}
#endif

#endif
