#!/usr/bin/env bash
# Modes of update: step times over shaped links and with moments on the host, losses after a number of steps.
# Usage: bench/modes.sh [CASES] [--text FILE] [--only links|offload|losses] [--out bench/results/modes.jsonl]
set -euo pipefail
cd "$(dirname "$0")/.."
ninja -C build bench_shaped_link sluice_tool sluice >/dev/null
export SLUICE="${SLUICE:-$PWD/build/tools/sluice}" SLUICE_LIB="${SLUICE_LIB:-$PWD/build/runtime/libsluice.so}"
python=python3 # Debian's own has NumPy; another one first in PATH need not
python3 -c "import numpy" 2>/dev/null || python=/usr/bin/python3
"$python" bench/modes.py "$@"
