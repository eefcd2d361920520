#!/usr/bin/env bash
# Training under budgets of bytes against PyTorch with activation checkpointing. Arguments go to memory.py.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ ! -x .venv-bench/bin/python ]; then
  python3 -m venv .venv-bench
  .venv-bench/bin/pip install -q torch numpy onnx
fi
exec .venv-bench/bin/python bench/memory.py "$@"
