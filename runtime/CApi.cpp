#include "runtime/PlanFile.h"
