/* Sluice: a way of your own for ranks to reach each other (C11).
 *
 * A transport moves messages between the ranks of one training run: sockets, shared
 * memory, a message library. The library builds its collectives on it: sums over ranks
 * keep their fixed order and so their bits, ranks that do not come are named, and a
 * failure reaches all ranks.
 *
 * Messages
 *   - Those from one rank to another on one channel arrive in the order in which they
 *     were sent, and meet the receives on that channel in the order in which these were
 *     posted. Channels are independent of each other and lie in
 *     [0, SLUICE_TRANSPORT_CHANNELS).
 *   - A message may be shorter than the room of the receive that it meets, never longer.
 *
 * Calls
 *   - None of them may wait for another rank; progress is made in `test`, which is called
 *     over and over.
 *   - They come from one thread at a time, which need not be the same one always.
 *   - Every operation has a number in [0, SLUICE_TRANSPORT_REQUESTS(size)), which is used
 *     again only when `test` has reported the operation as done, or after `cancel`.
 *   - The memory of an operation stays valid until it is done or cancelled.
 *   - They return 0, or a number that `error_text` explains; then the group is ended.
 */
#ifndef SLUICE_TRANSPORT_H
#define SLUICE_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SLUICE_TRANSPORT_CHANNELS 8
#define SLUICE_TRANSPORT_REQUESTS(size) ((uint32_t)(size) * 12)

typedef struct sluice_transport sluice_transport;
struct sluice_transport {
  void *user; /* first argument of every call */
  int rank;   /* this one, in [0, size) */
  int size;   /* the same on all ranks */
  int (*post_send)(void *user, uint32_t request, const void *data, size_t bytes, int to,
                   int channel);
  int (*post_receive)(void *user, uint32_t request, void *data, size_t room, int from,
                      int channel);
  int (*test)(void *user, uint32_t request, bool *done);
  /* Gives up an operation, so that its memory is no longer used. May be NULL. */
  void (*cancel)(void *user, uint32_t request);
  /* Valid until the next call; may be NULL. */
  const char *(*error_text)(void *user, int error);
};

#ifdef __cplusplus
}
#endif

#endif
