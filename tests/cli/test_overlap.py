"""Groups that are reduced and updated as soon as their gradients are complete (`update.mode: overlap`): the bits of `sync`."""
import pathlib
import re
import sys
import unittest

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from budgets import BudgetTest  # noqa: E402
from harness import ROOT, newest_checkpoint, read_checkpoint  # noqa: E402

CNN = ROOT / "tests" / "models" / "small-cnn.onnx"
DECODER = ROOT / "tests" / "models" / "small-decoder.onnx"
SPEC = "loss: {kind: cross_entropy, logits: logits, labels: labels}\noptimizer: {kind: adamw, lr: 1.0e-2}\nseed: 3\nthreads: 1\n"
OVERLAP = "update: {grouping: {count: 2}, mode: overlap}\n"


def messages_of(report):
    """Of an update, as compile reports them."""
    note = next(note for note in report["notes"] if note.startswith("comm: "))
    return int(re.search(r"in (\d+) messages", note).group(1))


class Overlap(BudgetTest):
    def state(self, plan, data, *more):
        folder = self.dir / f"run-{plan.stem}"
        out, _ = self.run_sluice("train", plan, *data, "--epochs", 2, "--losses", "--checkpoint", folder, *more)
        return out["losses"], {key: tensor.tobytes() for key, tensor in read_checkpoint(newest_checkpoint(folder)).items()}

    def check(self, model, data, name, spec, *more):
        sync, _ = self.compile(model, SPEC + spec, f"sync-{name}")
        overlap, report = self.compile(model, SPEC + spec + OVERLAP, f"overlap-{name}")
        self.assertEqual(self.state(sync, data, *more), self.state(overlap, data, *more))
        return report

    def test_the_bits_are_those_of_sync(self):
        # 45 samples in batches of 8: the last window of several ranks is short.
        random = np.random.default_rng(5)
        data = self.data(images=random.random((45, 1, 28, 28), np.float32), labels=random.integers(0, 10, 45))
        self.check(CNN, data, "one", "")
        for name, spec in (("two", "parallel: {data: 2}\n"), ("four", "parallel: {data: 4}\n"), ("zero", "parallel: {data: 2, zero: 1}\n"),
                           ("sums", "parallel: {data: 2}\naccumulate: 2\n")):
            report = self.check(CNN, data, name, spec, "--comm", "local")
            self.assertTrue(any("2 groups overlap" in note for note in report["notes"]), report["notes"])

    def test_a_group_is_a_message(self):
        # Beside the count of samples; however small a bucket is allowed to be.
        for ranks, bucket in ((2, "auto"), (4, "1")):
            _, report = self.compile(DECODER, SPEC + OVERLAP + f"parallel: {{data: {ranks}}}\ncomm: {{bucket: {bucket}}}\n", f"group{ranks}")
            self.assertEqual(messages_of(report), 3)
        _, report = self.compile(DECODER, SPEC + "parallel: {data: 4}\ncomm: {bucket: 1}\n", "sync")
        self.assertGreater(messages_of(report), 3)

    def test_under_a_budget(self):
        data = self.tokens()
        free, before = self.compile(DECODER, SPEC + OVERLAP + "parallel: {data: 2}\n", "free")
        tight, after = self.compile(DECODER, SPEC + OVERLAP + "parallel: {data: 2}\nmemory: {budget: %d}\n" % (0.9 * before["arena_bytes"]), "tight")
        self.assertLess(after["arena_bytes"], before["arena_bytes"])
        self.assertEqual(self.state(free, data), self.state(tight, data))

    def test_the_spelling_of_the_notes(self):
        _, report = self.compile(DECODER, SPEC + "optim: {macro_architecture: true, group_size: 3}\n", "notes")
        self.assertTrue(any("groups overlap" in note for note in report["notes"]), report["notes"])

    def test_clashes_name_both_sides(self):
        _, errors = self.compile(CNN, SPEC + OVERLAP + "clip: {kind: global_norm, max: 1}\n", "clip", code=1)
        self.assertIn("'update.mode: overlap' clashes with 'clip: {kind: global_norm}'", errors)
        rules = "update: {grouping: [{name: a, match: '*', mode: overlap}]}\nprecision: {compute: amp_fp16}\n"
        _, errors = self.compile(CNN, SPEC + rules, "scale", code=1)
        self.assertIn("'mode: overlap' of group 'a' in 'update.grouping' clashes with 'precision.loss_scale", errors)


if __name__ == "__main__":
    unittest.main()
