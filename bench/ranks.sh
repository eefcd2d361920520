#!/usr/bin/env bash
# Two ranks over links of given latency and rate: step time with and without overlap against ranks with nothing between them.
# Usage: bench/ranks.sh [CASES] [--steps N] [--out bench/results/ranks.jsonl]
set -euo pipefail
cd "$(dirname "$0")/.."
ninja -C build bench_shaped_link sluice_tool sluice >/dev/null
export SLUICE="${SLUICE:-$PWD/build/tools/sluice}" SLUICE_LIB="${SLUICE_LIB:-$PWD/build/runtime/libsluice.so}"
python=python3 # Debian's own has NumPy; another one first in PATH need not
python3 -c "import numpy" 2>/dev/null || python=/usr/bin/python3
"$python" bench/ranks.py "$@"
