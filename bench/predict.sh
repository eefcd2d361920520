#!/usr/bin/env bash
# Predicted against measured step times, after a calibration in the same run. Arguments go to predict.py.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ ! -x .venv-bench/bin/python ]; then
  python3 -m venv .venv-bench
  .venv-bench/bin/pip install -q torch numpy onnx
fi
exec .venv-bench/bin/python bench/predict.py "$@"
