"""Budgets in bytes: met by running operations again, with the same bits, and refused with the smallest that can be met."""
import pathlib
import sys
import unittest

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from budgets import BudgetTest  # noqa: E402
from harness import ROOT  # noqa: E402

MODELS = ROOT / "tests" / "models"
CNN = MODELS / "small-cnn.onnx"
DECODER = MODELS / "small-decoder.onnx"
FASHION = ROOT / "examples" / "fashion-mnist" / "fashion-cnn.onnx"
MLP = MODELS / "memory" / "mlp.onnx"
DROPOUT_DECODER = MODELS / "memory" / "dropout-decoder.onnx"
LOSS = "loss: {kind: cross_entropy, logits: logits, labels: labels}\n"


class Budgets(BudgetTest):
    POINTS = 20  # between the most and the least

    def sweep(self, model, spec, data, points=POINTS):
        free, unconstrained = self.compile(model, spec, "free")
        losses, state, _ = self.train(free, data, "free")
        most, least = unconstrained["arena_bytes"], self.smallest(model, spec)
        self.assertLess(least, most)
        times, sizes = [], []
        for i in range(points):
            budget = most - (most - least) * i // (points - 1)
            plan, report = self.compile(model, spec, f"budget{i}", "--memory", budget)
            self.assertEqual(report["budget_bytes"], budget)
            self.assertEqual(report["unconstrained_arena_bytes"], most)
            self.assertLessEqual(report["arena_bytes"], budget)
            # No rounding hides a bound that the plan beats.
            self.assertLessEqual(report["step_us_bound"], report["step_us"] * (1 + 1e-12))
            self.assertAlmostEqual(report["gap"], report["step_us"] / report["step_us_bound"] - 1)
            again, same, out = self.train(plan, data, f"budget{i}")
            self.assertLessEqual(out["arena_bytes_measured"], budget)
            self.assertEqual(again, losses)
            self.assertEqual(same, state)
            times.append(report["step_us"])
            sizes.append(report["arena_bytes"])
        self.assertEqual(times, sorted(times), "less memory is never predicted faster")
        self.assertEqual(sizes, sorted(sizes, reverse=True))
        self.assertEqual(sizes[-1], least)
        self.assertGreater(times[-1], times[0])
        errors = self.compile(model, spec, "below", "--memory", least - 1, code=3)[1]
        self.assertIn(f"smallest that can be met is {least} bytes", errors)

    def test_mlp(self):
        random = np.random.default_rng(7)
        data = self.data(x=random.random((96, 12), np.float32), labels=random.integers(0, 4, 96))
        self.sweep(MLP, LOSS + "seed: 3\nshapes: {batch: 32}\n", data)

    def test_cnn_with_dropout_and_batch_norm(self):
        self.sweep(FASHION, LOSS + "seed: 3\noptimizer: {kind: adamw, lr: 1.0e-2}\nshapes: {batch: 8}\n", self.images())

    def test_decoder_with_dropout(self):
        self.sweep(DROPOUT_DECODER, LOSS + "seed: 3\nshapes: {batch: 4}\nclip: {kind: global_norm, max: 1.0}\n", self.tokens(17, 8), points=10)

    def test_decoder_with_accumulation(self):
        self.sweep(DROPOUT_DECODER, LOSS + "seed: 3\nshapes: {batch: 4}\naccumulate: 2\n", self.tokens(17, 8), points=7)


class Policies(BudgetTest):
    SPEC = LOSS + "seed: 3\n"

    def check_fixed_policies(self, model, spec, data, *policies):
        free, _ = self.compile(model, spec, "free")
        losses, state, _ = self.train(free, data, "free")
        for i, policy in enumerate(policies):
            name = f"policy{i}"
            plan, report = self.compile(model, spec + f"memory: {{recompute: {policy}}}\n", name)
            self.assertRegex(" ".join(report["notes"]), r"recompute: [1-9]\d* runs more than")
            self.assertGreater(report["step_us"], report["step_us_bound"])
            self.assertEqual(self.train(plan, data, name)[:2], (losses, state))

    def test_fixed_policies_keep_the_bits(self):
        self.check_fixed_policies(DECODER, self.SPEC, self.tokens(), "sqrt", "{every: 2}")

    def test_dropout_draws_the_same_numbers_again_and_statistics_are_written_once(self):
        spec = self.SPEC + "optimizer: {kind: adamw, lr: 1.0e-2}\nclip: {kind: global_norm, max: 1.0}\nshapes: {batch: 8}\n"
        self.check_fixed_policies(FASHION, spec, self.images(), "{every: 1}", "{every: 2}", "{every: 4}")

    def test_none_only_checks_the_budget(self):
        spec = self.SPEC + "memory: {recompute: none}\n"
        _, free = self.compile(DECODER, spec, "free")
        errors = self.compile(DECODER, spec, "small", "--memory", free["arena_bytes"] - 64, code=3)[1]
        self.assertIn(f"smallest that can be met is {free['arena_bytes']} bytes", errors)
        self.assertIn("'memory.recompute: auto' needs less", errors)

    def test_what_is_kept_is_not_run_again(self):
        least = self.smallest(DECODER, self.SPEC)
        self.assertGreater(self.smallest(DECODER, self.SPEC + "memory: {keep: ['*']}\n"), least)
        plan, _ = self.compile(DECODER, self.SPEC, "least", "--memory", least)
        decisions = self.run_sluice("explain", plan)[0]["decisions"]
        again = [d["subject"] for d in decisions if d["why"].startswith("recomputed ")]
        self.assertTrue(again)
        name = again[0].split("+")[0]
        budget = self.smallest(DECODER, self.SPEC + f"memory: {{keep: ['{name}']}}\n")
        kept, _ = self.compile(DECODER, self.SPEC + f"memory: {{keep: ['{name}']}}\n", "kept", "--memory", budget)
        decisions = self.run_sluice("explain", kept)[0]["decisions"]
        self.assertFalse([d for d in decisions if d["why"].startswith("recomputed ") and name in d["subject"].split("+")])

    def test_unknown_names_in_keep_are_refused(self):
        errors = self.compile(DECODER, self.SPEC + "memory: {keep: [no-such-node]}\n", "m", "--memory", 1, code=1)[1]
        self.assertIn("'no-such-node'", errors)


if __name__ == "__main__":
    unittest.main()
