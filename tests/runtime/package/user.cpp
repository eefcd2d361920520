#include <sluice/sluice.hpp>

int main() {
  try {
    sluice::api::Plan plan("no-such.plan");
  } catch (const sluice::api::Error &error) {
    return error.status() == SLUICE_REFUSED ? 0 : 1;
  }
  return 1;
}
