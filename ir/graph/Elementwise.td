#ifndef SLUICE_IR_GRAPH_ELEMENTWISE_TD
#define SLUICE_IR_GRAPH_ELEMENTWISE_TD
include "ir/graph/GraphBase.td"

class Graph_Unary<string mnemonic, string text> : Graph_ElementwiseOp<mnemonic> {
  let summary = text;
  let arguments = (ins Graph_NumTensor:$x);
  let results = (outs Graph_NumTensor:$y);
}
class Graph_Binary<string mnemonic, string text> : Graph_ElementwiseOp<mnemonic> {
  let summary = text;
  let arguments = (ins Graph_NumTensor:$a, Graph_NumTensor:$b);
  let results = (outs Graph_NumTensor:$y);
}

def Graph_NegOp : Graph_Unary<"neg", "-x">;
def Graph_AbsOp : Graph_Unary<"abs", "|x|; gradient 0 at 0">;
def Graph_SignOp : Graph_Unary<"sign", "-1, 0 or 1">;
def Graph_ExpOp : Graph_Unary<"exp", "e^x; results below 2^-126 are 0">;
def Graph_LogOp : Graph_Unary<"log", "natural logarithm">;
def Graph_SqrtOp : Graph_Unary<"sqrt", "square root">;
def Graph_RsqrtOp : Graph_Unary<"rsqrt", "1 / sqrt(x), both operations IEEE">;
def Graph_SinOp : Graph_Unary<"sin", "sine">;
def Graph_CosOp : Graph_Unary<"cos", "cosine">;
def Graph_AtanOp : Graph_Unary<"atan", "arc tangent">;
def Graph_TanhOp : Graph_Unary<"tanh", "hyperbolic tangent">;
def Graph_SigmoidOp : Graph_Unary<"sigmoid", "1 / (1 + e^-x)">;
def Graph_ErfOp : Graph_Unary<"erf", "error function">;
def Graph_ReluOp : Graph_Unary<"relu", "max(x, 0); gradient 0 at 0, NaN kept">;
def Graph_FloorOp : Graph_Unary<"floor", "largest integer not above; gradient 0">;
def Graph_CeilOp : Graph_Unary<"ceil", "smallest integer not below; gradient 0">;
def Graph_RoundOp : Graph_Unary<"round", "nearest integer, ties to even; gradient 0, or with `straight_through` that of the identity"> {
  let arguments = (ins Graph_NumTensor:$x, UnitAttr:$straight_through);
}
def Graph_NotOp : Graph_Unary<"not", "logical not of i1, bitwise not of integers">;

def Graph_GeluOp : Graph_Unary<"gelu", "Gaussian error linear unit"> {
  let description = "x * (1 + erf(x / sqrt(2))) / 2, or with `tanh_form` the tanh approximation.";
  let arguments = (ins Graph_FloatTensor:$x, UnitAttr:$tanh_form);
}
def Graph_SiluOp : Graph_Unary<"silu", "x * sigmoid(x)">;
def Graph_SoftplusOp : Graph_Unary<"softplus", "log(1 + e^x), stable for large |x|">;

def Graph_AddOp : Graph_Binary<"add", "a + b">;
def Graph_SubOp : Graph_Binary<"sub", "a - b">;
def Graph_MulOp : Graph_Binary<"mul", "a * b">;
def Graph_DivOp : Graph_Binary<"div", "a / b; integers truncate">;
def Graph_PowOp : Graph_Binary<"pow", "a ^ b">;
def Graph_ModOp : Graph_Binary<"mod", "remainder; sign of the divisor, or of the dividend with `fmod`"> {
  let arguments = (ins Graph_NumTensor:$a, Graph_NumTensor:$b, UnitAttr:$fmod);
}
def Graph_MaxOp : Graph_Binary<"max", "larger of a and b, NaN kept; the gradient is split in halves on ties">;
def Graph_MinOp : Graph_Binary<"min", "smaller of a and b, NaN kept; the gradient is split in halves on ties">;
def Graph_AndOp : Graph_Binary<"and", "logical (i1) or bitwise and">;
def Graph_OrOp : Graph_Binary<"or", "logical (i1) or bitwise or">;
def Graph_XorOp : Graph_Binary<"xor", "logical (i1) or bitwise exclusive or">;

def Graph_CompareOp : Graph_ElementwiseOp<"compare"> {
  let summary = "Compares element by element: eq, ne, lt, le, gt, ge (false on NaN but for ne)";
  let arguments = (ins Graph_NumTensor:$a, Graph_NumTensor:$b, StrAttr:$predicate);
  let results = (outs Graph_BoolTensor:$y);
  let hasVerifier = 1;
}
def Graph_SelectOp : Graph_ElementwiseOp<"select"> {
  let summary = "a where the condition holds, else b";
  let arguments = (ins Graph_BoolTensor:$condition, Graph_NumTensor:$a, Graph_NumTensor:$b);
  let results = (outs Graph_NumTensor:$y);
}
def Graph_CastOp : Graph_ElementwiseOp<"cast"> {
  let summary = "Converts to another element type; floating point to integer truncates, to i1 is x != 0";
  let arguments = (ins Graph_NumTensor:$x, TypeAttr:$element_type);
  let results = (outs Graph_NumTensor:$y);
}
#endif
