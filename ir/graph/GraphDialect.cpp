// Registers the families of the graph dialect and defines its interfaces.
#include "ir/graph/Graph.h"

using namespace mlir;
using namespace sluice::graph;

#include "ir/graph/GraphDialect.cpp.inc"
#include "ir/graph/GraphInterfaces.cpp.inc"

void GraphDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "ir/graph/State.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "ir/graph/Elementwise.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "ir/graph/Narrow.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "ir/graph/Stored.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "ir/graph/Shape.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "ir/graph/Contract.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "ir/graph/Attention.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "ir/graph/Reduce.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "ir/graph/Index.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "ir/graph/Normalize.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "ir/graph/Pool.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "ir/graph/Train.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "ir/graph/Optimizer.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "ir/graph/Collective.cpp.inc"
      >();
}
