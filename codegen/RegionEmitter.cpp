#include "passes/RegionDomain.h"
