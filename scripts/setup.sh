#!/usr/bin/env bash
# Installs what building, testing and the demo need, on Debian 12. Does nothing when all of it is there.
set -euo pipefail
packages=(
  # build
  cmake ninja-build clang-19 clang-format-19 lld-19 llvm-19-dev libmlir-19-dev mlir-19-tools llvm-19-tools
  liblld-19-dev libclang-rt-19-dev flatbuffers-compiler libflatbuffers-dev libprotobuf-dev protobuf-compiler
  libonnx-dev libyaml-cpp-dev nlohmann-json3-dev libcli11-dev zlib1g-dev
  # pictures
  graphviz
  # tests and demo
  libgtest-dev libgmock-dev libonnx-testdata dataset-fashion-mnist python3 python3-numpy python3-onnx binutils
)
# Ranks as processes of an MPI launcher; without it their tests are skipped.
optional=(libopenmpi-dev openmpi-bin)
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
install_missing() {
  local missing=()
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  echo "installing: ${missing[*]}"
  as_root apt-get update -q
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
}
install_missing "${packages[@]}"
install_missing "${optional[@]}" || echo "not installed: ${optional[*]}; tests of ranks over MPI will be skipped"
