#!/usr/bin/env bash
# Certified gaps and placement of every imported model that trains; planned, not run. Usage: bench/imports.sh [NAMES] [--out bench/results/planner.jsonl]
set -euo pipefail
cd "$(dirname "$0")/.."
ninja -C build sluice_tool >/dev/null
exec python3 bench/imports.py "$@"
