"""Checkpoints that several ranks write together."""
import json
import pathlib
import struct
import unittest

from budgets import BudgetTest
from harness import ROOT, newest_checkpoint, read_safetensors

CNN = ROOT / "tests" / "models" / "small-cnn.onnx"
SPEC = ("loss: {kind: cross_entropy, logits: logits, labels: labels}\n"
        "optimizer: {kind: adamw, lr: 1.0e-2}\nclip: {kind: global_norm, max: 1.0}\nseed: 3\nthreads: 1\n")


def bytes_of(path):
    return {name: tensor.tobytes() for name, tensor in read_safetensors(path).items()}


def metadata(path):
    raw = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    return json.loads(raw[8 : 8 + length])["__metadata__"]


class Shards(BudgetTest):
    def test_parts_are_the_whole_and_load_into_one_rank(self):
        many, _ = self.compile(CNN, SPEC + "parallel: {data: 2}\n", "many")
        alone, _ = self.compile(CNN, SPEC + "accumulate: {count: 2, as_ranks: 2}\n", "alone")
        whole, parts = self.dir / "whole", self.dir / "parts"
        self.run_sluice("train", many, *self.images(), "--epochs", 1, "--checkpoint", whole)
        self.run_sluice("train", many, *self.images(), "--epochs", 1, "--checkpoint", parts, "--checkpoint-shards")
        expected, tensors = bytes_of(newest_checkpoint(whole)), {}
        names = sorted(path.name for path in parts.iterdir())
        self.assertEqual(len(names), 3, names)
        for name in names[:2]:
            part = bytes_of(parts / name)
            self.assertTrue(part)
            self.assertFalse(part.keys() & tensors.keys())
            tensors |= part
        self.assertEqual(tensors, expected)
        written = metadata(parts / names[2])
        self.assertEqual(written["shards"], "2")
        self.assertEqual([written[f"shard/{rank}"].split()[0] for rank in range(2)], names[:2])
        # Both go on alike, on one rank.
        for folder in (whole, parts):
            out, _ = self.run_sluice("train", alone, *self.images(), "--epochs", 3, "--checkpoint", folder, "--resume")
            self.assertGreater(out["steps"], 0)
        self.assertEqual(bytes_of(newest_checkpoint(parts)), bytes_of(newest_checkpoint(whole)))
        self.assertNotEqual(bytes_of(newest_checkpoint(parts)), expected)

    def test_one_rank_has_no_parts(self):
        alone, _ = self.compile(CNN, SPEC, "alone")
        _, errors = self.run_sluice("train", alone, *self.images(), "--epochs", 1, "--checkpoint-shards", code=2)
        self.assertIn("--checkpoint-shards needs --checkpoint DIR", errors)
        _, errors = self.run_sluice("train", alone, *self.images(), "--epochs", 1, "--checkpoint", self.dir / "run", "--checkpoint-shards", code=2)
        self.assertIn("parts of them need several ranks", errors)


if __name__ == "__main__":
    unittest.main()
