#!/usr/bin/env bash
# Time and gap of the planners, one core. Usage: bench/planner.sh [--out bench/results/planner.jsonl]
set -euo pipefail
cd "$(dirname "$0")/.."
ninja -C build bench_planner >/dev/null
build/bench/bench_planner "${SLUICE_SHARED:-../shared}/data/minimalloc" | python3 bench/planner.py "$@"
