#pragma once
// The protobuf classes of ONNX, as the distribution's library was built.
#define ONNX_NAMESPACE onnx
#define ONNX_ML 1
#include <onnx/onnx_pb.h>
