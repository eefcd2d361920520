#!/usr/bin/env bash
# Steps whose tensors partly lie in the host's memory: predicted against measured. Arguments go to offload.py.
set -euo pipefail
cd "$(dirname "$0")/.."
exec /usr/bin/python3 bench/offload.py "$@"
