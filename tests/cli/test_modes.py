"""Groups that interleave or are deferred, on the command line: what is refused, what explain says, kill and resume, ranks."""
import unittest

import numpy as np

from harness import ROOT, SluiceTest, newest_checkpoint, read_checkpoint

DECODER = ROOT / "tests" / "models" / "small-decoder.onnx"
CNN = ROOT / "tests" / "models" / "small-cnn.onnx"
SPEC = "loss: {kind: cross_entropy, logits: logits, labels: labels}\nseed: 3\nthreads: 1\n"
INTERLEAVE = "update: {grouping: {count: 3}, mode: {interleave: 3}%s}\n"
DEFER = "update: {grouping: {count: 2}, mode: {defer: 2}, compensation: dc_asgd%s}\n"


class Modes(SluiceTest):
    def data(self):
        tokens = self.npy("t", np.arange(16 * 20, dtype=np.int64).reshape(20, 16) * 7 % 13)
        return ["--data", f"tokens=npy:{tokens}", "--data", f"labels=npy:{tokens}"]

    def state(self, folder):
        return {key: tensor.tobytes() for key, tensor in read_checkpoint(newest_checkpoint(folder)).items()}

    def train(self, plan, folder, steps, *more):
        out, _ = self.run_sluice("train", plan, *self.data(), "--steps", steps, "--losses", "--checkpoint", self.dir / folder, *more)
        return out["losses"], self.state(self.dir / folder)

    def test_what_needs_all_gradients_is_refused_with_both_names(self):
        for update in (INTERLEAVE % "", "update: {mode: {defer: 1}}\n"):
            mode = "interleave" if "interleave" in update else "defer"
            for other in ("clip: {kind: global_norm, max: 1}", "clip: {kind: zclip}", "precision: {compute: amp_fp16}"):
                _, errors = self.compile(DECODER, SPEC + update + other + "\n", "bad", code=1)
                self.assertIn(f"'update.mode: {mode}' clashes with '", errors)
                self.assertIn("it needs the gradients of all groups at once", errors)
            self.compile(DECODER, SPEC + update + "clip: {kind: agc}\n", "agc")

    def test_compensation_that_cannot_be_had_is_refused(self):
        update = "update: {mode: {defer: 2}, compensation: {kind: dc_asgd, versions: reconstructed}}\n"
        _, errors = self.compile(DECODER, SPEC + update + "optimizer: {kind: sgd, momentum: 0.9}\n", "bad", code=1)
        self.assertIn("old weights are reconstructed for 'defer: 1' only", errors)
        _, errors = self.compile(DECODER, SPEC + update, "bad", code=1)
        self.assertIn("reconstructed from the f32 momentum of sgd", errors)
        _, errors = self.compile(DECODER, SPEC + "update: {mode: {defer: 1}, compensation: momentum}\noptimizer: {kind: lion}\n", "bad", code=1)
        self.assertIn("it needs the momentum of sgd, adam or adamw; its optimizer is 'lion'", errors)

    def test_explain_tells_versions_and_compile_what_waits(self):
        plan, report = self.compile(DECODER, SPEC + DEFER % "")
        out, _ = self.run_sluice("explain", plan, "--updates")
        rows = [row for row in out["versions"] if row["group"] == "1"]
        self.assertEqual([row["gradients"] for row in rows], [[], [], [0, 0], [1, 1]])
        self.assertEqual([row["read"] for row in rows], [0, 0, 0, 1])
        notes = "\n".join(report["notes"])
        self.assertIn("safe_lr: lr of deferred groups is 0.3090 of that of the spec", notes)
        self.assertRegex(notes, r"pending: \d+ bytes of gradients that wait and \d+ bytes of old weights")
        plan, report = self.compile(DECODER, SPEC + INTERLEAVE % ", compensation: dc_asgd")
        self.assertIn("compensation is zero there", "\n".join(report["notes"]))
        rows = [row for row in self.run_sluice("explain", plan, "--updates")[0]["versions"] if row["group"] == "1"]
        self.assertEqual([row["gradients"] for row in rows], [[], [0, 1], [], [], [2, 4], []])

    def test_a_resumed_run_has_the_bits_of_one_that_never_stopped(self):
        for name, update in (("interleave", INTERLEAVE % ", flush: []"), ("defer", DEFER % ", flush: []"), ("flushed", DEFER % ", flush: [save]")):
            with self.subTest(name):
                plan, _ = self.compile(DECODER, SPEC + update, name)
                every = ["--checkpoint-every", 3]
                losses, state = self.train(plan, name + "-whole", 9, *every)
                self.assertTrue(np.isfinite(losses).all())
                first, _ = self.train(plan, name + "-parts", 6, *every)
                rest, parts = self.train(plan, name + "-parts", 9, "--resume", *every)
                self.assertEqual(first + rest, losses)
                self.assertEqual(parts, state)

    def test_the_end_applies_what_waits(self):
        plan, _ = self.compile(DECODER, SPEC + DEFER % ", flush: [stop]", "stop")
        keeps, _ = self.compile(DECODER, SPEC + DEFER % ", flush: []", "keeps")
        losses, flushed = self.train(plan, "stop-run", 4)
        self.assertEqual(losses, self.train(keeps, "keeps-run", 4)[0])
        kept = self.state(self.dir / "keeps-run")
        waits = {name for name in kept if name.startswith("pending/")}
        self.assertTrue(any(any(kept[name]) for name in waits))
        self.assertFalse(any(any(flushed[name]) for name in waits))
        self.assertNotEqual(kept["param/" + next(iter(waits)).split("/")[1]], flushed["param/" + next(iter(waits)).split("/")[1]])

    def test_two_ranks_learn_in_every_mode(self):
        for name, update in (("interleave", INTERLEAVE % ""), ("defer", DEFER % "")):
            plan, _ = self.compile(DECODER, SPEC + update + "parallel: {data: 2}\noptimizer: {kind: adamw, lr: 1.0e-2}\n", name)
            out, _ = self.run_sluice("train", plan, *self.data(), "--steps", 20, "--losses", "--comm", "local")
            self.assertLess(np.mean(out["losses"][-3:]), 0.9 * out["losses"][0])

    def test_a_checkpoint_of_other_modes_loads_and_says_what_it_leaves_out(self):
        keeps, _ = self.compile(DECODER, SPEC + "update: {mode: {defer: 1}, flush: []}\n", "keeps")
        sync, _ = self.compile(DECODER, SPEC, "sync")
        self.train(keeps, "run", 3)
        _, errors = self.run_sluice("train", sync, *self.data(), "--steps", 4, "--resume", "--checkpoint", self.dir / "run")
        self.assertIn("has gradients that wait for their update", errors)

    def test_what_waits_is_taken_whole_or_not_at_all(self):
        before, _ = self.compile(DECODER, SPEC + "update: {mode: {defer: 2}, flush: []}\n", "before")
        after, _ = self.compile(DECODER, SPEC + DEFER % ", flush: []", "after")
        weights, _ = self.compile(DECODER, SPEC + "update: {mode: {defer: 1}, flush: []}\n", "weights")
        self.train(before, "run", 3)
        saved = self.state(self.dir / "run")
        for name, plan in (("after", after), ("weights", weights)):
            (self.dir / name).mkdir()
            (self.dir / name / newest_checkpoint(self.dir / "run").name).write_bytes(newest_checkpoint(self.dir / "run").read_bytes())
            _, errors = self.run_sluice("train", plan, *self.data(), "--steps", 4, "--resume", "--checkpoint", self.dir / name)
            self.assertIn("in other modes or groups than the plan's: they are left out", errors)
            # Nothing waited any more: the first step after has nothing to apply.
            state = self.state(self.dir / name)
            for key in saved:
                if key.startswith("param/"):
                    self.assertEqual(state[key], saved[key], key)

    def test_a_checkpoint_of_ranks_keeps_nothing_that_waits(self):
        _, errors = self.compile(DECODER, SPEC + "update: {mode: {defer: 1}, flush: [eval]}\nparallel: {data: 2}\n", "bad", code=1)
        self.assertIn("'update.mode: defer' clashes with 'update.flush': each rank has sums of its own that wait", errors)


if __name__ == "__main__":
    unittest.main()
