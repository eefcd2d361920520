#!/usr/bin/env bash
# Whole training steps against PyTorch (latest, in a virtual environment of its own). Arguments go to step.py.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ ! -x .venv-bench/bin/python ]; then
  python3 -m venv .venv-bench
  .venv-bench/bin/pip install -q torch numpy onnx
fi
exec .venv-bench/bin/python bench/step.py "$@"
