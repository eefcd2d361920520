"""Figures of an evaluation, early stop and the best checkpoint on the command line."""
import pathlib
import unittest

import numpy as np

from harness import ROOT, SluiceTest

MLP = ROOT / "tests" / "models" / "mlp.onnx"  # 6 inputs, 4 classes, batches of 32
SPEC = "loss: {kind: cross_entropy, logits: logits, labels: labels}\noptimizer: {kind: adam, lr: %s}\n"


class Judging(SluiceTest):
    def setUp(self):
        super().setUp()
        generator = np.random.default_rng(5)
        x = generator.normal(size=(64, 6)).astype(np.float32)
        self.data = ["--data", f"x=npy:{self.npy('x', x)}", "--data", f"labels=npy:{self.npy('y', generator.integers(0, 4, 64))}"]
        self.held = [part.replace("--data", "--eval-data") for part in self.data]

    def test_early_stop_and_best_checkpoint(self):
        # A rate this high soon makes the loss worse.
        plan, _ = self.compile(MLP, SPEC % 2.0)
        run = self.dir / "run"
        out, _ = self.run_sluice("train", plan, *self.data, *self.held, "--steps", 400, "--eval-every", 1, "--checkpoint", run,
                                 "--early-stop", "loss,patience=3", "--keep-best", "accuracy", "--metric", "top_k=2")
        self.assertTrue(out["stopped_early"])
        self.assertLess(out["updates"], 400)
        self.assertGreaterEqual(out["eval"]["top2_accuracy"], out["eval"]["accuracy"])
        self.assertEqual(out["best"]["metric"], "accuracy")
        self.assertEqual(pathlib.Path(out["best"]["checkpoint"]).parent, run / "best")
        best, _ = self.run_sluice("eval", plan, *self.data, "--checkpoint", run / "best")
        self.assertEqual(best["accuracy"], out["best"]["value"])

    def test_recall_at_a_precision_and_at_a_rate(self):
        spec = "loss: {kind: bce_with_logits, logits: logits, labels: labels}\n"
        plan, _ = self.compile(MLP, spec)
        y = np.random.default_rng(6).integers(0, 2, (64, 4)).astype(np.float32)
        out, _ = self.run_sluice("eval", plan, *self.data[:2], "--data", f"labels=npy:{self.npy('y', y)}",
                                 "--metric", "recall_at_precision=0", "--metric", "recall_at_fpr=0.25")
        self.assertEqual(out["recall_at_precision_0"], 1)
        self.assertTrue(0 <= out["recall_at_fpr_0.25"] < 1, out)

    def test_refusals(self):
        plan, _ = self.compile(MLP, SPEC % 0.01)
        train = ["train", plan, *self.data, "--steps", 1]
        for options, says in [
            (["--early-stop", "loss"], "--early-stop needs --eval-data"),
            ([*self.held, "--early-stop", "loss"], "--early-stop needs --eval-every"),
            ([*self.held, "--eval-every", 1, "--early-stop", "loss,patience=0"], "expected METRIC or METRIC,patience=N"),
            ([*self.held, "--keep-best", "loss"], "--keep-best needs --checkpoint"),
            ([*self.held, "--keep-best", "auc", "--checkpoint", self.dir / "a"], "the evaluation has no figure 'auc', expected one of 'loss'"),
            ([*self.held, "--metric", "top_k=0"], "expected top_k=K"),
            ([*self.held, "--metric", "recall_at_fpr=0.1"], "needs two classes; the plan has 4"),
        ]:
            with self.subTest(says):
                _, errors = self.run_sluice(*train, *options, code=2)
                self.assertIn(says, errors)
        self.assertFalse((self.dir / "a").exists())  # refused before the first step


if __name__ == "__main__":
    unittest.main()
