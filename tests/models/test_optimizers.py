"""Every optimizer through compile and train: losses of PyTorch 1.13.1 where it has it, else that training works."""
import json
import pathlib
import sys
import unittest

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from harness import SluiceTest, newest_checkpoint, read_safetensors  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
RECORD = json.loads((HERE / "mlp-losses.json").read_text())


class Optimizers(SluiceTest):
    def train(self, optimizer, steps=100, more="", name="model", options=()):
        spec = f"loss: {{kind: cross_entropy, logits: logits, labels: labels}}\noptimizer: {json.dumps(optimizer)}\n{more}"
        plan, report = self.compile(HERE / "mlp.onnx", spec, name)
        x = self.npy("x", np.array(RECORD["x"], np.float32))
        y = self.npy("y", np.array(RECORD["labels"], np.int64))
        out, _ = self.run_sluice("train", plan, "--data", f"x=npy:{x}", "--data", f"labels=npy:{y}", "--steps", steps,
                                 "--no-shuffle", "--losses", "--checkpoint", self.dir / name, *options)
        self.assertEqual(out["allocations_in_steps"], 0)
        return out["losses"], read_safetensors(newest_checkpoint(self.dir / name)), report

    def test_losses_are_pytorchs(self):
        for kind, run in RECORD["runs"].items():
            with self.subTest(kind):
                losses, _, _ = self.train({"kind": kind, **run["options"]}, name=kind)
                np.testing.assert_allclose(losses, run["losses"], rtol=2e-4, err_msg=kind)

    def test_what_pytorch_lacks_learns_and_keeps_its_state(self):
        expected = {
            "lamb": ({"lr": 0.02}, {"m": (16, 6), "v": (16, 6)}),
            "lion": ({"lr": 0.003}, {"m": (16, 6)}),
            "adafactor": ({"lr": 0.05}, {"row_var": (16, 1), "col_var": (1, 6)}),
            "muon": ({"lr": 0.03}, {"momentum_buffer": (16, 6)}),
        }
        for kind, (options, state) in expected.items():
            with self.subTest(kind):
                losses, saved, _ = self.train({"kind": kind, **options}, name=kind)
                self.assertLess(losses[-1], 0.6 * losses[0], losses)
                kept = {name.rsplit("/", 1)[1]: saved[name].shape for name in saved if name.startswith("opt/w1/")}
                self.assertEqual(kept, state)

    def test_muon_gives_vectors_to_adamw(self):
        _, saved, report = self.train({"kind": "muon", "lr": 0.01}, steps=2)
        self.assertEqual(sorted(n for n in saved if n.startswith("opt/b1/")), ["opt/b1/m", "opt/b1/v"])
        self.assertTrue(any("'default-vectors' trains 2 parameters by adamw" in note for note in report["notes"]), report["notes"])

    def test_a_group_has_an_optimizer_of_its_own(self):
        group = 'parameter_groups: [{match: "w2", kind: sgd, lr: 0.5}]\n'
        _, saved, _ = self.train({"kind": "muon", "lr": 0.01}, steps=1, more=group, name="mixed")
        self.assertFalse([n for n in saved if n.startswith("opt/w2/")])
        _, plain, _ = self.train({"kind": "sgd", "lr": 0.5}, steps=1, name="plain")
        np.testing.assert_array_equal(saved["param/w2"], plain["param/w2"])

    def test_accumulation_changes_no_optimizer(self):
        for kind in ["nadam", "adafactor", "muon"]:
            with self.subTest(kind):
                whole, _, _ = self.train({"kind": kind, "lr": 0.01}, steps=5, name=f"{kind}-whole")
                split, _, _ = self.train({"kind": kind, "lr": 0.01}, steps=5, name=f"{kind}-split",
                                         more="accumulate: 2\n")
                # Two micro-batches of the same 32 samples have the same mean.
                np.testing.assert_allclose(split, whole, rtol=1e-5)

    def test_threads_and_levels_change_no_bit(self):
        for kind in ["lamb", "adafactor", "muon"]:  # those with sums and products
            with self.subTest(kind):
                optimizer = {"kind": kind, "lr": 0.02}
                once, _, _ = self.train(optimizer, 10, "threads: 2\n", f"{kind}-two")
                for options in [["--threads", 1], ["--level", "x86-64-v3"]]:
                    again, _, _ = self.train(optimizer, 10, "threads: 2\n", f"{kind}-{options[1]}", options)
                    self.assertEqual(again, once)

    def test_a_key_without_effect_is_refused(self):
        errors = self.compile(HERE / "mlp.onnx", "optimizer: {kind: adam, momentum: 0.9}\n", code=1)[1]
        self.assertIn("'optimizer.momentum' has no effect on adam", errors)


class Init(SluiceTest):
    """`init:` reaches the initial state; the seed decides, the name tells parameters apart."""

    def initial(self, spec, name):
        plan, report = self.compile(HERE / "mlp.onnx", "loss: {kind: cross_entropy, logits: logits, labels: labels}\n" + spec, name)
        return read_safetensors(plan.with_suffix(".safetensors")), report

    def test_rules_reach_the_initial_state(self):
        state, report = self.initial("init: {from: kaiming}\nseed: 3\n", "a")
        again, _ = self.initial("init: {from: kaiming}\nseed: 3\n", "b")
        other, _ = self.initial("init: {from: kaiming}\nseed: 4\n", "c")
        model, _ = self.initial("", "d")
        w = state["param/w1"]
        bound = np.sqrt(6 / 6)
        self.assertTrue(0.9 * bound < np.abs(w).max() <= bound, w)
        np.testing.assert_array_equal(w, again["param/w1"])
        self.assertTrue((w != other["param/w1"]).all())
        np.testing.assert_array_equal(state["param/b1"], model["param/b1"])
        self.assertTrue(any("2 parameters below rank 2 keep" in note for note in report["notes"]), report["notes"])


if __name__ == "__main__":
    unittest.main()
