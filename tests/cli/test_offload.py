"""Tensors in the host's memory: the same bits with fewer bytes on the device, by copies beside the launches."""
import pathlib
import re
import sys
import unittest

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from budgets import BudgetTest  # noqa: E402
from harness import ROOT, newest_checkpoint, read_safetensors  # noqa: E402

MODELS = ROOT / "tests" / "models"
MLP = MODELS / "mlp.onnx"
CNN = MODELS / "small-cnn.onnx"
DECODER = MODELS / "small-decoder.onnx"
FASHION = ROOT / "examples" / "fashion-mnist" / "fashion-cnn.onnx"
LOSS = "loss: {kind: cross_entropy, logits: logits, labels: labels}\n"
ADAM = "optimizer: {kind: adamw, lr: 1.0e-2}\n"


class OffloadTest(BudgetTest):
    last_is_largest = True  # of the programs, the one that a run ends with is the one that needs most

    def check_same(self, plan, data, name, expected, report):
        losses, state, out = self.train(plan, data, name)
        self.assertEqual(losses, expected[0])
        self.assertEqual(state, expected[1])
        self.assertEqual(out["allocations_in_steps"], 0)
        self.assertLessEqual(out["arena_bytes_measured"], report["arena_bytes"])
        self.assertEqual(out["host_bytes"], report["arena"]["host"])
        self.assertLessEqual(out["host_bytes_measured"], out["host_bytes"])
        if self.last_is_largest:
            self.assertGreater(out["host_bytes_measured"], out["host_bytes"] - 64)
        return out


class Moments(OffloadTest):
    """`offload: host`: the optimizer's state lies in the host's memory and streams through the update."""

    def check(self, model, spec, data):
        spec = LOSS + ADAM + "seed: 3\n" + spec
        free, before = self.compile(model, spec, "free")
        plan, report = self.compile(model, spec + "memory: {offload: host}\n", "host")
        self.assertEqual(before["arena"]["host"], 0)
        # What is too small to be worth a copy stays.
        self.assertGreater(report["host_state_bytes"], 0.9 * before["arena"]["optimizer"])
        self.assertEqual(report["host_step_bytes"], 0)
        self.assertLess(report["state_bytes"], before["state_bytes"])
        self.assertEqual(report["state_bytes"] + report["host_state_bytes"], before["state_bytes"])
        self.check_same(plan, data, "host", self.train(free, data, "free"), report)
        return plan, free, spec

    def test_decoder(self):
        self.check(DECODER, "", self.tokens())

    def test_with_clipping_dropout_and_batch_norm(self):
        self.check(FASHION, "clip: {kind: global_norm, max: 1.0}\nshapes: {batch: 8}\n", self.images())

    def test_accumulation(self):
        self.check(CNN, "accumulate: 2\n", self.images())

    def test_checkpoints_go_both_ways(self):
        data = self.tokens()
        plan, free, _ = self.check(DECODER, "", data)
        straight = self.train(free, data, "straight", 8)
        for first, second in ((plan, free), (free, plan)):
            folder = self.dir / f"both-{first.stem}"
            self.run_sluice("train", first, *data, "--steps", 4, "--checkpoint", folder)
            out, _ = self.run_sluice("train", second, *data, "--steps", 8, "--losses", "--checkpoint", folder, "--resume")
            state = {key: tensor.tobytes() for key, tensor in read_safetensors(newest_checkpoint(folder)).items()}
            self.assertEqual(out["losses"][-4:], straight[0][-4:])
            self.assertEqual(state, straight[1])

    def test_explain_says_what_is_offloaded_and_at_what_price(self):
        plan, _, _ = self.check(DECODER, "", self.tokens())
        decisions = self.run_sluice("explain", plan)[0]["decisions"]
        moved = [d for d in decisions if d["why"].startswith("offloaded")]
        self.assertTrue(any(d["subject"].startswith("opt/") and re.search(r"[\d.]+ us a copy", d["why"]) for d in moved), moved)


class Budgets(OffloadTest):
    """`offload: auto`: values, moments and parameters leave the device as the budget asks."""

    POINTS = 3

    def sweep(self, model, spec, data, where="host_step_bytes"):
        spec = LOSS + ADAM + "seed: 3\n" + spec
        recompute_only = self.smallest(model, spec)
        free, before = self.compile(model, spec, "free")
        expected = self.train(free, data, "free")
        spec += "memory: {offload: auto}\n"
        most, least = before["arena_bytes"], self.smallest(model, spec)
        self.assertLess(least, recompute_only)
        times, sizes, moved = [], [], 0
        for i in range(self.POINTS):
            budget = most - (most - least) * i // (self.POINTS - 1)
            plan, report = self.compile(model, spec, f"budget{i}", "--memory", budget)
            self.assertLessEqual(report["arena_bytes"], budget)
            self.assertEqual(report["unconstrained_arena_bytes"], most)
            self.assertLessEqual(report["step_us_bound"], report["step_us"] * (1 + 1e-12))
            self.check_same(plan, data, f"budget{i}", expected, report)
            times.append(report["step_us"])
            sizes.append(report["arena_bytes"])
            moved = max(moved, report[where])
        self.assertEqual(times, sorted(times), "less memory is never predicted faster")
        self.assertEqual(sizes[-1], least)
        self.assertGreater(moved, 0, "nothing was moved at any budget")
        errors = self.compile(model, spec, "below", "--memory", least - 1, code=3)[1]
        self.assertIn(f"smallest that can be met is {least} bytes", errors)

    def test_mlp(self):
        random = np.random.default_rng(5)
        info, _ = self.run_sluice("import", MLP)
        inputs = info["inputs"][0]
        x = random.random([8] + inputs["shape"][1:], np.float32)
        data = self.data(**{inputs["name"]: x, "labels": random.integers(0, 4, 8)})
        self.sweep(MLP, "", data, "host_state_bytes")

    def test_cnn_with_dropout_and_batch_norm(self):
        self.sweep(FASHION, "shapes: {batch: 8}\n", self.images())

    def test_decoder_with_accumulation(self):
        self.last_is_largest = False  # a run ends with an update
        self.sweep(DECODER, "accumulate: 2\n", self.tokens())

    def test_values_alone_without_recompute(self):
        data = self.tokens()
        spec = LOSS + ADAM + "seed: 3\n"
        free, before = self.compile(DECODER, spec, "free")
        spec += "memory: {offload: auto, recompute: none}\n"
        least = self.smallest(DECODER, spec)
        self.assertLess(least, before["arena_bytes"])
        plan, report = self.compile(DECODER, spec, "least", "--memory", least)
        self.check_same(plan, data, "least", self.train(free, data, "free"), report)

    def test_offload_begins_at_the_threshold(self):
        spec = LOSS + ADAM
        _, before = self.compile(DECODER, spec, "free")
        budget = before["arena_bytes"]
        _, kept = self.compile(DECODER, spec + "memory: {offload: auto}\n", "kept", "--memory", budget)
        self.assertEqual(kept["arena"]["host"], 0)
        _, moved = self.compile(DECODER, spec + "memory: {offload: auto, offload_threshold: 0.8}\n", "moved", "--memory", budget)
        self.assertLessEqual(moved["arena_bytes"], 0.8 * budget)
        self.assertGreater(moved["arena"]["host"], 0)

    def test_a_threshold_is_a_share(self):
        errors = self.compile(DECODER, LOSS + "memory: {offload: auto, offload_threshold: 1.5}\n", "m", code=1)[1]
        self.assertIn("'memory.offload_threshold' is 1.5", errors)

    def test_unknown_policies_are_refused(self):
        errors = self.compile(DECODER, LOSS + "memory: {offload: disk}\n", "m", code=1)[1]
        self.assertIn("'memory.offload'", errors)

    def test_export_of_offloaded_parameters(self):
        data = self.tokens()
        spec = LOSS + ADAM + "seed: 3\n"
        least = self.smallest(DECODER, spec + "memory: {offload: auto}\n")
        free, _ = self.compile(DECODER, spec, "free")
        plan, _ = self.compile(DECODER, spec + "memory: {offload: auto}\n", "least", "--memory", least)
        weights = []
        for name, each in (("free", free), ("least", plan)):
            self.train(each, data, name)
            self.run_sluice("export", each, "--checkpoint", self.dir / f"run-{name}", "-o", self.dir / f"{name}-out.safetensors")
            weights.append(read_safetensors(self.dir / f"{name}-out.safetensors"))
        self.assertEqual(weights[0].keys(), weights[1].keys())
        for key, value in weights[0].items():
            self.assertEqual(value.tobytes(), weights[1][key].tobytes(), key)


if __name__ == "__main__":
    unittest.main()
