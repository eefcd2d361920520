#!/usr/bin/env bash
# Configures and builds everything. Usage: scripts/build.sh [build folder] [cmake options...]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
shift || true
if [ ! -f "$build/build.ninja" ] || [ $# -gt 0 ]; then
  cmake -B "$build" -G Ninja "$@"
fi
ninja -C "$build"
