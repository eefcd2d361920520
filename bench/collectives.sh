#!/usr/bin/env bash
# All-reduce over threads and over MPI against the MPI library's own, on this machine.
# Usage: bench/collectives.sh [--ranks N] [--out bench/results/collectives.jsonl]
set -euo pipefail
cd "$(dirname "$0")/.."
ninja -C build bench_collectives >/dev/null
python3 bench/collectives.py "$@"
