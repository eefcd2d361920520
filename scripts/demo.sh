#!/usr/bin/env bash
# The main job, from nothing: sets up a Debian 12 machine, builds, compiles a CNN exported from PyTorch into a plan, trains
# it on Fashion-MNIST, evaluates it, and writes the weights back into the ONNX file.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/setup.sh
bash scripts/build.sh >/dev/null
sluice=build/tools/sluice
out=build/demo
data=/usr/share/datasets/fashion-mnist
mkdir -p "$out"
rm -rf "$out/run"
say() { printf '\n$ %s\n' "$*"; "$@"; }
train=(--data "images=idx:$data/train-images-idx3-ubyte.gz,scale=1/255" --data "labels=idx:$data/train-labels-idx1-ubyte.gz")
test=("images=idx:$data/t10k-images-idx3-ubyte.gz,scale=1/255" "labels=idx:$data/t10k-labels-idx1-ubyte.gz")

say $sluice import examples/fashion-mnist/fashion-cnn.onnx --shape batch=64
say $sluice compile examples/fashion-mnist/fashion-cnn.onnx --spec examples/fashion-mnist/train.yaml -o "$out/fashion.plan"
say $sluice train "$out/fashion.plan" "${train[@]}" --epochs 3 --checkpoint "$out/run" \
  --eval-data "${test[0]}" --eval-data "${test[1]}" --eval-every 938
say $sluice eval "$out/fashion.plan" --data "${test[0]}" --data "${test[1]}" --checkpoint "$out/run"
say $sluice show "$out/fashion.plan" --memory "$out/memory.svg" --graph "$out/step.svg" --trace "$out/predicted.json"
say $sluice export "$out/fashion.plan" --checkpoint "$out/run" --model examples/fashion-mnist/fashion-cnn.onnx -o "$out/trained.onnx"
