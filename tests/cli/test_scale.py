"""The loss scale on the command line: what train shows of it, against PyTorch's rule, resuming, and the error at the floor."""
import csv
import unittest

import numpy as np

from capi import Session
from harness import ROOT, SluiceTest, newest_checkpoint, read_safetensors

MLP = ROOT / "tests" / "models" / "mlp.onnx"  # 6 inputs, 4 outputs, batches of 32
SPEC = """loss: {kind: mse, logits: logits, labels: labels}
optimizer: {kind: adamw, lr: 0.01}
clip: {kind: global_norm, max: 1}
accumulate: %d
precision: {loss_scale: {init: %g, growth_interval: 2, max_scale: 256}}
"""


def grad_scaler(scale, finite, interval=2, backoff=0.5, low=1, high=256):
    """torch.cuda.amp.GradScaler with limits: the scale that each update uses, and the last one leaves."""
    scales, good = [scale], 0
    for fine in finite:
        if not fine:
            scale, good = max(scale * backoff, low), 0
        elif (good := good + 1) == interval:
            scale, good = min(2 * scale, high), 0
        scales.append(scale)
    return scales


class Scale(SluiceTest):
    def data(self, batches, lost):
        """Batches in order; in those that are lost the gradient of the loss overflows."""
        generator = np.random.default_rng(5)
        self.x = generator.normal(size=(batches, 32, 6)).astype(np.float32)
        self.y = generator.normal(size=(batches, 32, 4)).astype(np.float32)
        self.y[list(lost)] = 3e38
        return self.options(self.x, self.y, "")

    def options(self, x, y, name):
        x, y = self.npy("x" + name, x.reshape(-1, 6)), self.npy("y" + name, y.reshape(-1, 4))
        return ["--no-shuffle", "--data", f"x=npy:{x}", "--data", f"labels=npy:{y}"]

    def train(self, plan, data, steps, *more, code=0):
        return self.run_sluice("train", plan, *data, "--steps", steps, *more, code=code)

    def test_scale_and_skips_are_shown_and_follow_the_rule(self):
        finite = [True, True, False, True, True, True, True, False, False, True]
        data = self.data(10, [i for i, fine in enumerate(finite) if not fine])
        plan, report = self.compile(MLP, SPEC % (1, 64))
        self.assertIn("loss_scale", str(report))
        out, shown = self.train(plan, data, 10, "--log", self.dir / "log.csv", "--checkpoint", self.dir / "run")
        rows = list(csv.DictReader((self.dir / "log.csv").read_text().splitlines()))
        scales = grad_scaler(64, finite)
        self.assertEqual([float(row["loss_scale"]) for row in rows], scales[:-1])
        self.assertEqual([row["skipped"] for row in rows], ["0" if fine else "1" for fine in finite])
        self.assertEqual((out["skipped"], out["loss_scale"]), (3, scales[-2]))
        self.assertIn(f"scale {scales[-2]:g}, 3 skipped", shown)
        saved = read_safetensors(newest_checkpoint(self.dir / "run"))
        self.assertEqual(saved["scale/value"], scales[-1])
        self.assertEqual(saved["scale/skipped"], 3)
        # Without the batches that are lost: the same weights and moments, with no scale at all.
        kept = [i for i, fine in enumerate(finite) if fine]
        few = self.options(self.x[kept], self.y[kept], "-few")
        plain, _ = self.compile(MLP, (SPEC % (1, 64)).split("precision")[0], "plain")
        self.train(plain, few, 7, "--checkpoint", self.dir / "plain")
        expected = read_safetensors(newest_checkpoint(self.dir / "plain"))
        for name, value in expected.items():
            if name != "step":
                np.testing.assert_array_equal(saved[name], value, err_msg=name)

    def test_a_run_that_goes_on_has_the_same_bits(self):
        data = self.data(8, [1, 5])
        plan, _ = self.compile(MLP, SPEC % (1, 64))
        self.train(plan, data, 8, "--checkpoint", self.dir / "whole")
        self.train(plan, data, 4, "--checkpoint", self.dir / "parts")
        self.train(plan, data, 8, "--checkpoint", self.dir / "parts", "--resume")
        self.assertEqual(newest_checkpoint(self.dir / "whole").read_bytes(), newest_checkpoint(self.dir / "parts").read_bytes())

    def test_the_c_api_says_what_was_skipped(self):
        plan, _ = self.compile(MLP, SPEC % (1, 64))
        session = Session(plan)
        self.addCleanup(session.close)
        self.data(2, [1])
        seen = [session.step(self.x[i], self.y[i]) for i in (0, 1, 0)]
        self.assertEqual([(one.skipped, one.loss_scale) for one in seen], [(False, 64), (True, 64), (False, 32)])

    def test_the_floor_is_an_error_that_names_tensor_and_operation(self):
        for accumulate, lost in [(1, [1, 2]), (3, [3, 7])]:
            with self.subTest(accumulate):
                plan, _ = self.compile(MLP, SPEC % (accumulate, 2))
                _, errors = self.train(plan, self.data(12, lost), 4, code=5)
                self.assertIn("update 3: the gradient of 'b1' is not finite at the least loss scale, 1", errors)
                self.assertRegex(errors, r"it began in '[^']*loss' \(.*\): \d+ of \d+ values of '.*' are not finite")

    def test_ranks_name_tensor_and_operation_too(self):
        # Of the second and third update rank 1's, then rank 0's micro-batch.
        for accumulate, lost in [(1, [3, 4]), (2, [7, 8])]:
            with self.subTest(accumulate):
                plan, _ = self.compile(MLP, SPEC % (accumulate, 2) + "parallel: {data: 2}\n", f"ranks{accumulate}")
                _, errors = self.train(plan, self.data(16, lost), 4, "--comm", "local", code=5)
                self.assertIn("update 3: the gradient of 'b1' is not finite at the least loss scale, 1", errors)
                self.assertRegex(errors, r"it began in '[^']*loss' \(.*\): \d+ of \d+ values of '.*' are not finite")


if __name__ == "__main__":
    unittest.main()
