#!/usr/bin/env bash
# Generates docs/ops.md and docs/passes.md from the .td files, docs/spec.schema.json from the key table and docs/onnx-ops.md
# from the importer's tables and the test vectors.
# With --check: fails if a committed file is stale.
set -euo pipefail
cd "$(dirname "$0")/.."
out=docs
if [ "${1:-}" = --check ]; then out=$(mktemp -d); trap 'rm -rf "$out"' EXIT; fi
tblgen=/usr/lib/llvm-19/bin/mlir-tblgen
include=(-I . -I /usr/lib/llvm-19/include)
{
  echo "# Operations of the graph dialect"
  echo
  echo "Generated from ir/graph/*.td by scripts/docs.sh."
  for family in State Elementwise Narrow Stored Shape Contract Attention Reduce Index Normalize Pool Train Optimizer Collective; do
    printf '\n# %s\n\n' "$family"
    "$tblgen" -gen-op-doc "${include[@]}" "ir/graph/$family.td" | sed '/^<!--/d'
  done
} > "$out/ops.md"
{
  echo "# Passes"
  echo
  echo "Generated from passes/Passes.td by scripts/docs.sh."
  echo
  "$tblgen" -gen-pass-doc "${include[@]}" passes/Passes.td | sed '/^<!--/d'
} > "$out/passes.md"
build/tools/sluice schema > "$out/spec.schema.json"
build/tests/frontend/onnx-gradients /usr/share/libonnx-testdata/data tests/frontend/*.vectors \
  --table "$out/onnx-ops.md" > /dev/null
if [ "$out" != docs ]; then
  for file in ops.md onnx-ops.md passes.md spec.schema.json; do
    diff -q "$out/$file" "docs/$file" || { echo "docs/$file is stale: run scripts/docs.sh"; exit 1; }
  done
fi
