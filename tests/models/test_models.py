"""Whole models through compile and train, compared with what other systems computed."""
import csv
import pathlib
import sys
import unittest

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from capi import Session  # noqa: E402
from harness import ROOT, SHARED, SluiceTest, needs_shared, newest_checkpoint, pseudo_random, read_checkpoint, read_safetensors  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent


def relative(a, b):
    return np.max(np.abs(a - b)) / max(np.max(np.abs(b)), 1e-30)


class Recorded(SluiceTest):
    """Logits, gradients and ten losses recorded from PyTorch 1.13.1 by record.py; 1e-4 relative."""

    def check(self, name, input_name):
        golden = read_safetensors(HERE / f"{name}.safetensors")
        inputs, labels = golden["in/" + input_name], golden["labels"]
        data = ["--data", f"{input_name}=npy:{self.npy('x', inputs)}", "--data", f"labels=npy:{self.npy('y', labels)}"]
        spec = "loss: {kind: cross_entropy, logits: logits, labels: labels}\noptimizer: {kind: adamw, lr: 1.0e-3, weight_decay: 0.01}\n"

        plan, _ = self.compile(HERE / f"{name}.onnx", spec, "train")
        out, _ = self.run_sluice("train", plan, *data, "--steps", 10, "--no-shuffle", "--losses", "--checkpoint", self.dir / "run")
        np.testing.assert_allclose(out["losses"], golden["losses"], rtol=1e-4)
        self.assertEqual(out["allocations_in_steps"], 0)
        state = read_safetensors(newest_checkpoint(self.dir / "run"))
        for key, value in golden.items():
            # PyTorch keeps the unbiased variance, ONNX the population's: compared as what they are of one another.
            if key.startswith("final/") and "running_var" not in key:
                self.assertLess(relative(state["param/" + key[6:]], value), 2e-3, key)

        # Gradients: after one of two micro-batches the accumulators hold the unnormalised sums.
        plan, _ = self.compile(HERE / f"{name}.onnx", spec + "accumulate: 2\n", "window")
        session = Session(plan)
        self.addCleanup(session.close)
        result = session.step(inputs, labels)
        self.assertFalse(result.updated)
        self.assertEqual(result.loss_count, labels.size)
        for key, value in golden.items():
            if key.startswith("grad/"):
                gradient = session.read(key, value.shape) / labels.size
                self.assertLess(relative(gradient, value), 1e-4, key)

    def test_cnn(self):
        self.check("small-cnn", "images")

    def test_decoder(self):
        self.check("small-decoder", "tokens")


class Tied(SluiceTest):
    def test_every_part_of_a_tied_vocabulary_learns(self):
        """Case S9: tied rows 0 to 50,256, of which few are looked up; four ranks, and one that sums in their order."""
        from onnx import TensorProto, helper, numpy_helper

        rows, width = 50257, 8
        weight = (pseudo_random(rows * width) * 0.1).reshape(rows, width)
        graph = helper.make_graph(
            [helper.make_node("Gather", ["wte", "tokens"], ["h"]), helper.make_node("Transpose", ["wte"], ["head"], perm=[1, 0]),
             helper.make_node("MatMul", ["h", "head"], ["logits"])],
            "tied", [helper.make_tensor_value_info("tokens", TensorProto.INT64, [6])],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [6, rows])], [numpy_helper.from_array(weight, "wte")])
        path = self.dir / "tied.onnx"
        path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
        tokens, labels = np.arange(24) * 7, np.arange(24) * 11
        data = ["--data", f"tokens=npy:{self.npy('t', tokens)}", "--data", f"labels=npy:{self.npy('l', labels)}"]

        def train(name, ranks, *more):
            plan, _ = self.compile(path, "loss: {kind: cross_entropy, logits: logits, labels: labels}\n"
                                   "optimizer: {kind: sgd, lr: 10.0}\n" + ranks, name)
            self.run_sluice("train", plan, *data, "--steps", 1, "--no-shuffle", "--checkpoint", self.dir / name, *more)
            return read_checkpoint(newest_checkpoint(self.dir / name))["param/wte"]

        trained = train("alone", "accumulate: {count: 4, as_ranks: 4}\n")
        np.testing.assert_array_equal(train("four", "parallel: {data: 4}\n", "--comm", "local"), trained)
        np.testing.assert_array_equal(train("shared", "parallel: {data: 4, zero: 1}\n", "--comm", "local"), trained)
        # The double-precision gradient of both uses, summed.
        w = weight.astype(np.float64)
        h = w[tokens]
        logits = h @ w.T
        p = np.exp(logits - logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        p[np.arange(24), labels] -= 1
        gradient = p.T @ h
        np.add.at(gradient, tokens, p @ w)
        moved = trained - weight
        self.assertLess(relative(moved, -10 * gradient / 24), 1e-4)
        for shard in np.array_split(moved, 4):
            self.assertTrue(np.any(shard != 0, axis=1).mean() > 0.5)


class Seizureguard(SluiceTest):
    ORT = [12742.142578, 27479.414062, 24392.744141, 8544.073242, 9595.723633]
    TORCH = [12742.132812, 27479.410156, 24392.734375, 8544.110352, 9595.738281]
    TORCH_DECAY = [12742.132812, 27479.246094, 24392.257812, 8543.867188, 9595.111328]

    def train(self, decay):
        x = self.npy("x", pseudo_random(4 * 18 * 1024).reshape(4, 18, 1024))
        y = self.npy("y", np.array([0, 1, 0, 1], np.int64))
        folder = SHARED / "models" / "seizureguard"
        info, _ = self.run_sluice("import", folder / "base_pat_02.onnx", "--shape", "batch_size=4", code=0)
        (inputs,), (output,) = info["inputs"], info["outputs"]
        spec = (
            f"shapes: {{{inputs['name']}: [4, 18, 1024]}}\ntrainable: ['classifier.*']\n"
            f"loss: {{kind: cross_entropy, logits: {output['name']}, labels: labels}}\n"
            f"optimizer: {{kind: adamw, lr: 1.0e-3, eps: 1.0e-6, weight_decay: {decay}}}\n"
        )
        plan, report = self.compile(folder / "base_pat_02.onnx", spec)
        out, _ = self.run_sluice(
            "train", plan, "--data", f"{inputs['name']}=npy:{x}", "--data", f"labels=npy:{y}", "--steps", 5,
            "--no-shuffle", "--losses", "--checkpoint", self.dir / "run")
        return out["losses"], report

    @needs_shared("models", "seizureguard")
    def test_losses_of_the_recorded_run(self):
        losses, _ = self.train(0)
        for ours, ort, torch in zip(losses, self.ORT, self.TORCH):
            self.assertLess(min(abs(ours - ort) / ort, abs(ours - torch) / torch), 1e-5, losses)

    @needs_shared("models", "seizureguard")
    def test_losses_with_weight_decay(self):
        losses, _ = self.train(0.01)
        np.testing.assert_allclose(losses, self.TORCH_DECAY, rtol=1e-5)

    @needs_shared("models", "seizureguard")
    def test_onnxruntimes_eval_model_is_trained_as_it_is(self):
        """Weights are inputs, with values in the checkpoint beside the model, and the loss is an output."""
        model = SHARED / "models" / "seizureguard" / "eval_model.onnx"
        spec = ("shapes: {batch_size: 4}\ntrainable: ['classifier.*']\nloss: {kind: output, name: 'onnx::loss::2'}\n"
                "optimizer: {kind: adamw, lr: 1.0e-3, eps: 1.0e-6, weight_decay: 0}\n")
        plan, report = self.compile(model, spec)
        x = self.npy("x", pseudo_random(4 * 18 * 1024).reshape(4, 18, 1024))
        y = self.npy("y", np.array([0, 1, 0, 1], np.int64))
        out, _ = self.run_sluice("train", plan, "--data", f"input=npy:{x}", "--data", f"labels=npy:{y}", "--steps", 5,
                                 "--no-shuffle", "--losses", "--checkpoint", self.dir / "run")
        for ours, ort, torch in zip(out["losses"], self.ORT, self.TORCH):
            self.assertLess(min(abs(ours - ort) / ort, abs(ours - torch) / torch), 1e-5, out["losses"])
        self.assertTrue(any("ONNX Runtime checkpoint" in note and "6 of them do not train" in note for note in report["notes"]), report["notes"])
        self.run_sluice("export", plan, "--checkpoint", self.dir / "run", "--model", model, "-o", self.dir / "trained.onnx")
        info, _ = self.run_sluice("import", self.dir / "trained.onnx", "--shape", "batch_size=4")
        self.assertEqual([port["name"] for port in info["inputs"]], ["input", "labels"])
        self.assertEqual(info["parameter_elements"], 310702)

    @needs_shared("models", "seizureguard")
    def test_gradients_and_moments_of_four_tensors_only(self):
        _, report = self.train(0)
        state = read_safetensors(newest_checkpoint(self.dir / "run"))
        moments = sorted(name for name in state if name.startswith("opt/"))
        self.assertEqual(len(moments), 8, moments)
        self.assertTrue(all("classifier." in name for name in moments), moments)
        # Each of the eight is padded to its alignment of 64 bytes.
        self.assertIn(report["arena"]["optimizer"] - 2 * 4 * 205102, range(8 * 64))
        self.assertTrue(any("4 of" in note for note in report["notes"]), report["notes"])


class Accuracy(SluiceTest):
    def evaluate(self, model, transform, expected):
        rows = list(csv.reader((SHARED / "data" / "eran" / "mnist_test.csv").read_text().splitlines()))
        labels = np.array([int(r[0]) for r in rows], np.int64)
        pixels = np.array([[float(v) for v in r[1:785]] for r in rows], np.float32)
        info, _ = self.run_sluice("import", model)
        (inputs,), (output,) = info["inputs"], info["outputs"]
        shape = [1 if size < 0 else size for size in inputs["shape"]]
        images = transform(pixels).astype(np.float32).reshape([100] + shape[1:])
        spec = (
            f"shapes: {{{inputs['name']}: {shape}}}\n"
            f"loss: {{kind: cross_entropy, logits: {output['name']}, labels: labels}}\noptimizer: {{kind: sgd}}\n"
        )
        plan, _ = self.compile(model, spec)
        out, _ = self.run_sluice("eval", plan, "--data", f"{inputs['name']}=npy:{self.npy('x', images)}",
                                 "--data", f"labels=npy:{self.npy('y', labels)}")
        self.assertEqual(out["count"], 100)
        self.assertEqual(round(out["accuracy"] * 100), expected)

    @needs_shared("models", "burn-onnx", "mnist.onnx")
    def test_burn_mnist(self):
        self.evaluate(SHARED / "models" / "burn-onnx" / "mnist.onnx", lambda p: (p / 255 - 0.1307) / 0.3081, 100)

    @needs_shared("models", "wonnx", "opt-mnist.onnx")
    def test_wonnx_mnist(self):
        self.evaluate(SHARED / "models" / "wonnx" / "opt-mnist.onnx", lambda p: p, 99)


FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")


class Training(SluiceTest):
    """The examples reach what they promise in a fixed number of steps."""

    @unittest.skipUnless(FASHION.exists(), "the package dataset-fashion-mnist is not installed")
    def test_fashion_mnist_reaches_90_percent_in_three_epochs(self):
        folder = ROOT / "examples" / "fashion-mnist"
        plan, _ = self.compile(folder / "fashion-cnn.onnx", (folder / "train.yaml").read_text())
        files = lambda part: [f"images=idx:{FASHION}/{part}-images-idx3-ubyte.gz,scale=1/255", f"labels=idx:{FASHION}/{part}-labels-idx1-ubyte.gz"]  # noqa: E731
        train, test = files("train"), files("t10k")
        out, _ = self.run_sluice("train", plan, "--data", train[0], "--data", train[1], "--eval-data", test[0],
                                 "--eval-data", test[1], "--epochs", 3)
        self.assertEqual(out["allocations_in_steps"], 0)
        self.assertEqual(out["eval"]["count"], 10000)
        self.assertGreaterEqual(out["eval"]["accuracy"], 0.90)

    @needs_shared("data", "tinyshakespeare.txt")
    def test_the_char_decoder_falls_below_two_nats_in_a_thousand_steps(self):
        folder = ROOT / "examples" / "char-decoder"
        plan, _ = self.compile(folder / "char-decoder.onnx", (folder / "train.yaml").read_text())
        text = SHARED / "data" / "tinyshakespeare.txt"
        data = lambda part: [f"tokens=text:{text},range={part}", f"labels=text:{text},shift=1,range={part}"]  # noqa: E731
        train, held_out = data("0:15000"), data("15000:17000")
        out, _ = self.run_sluice("train", plan, "--data", train[0], "--data", train[1], "--eval-data", held_out[0],
                                 "--eval-data", held_out[1], "--steps", 1000)
        self.assertLess(out["eval"]["loss"], 2.0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
