#!/usr/bin/env bash
# Kernels without products against copies. Arguments go to bandwidth.py; the models are those of step.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ ! -x .venv-bench/bin/python ]; then
  python3 -m venv .venv-bench
  .venv-bench/bin/pip install -q torch numpy onnx
fi
exec .venv-bench/bin/python bench/bandwidth.py "$@"
