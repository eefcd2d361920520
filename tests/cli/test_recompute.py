"""Cases of recompute that other systems got wrong: what is run again has the same bits, draws the same numbers, writes statistics once."""
import pathlib
import re
import sys
import unittest

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import ROOT, SluiceTest, newest_checkpoint, read_safetensors  # noqa: E402

MEMORY = ROOT / "tests" / "models" / "memory"
SGD = "optimizer: {kind: sgd, lr: 1.0}\n"
OUTPUT = "loss: {kind: output, name: loss}\n"


class Case(SluiceTest):
    def smallest(self, model, spec):
        errors = self.compile(model, spec, "refused", "--memory", 1, code=3)[1]
        return int(re.search(r"smallest that can be met is (\d+) bytes", errors)[1])

    def after(self, plan, data, name, steps=1):
        """The state after some steps, and the losses."""
        folder = self.dir / f"run-{name}"
        out, _ = self.run_sluice("train", plan, *data, "--steps", steps, "--no-shuffle", "--losses", "--checkpoint", folder)
        return read_safetensors(newest_checkpoint(folder)), out["losses"]

    def recomputed(self, plan):
        decisions = self.run_sluice("explain", plan)[0]["decisions"]
        return {name for d in decisions if d["why"].startswith("recomputed ") for name in d["subject"].split("+")}

    def under_budgets(self, model, spec, data, again, steps=1):
        """State and losses of the plan without a budget; those of two policies and the smallest budget are the same bits, and
        somewhere the node `again` is run again."""
        free, report = self.compile(model, spec, "free")
        state, losses = self.after(free, data, "free", steps)
        least = self.smallest(model, spec)
        self.assertLessEqual(least, report["arena_bytes"])
        runs_again = set()
        for name, more, options in (("least", "", ("--memory", least)), ("every", "memory: {recompute: {every: 1}}\n", ()), ("sqrt", "memory: {recompute: sqrt}\n", ())):
            plan, own = self.compile(model, spec + more, name, *options)
            same, again_losses = self.after(plan, data, name, steps)
            self.assertEqual(again_losses, losses)
            self.assertEqual({k: v.tobytes() for k, v in same.items()}, {k: v.tobytes() for k, v in state.items()})
            if options:
                self.assertLessEqual(own["arena_bytes"], report["arena_bytes"])
            runs_again |= self.recomputed(plan)
        if again:
            self.assertTrue({name for name in runs_again if name.startswith(again)}, runs_again)
        return free, state, losses

    def one(self):
        return ["--data", f"one=npy:{self.npy('one', np.ones((1, 1), np.float32))}"]

    def initial(self, plan):
        return read_safetensors(plan.with_suffix(".safetensors"))


class Random(Case):
    def test_dropout_is_the_same_in_both_parts(self):  # R1 [pytorch#190758]
        plan, state, losses = self.under_budgets(MEMORY / "dropout.onnx", OUTPUT + SGD + "seed: 5\nthreads: 1\n", self.one(), "dropout")
        before = self.initial(plan)
        x, w, u = (before[f"param/{name}"].astype(np.float64) for name in "xwu")
        dropped = state["param/x"] == before["param/x"]  # gradient 0
        self.assertTrue(0.4 < dropped.mean() < 0.6)
        y = np.where(dropped, 0, 2 * x)  # with the mask that the gradient shows
        s = 1 / (1 + np.exp(-(y @ w @ u)))
        through = (s * (1 - s)) @ u.T  # dL/d(y w)
        np.testing.assert_allclose(losses[0], s.sum(), rtol=1e-5)
        np.testing.assert_allclose(x - state["param/x"], np.where(dropped, 0, 2 * (through @ w.T)), atol=2e-5)
        np.testing.assert_allclose(w - state["param/w"], y.T @ through, rtol=1e-3, atol=1e-2)

    def test_noise_is_drawn_once(self):  # R2 [pytorch#172730]
        plan, state, losses = self.under_budgets(MEMORY / "noise.onnx", OUTPUT + SGD + "seed: 5\nthreads: 1\n", self.one(), "y")
        x = self.initial(plan)["param/x"]
        np.testing.assert_array_equal(state["param/x"], x - np.float32(1))
        y_sums = -state["param/w"].astype(np.float64)  # w was 0: its gradient is the sum of y over the rows
        np.testing.assert_allclose(y_sums[:, 0].sum() + 0.5 * 256 * 128, losses[0], rtol=1e-5)
        self.assertFalse(np.allclose(y_sums[:, 0], x.sum(axis=0)), "no noise")


class Statistics(Case):
    def test_running_statistics_are_written_once(self):  # R3 [pytorch#96136], R5
        data = ["--data", f"x=npy:{self.npy('x', np.array([[1], [3]], np.float32))}"]
        model, spec = MEMORY / "batch-norm.onnx", OUTPUT + SGD
        for policy in ("", "memory: {recompute: {every: 1}}\n", "memory: {recompute: sqrt}\n"):
            plan, report = self.compile(model, spec + policy, "norm")
            state, _ = self.after(plan, data, "norm" + str(len(policy)))
            np.testing.assert_allclose(state["param/mean"], [0.2], rtol=1e-6)
            np.testing.assert_allclose(state["param/variance"], [1.0], rtol=1e-6)  # PyTorch's convention: 1.1
            self.assertRegex(" ".join(report["notes"]), "population variance")

    def test_recomputed_normalisation(self):
        random = np.random.default_rng(8)
        data = ["--data", f"x=npy:{self.npy('x', random.random((32, 6, 5), np.float32))}"]
        spec = OUTPUT + "optimizer: {kind: sgd, lr: 1.0e-3}\n"
        _, state, _ = self.under_budgets(MEMORY / "batch-norm-wide.onnx", spec, data, None, steps=3)
        x = np.load(self.dir / "x.npy").astype(np.float64)
        mean = x.mean(axis=(0, 2))
        np.testing.assert_allclose(state["param/mean"], mean * (1 - 0.9**3), rtol=1e-5)


class Frozen(Case):
    def test_block_behind_a_frozen_embedding(self):  # R7 [transformers#21381]
        random = np.random.default_rng(9)
        data = ["--data", f"tokens=npy:{self.npy('tokens', random.integers(0, 11, 64))}",
                "--data", f"labels=npy:{self.npy('labels', random.integers(0, 5, 64))}"]
        spec = "loss: {kind: cross_entropy, logits: logits, labels: labels}\ntrainable: ['*']\nfrozen: [embedding]\n" + SGD
        plan, state, _ = self.under_budgets(MEMORY / "frozen-embedding.onnx", spec, data, "tanh", steps=2)
        before = self.initial(plan)
        np.testing.assert_array_equal(state["param/embedding"], before["param/embedding"])
        for name in ("up0", "down0", "up3", "head"):
            self.assertTrue((state[f"param/{name}"] != before[f"param/{name}"]).any(), name)


class Sweep(Case):
    def test_measured_peak_follows_the_budget(self):  # R9 [pytorch#197838], R11
        random = np.random.default_rng(7)
        data = ["--data", f"x=npy:{self.npy('x', random.random((64, 12), np.float32))}",
                "--data", f"labels=npy:{self.npy('labels', random.integers(0, 4, 64))}"]
        spec = "loss: {kind: cross_entropy, logits: logits, labels: labels}\nshapes: {batch: 32}\n"
        model = MEMORY / "mlp.onnx"
        _, free = self.compile(model, spec, "free")
        most, least = free["arena_bytes"], self.smallest(model, spec)
        peaks, losses = [], set()
        for percent in range(100, 0, -10):
            budget = most * percent // 100
            if budget < least:
                self.compile(model, spec, f"at{percent}", "--memory", budget, code=3)
                continue
            plan, report = self.compile(model, spec, f"at{percent}", "--memory", budget)
            self.assertLessEqual(report["arena_bytes"], most)
            out, _ = self.run_sluice("train", plan, *data, "--steps", 20, "--losses", "--measure")
            self.assertLessEqual(out["arena_bytes_measured"], budget)
            self.assertEqual(out["allocations_in_steps"], 0)
            peaks.append(out["arena_bytes_measured"])
            losses.add(tuple(out["losses"]))
        self.assertEqual(peaks, sorted(peaks, reverse=True))
        self.assertGreater(len(set(peaks)), 1)
        self.assertEqual(len(losses), 1)


if __name__ == "__main__":
    unittest.main()
