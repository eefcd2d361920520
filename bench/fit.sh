#!/usr/bin/env bash
# Time and answers of `sluice fit` for models of billions of parameters. Usage: bench/fit.sh [llama-7b llama-65b] [--device b200] [--out bench/results/planner.jsonl]
set -euo pipefail
cd "$(dirname "$0")/.."
ninja -C build sluice_tool >/dev/null
exec python3 bench/fit.py "$@"
