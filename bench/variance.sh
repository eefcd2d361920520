#!/usr/bin/env bash
# Variance of gradients under interleaved updates and plain accumulation, on a deep Transformer. Usage: bench/variance.sh [--out bench/results/variance.jsonl]
set -euo pipefail
cd "$(dirname "$0")/.."
ninja -C build sluice_tool sluice >/dev/null
python=python3 # Debian's own has NumPy and PyTorch; another one first in PATH need not
python3 -c "import numpy, torch" 2>/dev/null || python=/usr/bin/python3
"$python" bench/variance.py "$@"
