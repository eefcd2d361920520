#!/bin/sh
# Learns the cohorts one after the other, and evaluates the first after each:
#   run.sh FOLDER [TABLE]
# TABLE: UCI_Credit_Card.csv; without it Debian's German credit data.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
sluice=${SLUICE:-sluice} python=${PYTHON:-python3}
folder=${1:?usage: run.sh FOLDER [TABLE]} table=${2:-}
if [ -n "$table" ] && [ ! -f "$table" ]; then
  echo "skipped: there is no '$table'"
  exit 0
fi
if [ -z "$table" ]; then
  "$here/setup.sh" "$folder"
  table=$folder/credit-g.arff
fi
"$python" "$here/prepare.py" "$table" -o "$folder"
"$sluice" compile "$folder/model.onnx" --spec "$here/train.yaml" -o "$folder/credit.plan"
rm -rf "$folder/run"
k=1 steps=0
while [ -f "$folder/$k-x.npy" ]; do
  steps=$((steps + ${STEPS:-300}))
  "$sluice" train "$folder/credit.plan" --data x=npy:"$folder/$k-x.npy" --data labels=npy:"$folder/$k-y.npy" \
    --steps $steps --checkpoint "$folder/run" --resume
  "$sluice" consolidate "$folder/credit.plan" --data x=npy:"$folder/$k-x.npy" --data labels=npy:"$folder/$k-y.npy" \
    --checkpoint "$folder/run"
  echo "first cohort after cohort $k:"
  "$sluice" eval "$folder/credit.plan" --data x=npy:"$folder/1-test-x.npy" --data labels=npy:"$folder/1-test-y.npy" \
    --checkpoint "$folder/run" --metric recall_at_fpr=0.1
  k=$((k + 1))
done
