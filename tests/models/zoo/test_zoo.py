"""Small forms of the models people have, compared with what PyTorch computed for them."""
import pathlib
import re
import sys
import unittest

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "cli"))
from capi import Session  # noqa: E402
from harness import SluiceTest, read_safetensors  # noqa: E402

OPTIMIZER = "optimizer: {kind: adamw, lr: 1.0e-3, weight_decay: 0.01}\n"
CROSS_ENTROPY = "loss: {kind: cross_entropy, logits: output, labels: labels}\n"


def relative(a, b):
    return np.max(np.abs(a - b)) / max(np.max(np.abs(b)), 1e-30)


class Zoo(SluiceTest):
    """Outputs, gradients and ten losses recorded from PyTorch 1.13.1 by record.py; 1e-4 relative."""

    def check(self, name, loss=CROSS_ENTROPY, shapes="", folded=None):
        """`folded`: pattern of parameters that the export has in another form, so that no gradient has their name."""
        self.golden = read_safetensors(HERE / f"{name}.safetensors")
        self.inputs = {key[3:]: value for key, value in self.golden.items() if key.startswith("in/")}
        self.labels = {"labels": self.golden["labels"]} if "labels" in self.golden else {}
        self.model, self.spec = HERE / f"{name}.onnx", shapes + loss + OPTIMIZER
        self.check_output_and_losses()
        self.check_gradients(folded)

    def data(self, arrays):
        return [part for key, value in arrays.items() for part in ("--data", f"{key}=npy:{self.npy(key, value)}")]

    def check_output_and_losses(self):
        plan, _ = self.compile(self.model, self.spec, "train")
        self.run_sluice("infer", plan, *self.data(self.inputs), "-o", self.dir / "output.npy")
        output = np.load(self.dir / "output.npy")
        self.assertLess(relative(output.reshape(self.golden["output"].shape), self.golden["output"]), 1e-4)
        out, _ = self.run_sluice("train", plan, *self.data({**self.inputs, **self.labels}), "--steps", 10, "--no-shuffle", "--losses")
        np.testing.assert_allclose(out["losses"], self.golden["losses"], rtol=1e-4)
        self.assertEqual(out["allocations_in_steps"], 0)

    def check_gradients(self, folded):
        # After one of two micro-batches the accumulators hold the unnormalised sums.
        plan, _ = self.compile(self.model, self.spec + "accumulate: 2\n", "window")
        session = Session(plan)
        self.addCleanup(session.close)
        result = session.step(*self.inputs.values(), *self.labels.values())
        self.assertFalse(result.updated)
        recorded = {key: value for key, value in self.golden.items() if key.startswith("grad/")}
        scale = max(np.max(np.abs(value)) for value in recorded.values())
        for key, value in recorded.items():
            if folded and re.fullmatch(folded, key[5:]):
                continue
            gradient = session.read(key, value.shape) / result.loss_count
            # Some are zero but for rounding: a bias that a normalisation removes.
            self.assertLess(np.max(np.abs(gradient - value)), 1e-4 * max(np.max(np.abs(value)), 1e-2 * scale), key)

    def test_bert(self):
        self.check("bert", shapes="shapes: {batch: 4}\n")

    def test_vit(self):
        self.check("vit", shapes="shapes: {batch: 4}\n")

    def test_vit_with_folded_constants(self):
        # The exporter also merged all weights of normalisations, which begin equal, and so their biases.
        untie = "untie: [blocks.0.norm1.weight, blocks.0.norm1.bias]\n"
        self.check("vit-folded", shapes="shapes: {batch: 4}\n" + untie, folded=r"blocks\..*\.weight")

    def test_resnet18(self):
        self.check("resnet18")

    def test_resnet18_with_folded_normalisation(self):
        self.check("resnet18-folded")

    def test_mobilenetv2(self):
        self.check("mobilenetv2")

    def test_unet(self):
        self.check("unet", shapes="shapes: {batch: 2}\n")

    def test_pointnet(self):
        self.check("pointnet", "loss: {kind: nll, logits: output, labels: labels}\n", "shapes: {batch: 6}\n")

    def test_llama(self):
        self.check("llama")

    def test_lstm_language_model(self):
        self.check("lstm", shapes="shapes: {batch: 4}\n")

    def test_lstm_language_model_with_folded_weights(self):
        self.check("lstm-folded", folded=r"lstm\..*|head.weight")

    def test_clip(self):
        self.check("clip")

    def test_vae(self):
        self.check("vae", "loss: {kind: output, name: output}\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
