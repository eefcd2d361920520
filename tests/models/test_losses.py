"""Losses of sequences and distances through compile and train, against ten steps of PyTorch 1.13.1 (record_losses.py)."""
import json
import pathlib
import sys
import unittest

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from capi import Session  # noqa: E402
from harness import SluiceTest  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
RECORD = json.loads((HERE / "losses.json").read_text())
SGD = "optimizer: {kind: sgd, lr: 0.1}\n"


class Losses(SluiceTest):
    def expect(self, model, loss, arrays, run, name):
        """Losses of ten steps, and the gradients of the first."""
        plan, _ = self.compile(HERE / model, f"loss: {json.dumps(loss)}\n{SGD}", name)
        data = []
        for key, array in arrays.items():
            data += ["--data", f"{key}=npy:{self.npy(name + key, array)}"]
        out, _ = self.run_sluice("train", plan, *data, "--steps", 10, "--no-shuffle", "--losses")
        np.testing.assert_allclose(out["losses"], run["losses"], rtol=1e-5, atol=2e-6)
        self.assertEqual(out["allocations_in_steps"], 0)
        plan, _ = self.compile(HERE / model, f"loss: {json.dumps(loss)}\n{SGD}accumulate: 2\n", name + "-window")
        session = Session(plan)
        self.addCleanup(session.close)
        count = session.step(*arrays.values()).loss_count
        for key, values in run["gradients"].items():
            gradient = session.read("grad/" + key, len(values)) / count
            np.testing.assert_allclose(gradient, values, rtol=1e-4, atol=1e-6, err_msg=key)
        return plan

    def ctc_arrays(self):
        run = RECORD["ctc"]
        return {"x": np.array(run["x"], np.float32), "labels": np.array(run["labels"], np.int64),
                "frames": np.array(run["frames"], np.int64), "lengths": np.array(run["lengths"], np.int64)}

    def test_ctc(self):
        loss = {"kind": "ctc", "target_size": 3, "input_lengths": "frames", "target_lengths": "lengths"}
        arrays = self.ctc_arrays()
        self.expect("ctc.onnx", loss, arrays, RECORD["ctc"], "ctc")
        # The padding says as much as the lengths.
        del loss["target_lengths"], arrays["lengths"]
        self.expect("ctc.onnx", loss, arrays, RECORD["ctc"], "padded")

    def test_ctc_masks_padded_samples(self):
        loss = {"kind": "ctc", "target_size": 3, "input_lengths": "frames", "target_lengths": "lengths"}
        plan, _ = self.compile(HERE / "ctc.onnx", f"loss: {json.dumps(loss)}\n{SGD}accumulate: 2\n")
        arrays = self.ctc_arrays()
        session = Session(plan)
        self.addCleanup(session.close)
        alone = session.step(*[a[:1] for a in arrays.values()])
        self.assertEqual(alone.loss_count, 1)
        whole = Session(plan)
        self.addCleanup(whole.close)
        arrays["labels"][1:] = -100  # a target of no labels: the frames' blanks
        rest = [whole.step(*[a[i:j] for a in arrays.values()]) for i, j in ((0, 4), (1, 4))]
        self.assertAlmostEqual(rest[0].loss_sum, alone.loss_sum + rest[1].loss_sum, places=4)

    def test_triplet(self):
        arrays = {k: np.array(v, np.float32) for k, v in RECORD["triplet"]["inputs"].items()}
        outputs = {part: part + "_out" for part in arrays}
        for number, run in enumerate(RECORD["triplet"]["runs"]):
            with self.subTest(run["options"]):
                self.expect("triplet.onnx", {"kind": "triplet", **outputs, **run["options"]}, arrays, run, f"t{number}")

    def test_refusals(self):
        cases = {
            '{kind: ctc}': "needs 'target_size'",
            '{kind: ctc, target_size: 3, blank: 9}': "'loss.blank' is 9, expected one of the 5 classes",
            '{kind: ctc, target_size: 3, labels: x}': "the model has an input 'x'",
            '{kind: ctc, target_size: 3, time_axis: 0}': "check 'loss.time_axis'",
            '{kind: ctc, target_size: 3, margin: 1}': "'loss.margin' has no effect on ctc",
            '{kind: triplet, anchor: a, positive: b}': "needs 'anchor', 'positive' and 'negative'",
            '{kind: triplet, anchor: logits, positive: nothing, negative: logits}': "'loss.positive' is 'nothing'",
            '{kind: contrastive}': "expected one of cross_entropy",
        }
        for loss, message in cases.items():
            with self.subTest(loss):
                _, errors = self.compile(HERE / "ctc.onnx", f"loss: {loss}\n", code=1)
                self.assertIn(message, errors)


if __name__ == "__main__":
    unittest.main(verbosity=2)
