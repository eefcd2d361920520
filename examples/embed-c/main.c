/* A service that trains, evaluates and saves a model through the C API alone.
 * Usage: embed PLAN IMAGES LABELS TEST_IMAGES TEST_LABELS FOLDER   (IDX files, not
 * compressed) */
#include <sluice/sluice.h>

#include <stdio.h>
#include <stdlib.h>

enum { pixels = 28 * 28 };

typedef struct data {
  float *images;   /* [count, 1, 28, 28], scaled to [0, 1] */
  int64_t *labels; /* [count] */
  int64_t count;
} data;

static unsigned char *read_bytes(const char *path, long skip, long *size) {
  FILE *file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END) != 0 || (*size = ftell(file) - skip) < 0)
    return fprintf(stderr, "cannot read %s\n", path), exit(1), NULL;
  unsigned char *bytes = malloc((size_t)*size + 1);
  fseek(file, skip, SEEK_SET);
  if (!bytes || fread(bytes, 1, (size_t)*size, file) != (size_t)*size)
    return fprintf(stderr, "cannot read %s\n", path), exit(1), NULL;
  fclose(file);
  return bytes;
}

static data read_data(const char *image_path, const char *label_path) {
  long image_bytes, label_bytes;
  unsigned char *images = read_bytes(image_path, 16, &image_bytes);
  unsigned char *labels = read_bytes(label_path, 8, &label_bytes);
  if (image_bytes != label_bytes * pixels)
    fprintf(stderr, "images and labels differ in number\n"), exit(1);
  data d = {malloc((size_t)image_bytes * sizeof(float)),
            malloc((size_t)label_bytes * sizeof(int64_t)), label_bytes};
  for (long i = 0; i < image_bytes; ++i)
    d.images[i] = (float)images[i] / 255.0f;
  for (long i = 0; i < label_bytes; ++i)
    d.labels[i] = labels[i];
  free(images);
  free(labels);
  return d;
}

/* The reason is asked for after the call has failed: of the session, or without one of
 * the thread. */
static void check(sluice_status status, const sluice_session *session) {
  if (status != SLUICE_OK)
    fprintf(stderr, "error: %s\n",
            session ? sluice_session_error(session) : sluice_last_error()),
        exit((int)status);
}

/* Mean loss of one pass; trains when `train`, else evaluates. */
static double pass(sluice_session *session, const data *d, int64_t batch, bool train) {
  double sum = 0, count = 0;
  for (int64_t at = 0; at < d->count; at += batch) {
    const void *inputs[] = {d->images + at * pixels, d->labels + at};
    int64_t samples = d->count - at < batch ? d->count - at : batch;
    sluice_step_result result;
    check(train ? sluice_session_step(session, inputs, 2, samples, &result)
                : sluice_session_eval(session, inputs, 2, samples, &result),
          session);
    sum += result.loss_sum;
    count += result.loss_count;
  }
  return sum / count;
}

int main(int argc, char **argv) {
  if (argc != 7)
    return fprintf(stderr,
                   "usage: %s PLAN IMAGES LABELS TEST_IMAGES TEST_LABELS FOLDER\n",
                   argv[0]),
           2;
  sluice_plan *plan;
  sluice_session *session;
  sluice_memory memory;
  check(sluice_plan_open(argv[1], &plan), NULL);
  check(sluice_plan_memory(plan, &memory), NULL);
  printf("needs %llu bytes of state and %llu bytes for a step\n",
         (unsigned long long)memory.state_bytes, (unsigned long long)memory.step_bytes);
  check(sluice_session_create(plan, NULL, &session), NULL);
  data train = read_data(argv[2], argv[3]), test = read_data(argv[4], argv[5]);
  int64_t batch = sluice_plan_batch(plan);
  printf("training loss %.4f\n", pass(session, &train, batch, true));
  printf("test loss %.4f after %lld updates\n", pass(session, &test, batch, false),
         (long long)sluice_session_updates(session));
  check(sluice_session_save(session, argv[6]), session);
  sluice_session_destroy(session);
  sluice_plan_close(plan);
  return 0;
}
