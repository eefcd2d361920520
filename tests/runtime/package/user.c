#include <sluice/sluice.h>

int main(void) {
  sluice_plan *plan;
  return sluice_plan_open("no-such.plan", &plan) == SLUICE_REFUSED ? 0 : 1;
}
