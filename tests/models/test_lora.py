"""Low-rank adapters: the model starts as it was, the adapters train as in PyTorch's formula, and export adds them in."""
import json
import pathlib
import sys
import unittest

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from capi import Session  # noqa: E402
from harness import SluiceTest, newest_checkpoint, read_safetensors  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
RECORD = json.loads((HERE / "mlp-losses.json").read_text())
LOSS = "loss: {kind: cross_entropy, logits: logits, labels: labels}\n"


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class Lora(SluiceTest):
    def batch(self, name):
        if name == "mlp":
            return "x", np.array(RECORD["x"], np.float32), np.array(RECORD["labels"], np.int64)
        golden = read_safetensors(HERE / f"{name}.safetensors")
        key = next(k for k in golden if k.startswith("in/"))
        return key[3:], golden[key], golden["labels"]

    def data(self, name, labels=True):
        key, inputs, targets = self.batch(name)
        parts = ["--data", f"{key}=npy:{self.npy('x', inputs)}"]
        return parts + (["--data", f"labels=npy:{self.npy('y', targets)}"] if labels else [])

    def infer(self, plan, name, *options):
        self.run_sluice("infer", plan, *self.data(name, labels=False), *options, "-o", self.dir / "out.npy")
        return np.load(self.dir / "out.npy")

    def check(self, name, lora, adapted):
        """Starts as the base, learns, goes on bit by bit after a stop, and is the same once merged into the ONNX file."""
        model = HERE / f"{name}.onnx"
        spec = LOSS + "optimizer: {kind: adamw, lr: 1.0e-2}\n"
        base, _ = self.compile(model, spec, "base")
        plan, report = self.compile(model, spec + f"lora: {lora}\n", "lora")
        # Only what adapters pass through twice is rounded twice: B is zero, so the sums are exact.
        np.testing.assert_array_equal(self.infer(plan, name), self.infer(base, name))
        train = ["train", plan, *self.data(name), "--no-shuffle", "--losses"]
        whole, _ = self.run_sluice(*train, "--steps", 6, "--checkpoint", self.dir / "whole")
        self.assertLess(whole["losses"][-1], whole["losses"][0])
        self.run_sluice(*train, "--steps", 3, "--checkpoint", self.dir / "parts")
        self.run_sluice(*train, "--steps", 6, "--checkpoint", self.dir / "parts", "--resume")
        state, again = (read_safetensors(newest_checkpoint(self.dir / run)) for run in ("whole", "parts"))
        initial = read_safetensors(self.dir / "base.safetensors")
        for key, value in state.items():
            np.testing.assert_array_equal(value, again[key], err_msg=key)
            if key.startswith("param/") and ".lora_" not in key and key in initial and "running" not in key:
                np.testing.assert_array_equal(value, initial[key], err_msg=key)
        self.assertEqual({k[6:-7] for k in state if k.endswith(".lora_A")}, set(adapted))
        self.assertEqual({k for k in state if k.startswith("opt/")},
                         {f"opt/{k}.lora_{p}/{m}" for k in adapted for p in "AB" for m in "mv"})
        tuned = self.infer(plan, name, "--checkpoint", self.dir / "whole")
        merged = self.dir / "merged.onnx"
        out, _ = self.run_sluice("export", plan, "--checkpoint", self.dir / "whole", "--model", model, "-o", merged)
        self.assertEqual(out["merged"], len(adapted))
        plan_of_merged, _ = self.compile(merged, spec, "merged")
        np.testing.assert_allclose(self.infer(plan_of_merged, name), tuned, rtol=2e-4, atol=2e-5)
        self.check_with_onnx(merged, name, tuned)
        return plan, state, report

    def check_with_onnx(self, path, name, expected):
        try:
            import onnx
            from onnx.reference import ReferenceEvaluator
        except ImportError:
            return  # compared with the compiled file alone
        key, inputs, _ = self.batch(name)
        out = ReferenceEvaluator(onnx.load(str(path))).run(None, {key: inputs})
        np.testing.assert_allclose(out[0], expected, rtol=2e-4, atol=2e-5)

    def test_linear_layers(self):
        plan, state, report = self.check("mlp", '{match: "w*", rank: 2, alpha: 4}', ["w1", "w2"])
        self.assertEqual(state["param/w1.lora_A"].shape, (2, 6))
        self.assertEqual(state["param/w1.lora_B"].shape, (16, 2))
        self.assertTrue(any("adapters of rank 2, scaled by 2, beside 2 weights" in n for n in report["notes"]), report["notes"])

    def test_attention_and_embedding(self):
        golden = read_safetensors(HERE / "small-decoder.safetensors")
        names = [k[6:] for k in golden if k.startswith("final/") and golden[k].ndim == 2]
        self.check("small-decoder", '{match: "*", rank: 2, alpha: 2}', names)

    def test_convolutions(self):
        golden = read_safetensors(HERE / "small-cnn.safetensors")
        names = [k[6:] for k in golden if k.startswith("final/") and golden[k].ndim in (2, 4)]
        self.check("small-cnn", '{match: "*", rank: 1}', names)

    def test_gradients_are_the_formulas(self):
        """One step of plain descent from a random A and B against the gradients written by hand."""
        spec = LOSS + "optimizer: {kind: sgd, lr: 1.0}\naccumulate: 2\nlora: {match: w2, rank: 2, alpha: 3}\n"
        plan, _ = self.compile(HERE / "mlp.onnx", spec)
        session = Session(plan)
        self.addCleanup(session.close)
        random = np.random.default_rng(5)
        a, b = (random.normal(0, 0.5, s).astype(np.float32) for s in ((2, 16), (4, 2)))
        session.write("param/w2.lora_A", a)
        session.write("param/w2.lora_B", b)
        _, x, labels = self.batch("mlp")
        session.step(x, labels)
        w1, b1, w2, b2 = (session.read("param/" + n, s).astype(float) for n, s in
                          (("w1", (16, 6)), ("b1", 16), ("w2", (4, 16)), ("b2", 4)))
        h = np.tanh(x @ w1.T + b1)
        p = softmax(h @ (w2 + 1.5 * b @ a).T + b2)
        p[np.arange(len(labels)), labels] -= 1
        whole = p.T @ h  # of the merged weight
        np.testing.assert_allclose(session.read("grad/w2.lora_A", (2, 16)), 1.5 * b.T @ whole, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(session.read("grad/w2.lora_B", (4, 2)), 1.5 * whole @ a.T, rtol=1e-4, atol=1e-4)

    def test_adapters_alone_and_what_trains_beside_them(self):
        spec = LOSS + 'lora: [{match: "w*", rank: 2}, {match: w2, rank: 3, dropout: 0.5}]\ntrainable: ["*.lora_*", b2]\n'
        plan, report = self.compile(HERE / "mlp.onnx", spec)
        self.run_sluice("train", plan, *self.data("mlp"), "--steps", 2, "--checkpoint", self.dir / "run")
        state = read_safetensors(newest_checkpoint(self.dir / "run"))
        self.assertIn("opt/b2/m", state)
        self.assertEqual(state["param/w2.lora_A"].shape, (3, 16))
        self.run_sluice("export", plan, "--checkpoint", self.dir / "run", "--no-merge", "-o", self.dir / "a.safetensors")
        alone = read_safetensors(self.dir / "a.safetensors")
        self.assertEqual(sorted(alone), ["w1.lora_A", "w1.lora_B", "w2.lora_A", "w2.lora_B"])
        np.testing.assert_array_equal(alone["w2.lora_A"], state["param/w2.lora_A"])

    def test_refusals(self):
        for lora, message in {
                '{match: "*.attn.*"}': "pattern '*.attn.*' of 'lora' matches no parameter",
                '{match: "w*", rank: 5}': "whose smaller side is 4, but 'rank' is 5",
                '{match: "b*"}': "matches 2 parameters, none of which is a matrix",
                '{rank: 2}': "a rule of 'lora' has no 'match'",
                '{match: w1, rank: 0}': "'rank' is 0, expected at least 1",
                '{match: w1, rang: 2}': "did you mean 'rank'?",
                'yes': "expected a rule"}.items():
            with self.subTest(lora):
                _, errors = self.compile(HERE / "mlp.onnx", LOSS + f"lora: {lora}\n", code=1)
                self.assertIn(message, errors)
        plan, _ = self.compile(HERE / "mlp.onnx", LOSS)
        self.run_sluice("export", plan, "--no-merge", "-o", self.dir / "a.safetensors", code=2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
