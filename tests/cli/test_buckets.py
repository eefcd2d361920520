"""Several shapes in one plan: each bucket is the plan of its shape, on one state and one arena."""
import re
import unittest

import numpy as np

from capi import Session
from harness import ROOT, SluiceTest, newest_checkpoint, read_safetensors

MODEL = ROOT / "tests" / "models" / "bucket-decoder.onnx"
VOCAB, BATCH = 17, 4
SPEC = """
seed: 3
threads: 2
loss: {kind: cross_entropy, logits: logits}
optimizer: {kind: adamw, lr: 1.0e-2}
"""


def spec(shapes, more=""):
    return f"shapes: {shapes}\n{SPEC}{more}"


BOTH = "[{batch: 4, T: 64}, {batch: 4, T: 128}]"


def tokens(samples, length, seed):
    return np.random.default_rng(seed).integers(0, VOCAB, (samples, length + 1))


class Buckets(SluiceTest):
    def data(self, samples, length, seed=1, name="d"):
        text = tokens(samples, length, seed)
        x = self.npy(f"{name}{length}x", text[:, :-1])
        y = self.npy(f"{name}{length}y", text[:, 1:])
        return ["--data", f"tokens=npy:{x}", "--data", f"labels=npy:{y}"]

    def train(self, plan, folder, data, steps, *more):
        report, _ = self.run_sluice("train", plan, *data, "--steps", steps, "--losses", "--checkpoint",
                                    self.dir / folder, *more)
        return report["losses"], read_safetensors(newest_checkpoint(self.dir / folder))

    def assert_same_state(self, a, b):
        self.assertEqual(a.keys(), b.keys())
        for name in a:
            self.assertEqual(a[name].tobytes(), b[name].tobytes(), name)

    def test_arena_is_the_state_and_the_largest_step(self):
        _, both = self.compile(MODEL, spec(BOTH), "both")
        singles = [self.compile(MODEL, spec(f"{{batch: 4, T: {t}}}"), f"t{t}")[1] for t in (64, 128)]
        self.assertEqual([b["name"] for b in both["buckets"]], ["T=64", "T=128"])
        self.assertEqual([b["step_bytes"] for b in both["buckets"]], [s["step_bytes"] for s in singles])
        self.assertEqual(both["step_bytes"], max(s["step_bytes"] for s in singles))
        # The state of the larger, and the smaller one's tables beside it.
        self.assertGreaterEqual(both["state_bytes"], max(s["state_bytes"] for s in singles))
        self.assertLess(both["state_bytes"], sum(s["state_bytes"] for s in singles))
        self.assertLess(both["kernels"], sum(s["kernels"] for s in singles))
        self.assertEqual(both["arena_bytes"], both["state_bytes"] + both["step_bytes"])

    def test_a_step_in_a_bucket_is_the_step_of_its_own_plan(self):
        both, _ = self.compile(MODEL, spec(BOTH), "both")
        for length in (64, 128):
            single, _ = self.compile(MODEL, spec(f"{{batch: 4, T: {length}}}"), f"t{length}")
            data = self.data(10, length)
            ours = self.train(both, f"both-{length}", data, 4, "--measure")
            theirs = self.train(single, f"single-{length}", data, 4)
            self.assertEqual(ours[0], theirs[0])
            self.assert_same_state(ours[1], theirs[1])

    def test_training_on_both_resumes_bit_for_bit(self):
        plan, _ = self.compile(MODEL, spec(BOTH, "accumulate: 2\n"), "both")
        data = self.data(10, 64) + self.data(7, 128)
        losses, state = self.train(plan, "whole", data, 8)
        first, _ = self.train(plan, "parts", data, 3)
        rest, resumed = self.train(plan, "parts", data, 8, "--resume")
        self.assertEqual(losses, first + rest)
        self.assert_same_state(state, resumed)

    def test_samples_between_two_shapes_are_filled_up_without_counting(self):
        both, _ = self.compile(MODEL, spec(BOTH, "pad: {tokens: 0}\n"), "both")
        exact, _ = self.compile(MODEL, spec("{batch: 4, T: 100}"), "exact")
        data = self.data(6, 100)
        padded, _ = self.run_sluice("eval", both, *data)
        expected, _ = self.run_sluice("eval", exact, *data)
        self.assertAlmostEqual(padded["loss"], expected["loss"], places=5)
        self.assertEqual(padded["accuracy"], expected["accuracy"])

    def test_infer_gives_a_row_for_each_sample(self):
        plan, _ = self.compile(MODEL, spec(BOTH), "both")
        x = tokens(BATCH, 64, 5)[:, :-1]
        whole = self.infer(plan, x)
        self.assertEqual(whole["logits"].shape, (BATCH, 64, VOCAB))
        self.assertEqual(whole["flat"].shape, (BATCH * 64, VOCAB))
        for count in range(1, BATCH):
            part = self.infer(plan, x[:count])
            self.assertEqual(part["logits"].tobytes(), whole["logits"][:count].tobytes())
            self.assertEqual(part["flat"].tobytes(), whole["flat"][: count * 64].tobytes())
        many = self.infer(plan, np.concatenate([x, x[:3]]))
        self.assertEqual(many["flat"].tobytes(), whole["flat"].tobytes() + whole["flat"][: 3 * 64].tobytes())

    def infer(self, plan, x):
        report, _ = self.run_sluice("infer", plan, "--data", f"tokens=npy:{self.npy('x', x)}", "-o", self.dir / "y.npy")
        return {output["name"]: np.load(output["path"]) for output in report["outputs"]}

    def test_infer_crops_what_samples_were_filled_up_with(self):
        plan, _ = self.compile(MODEL, spec(BOTH, "pad: {tokens: 0}\n"), "both")
        exact, _ = self.compile(MODEL, spec("{batch: 4, T: 100}"), "exact")
        x = tokens(6, 100, 5)[:, :-1]
        ours, theirs = self.infer(plan, x), self.infer(exact, x)
        for name in ("logits", "flat"):
            self.assertEqual(ours[name].shape, theirs[name].shape)
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5, atol=1e-6)
        session = Session(plan)
        self.addCleanup(session.close)
        session.infer(x[:3])
        self.assertEqual(session.output("logits").tobytes(), ours["logits"][:3].tobytes())
        self.assertEqual(session.output("flat").shape, (300, VOCAB))

    def ragged(self, samples, seed=2):
        """Texts of 9 to 128 tokens, end to end with their lengths."""
        lengths = np.random.default_rng(seed).integers(9, 129, samples)
        texts = [tokens(1, length, seed + i)[0] for i, length in enumerate(lengths)]
        paths = [self.npy("lengths", lengths), self.npy("rx", np.concatenate([t[:-1] for t in texts])),
                 self.npy("ry", np.concatenate([t[1:] for t in texts]))]
        data = [text for name, path in zip(("tokens", "labels"), paths[1:])
                for text in ("--data", f"{name}=npy:{path},lengths={paths[0]}")]
        return data, texts

    def test_samples_of_several_lengths_go_to_their_buckets(self):
        plan, _ = self.compile(MODEL, spec(BOTH, "pad: {tokens: 0}\n"), "both")
        data, texts = self.ragged(11)
        whole, _ = self.run_sluice("eval", plan, *data)
        labels = sum(len(text) - 1 for text in texts)
        single, total = self.compile(MODEL, spec("{batch: 4, T: 128}", "pad: {tokens: 0}\n"), "long")[0], 0.0
        for text in texts:
            part, _ = self.run_sluice("eval", single, "--data", f"tokens=npy:{self.npy('a', text[None, :-1])}", "--data",
                                      f"labels=npy:{self.npy('b', text[None, 1:])}")
            total += part["loss"] * (len(text) - 1)
        self.assertAlmostEqual(whole["loss"], total / labels, places=5)
        # The order of the file, each sample as long as it is.
        report, errors = self.run_sluice("infer", plan, *data[:2], "-o", self.dir / "y.npy")
        self.assertIn("samples go to the shapes 'T=64'", errors)
        outputs = {output["name"]: output for output in report["outputs"]}
        flat = np.load(outputs["flat"]["path"])
        self.assertEqual(flat.shape, (labels, VOCAB))
        shapes = np.load(outputs["logits"]["shapes"])
        self.assertEqual(shapes.tolist(), [[1, len(text) - 1, VOCAB] for text in texts])
        logits, begin = np.load(outputs["logits"]["path"]), 0
        for row, text in zip(logits, texts):
            end = begin + len(text) - 1
            self.assertEqual(row[: end - begin].tobytes(), flat[begin:end].tobytes())
            self.assertFalse(row[end - begin :].any())
            begin = end
        alone = self.infer(single, texts[3][None, :-1])["logits"]
        np.testing.assert_allclose(logits[3, : alone.shape[1]], alone[0], rtol=1e-5, atol=1e-6)

    def test_training_by_length_resumes_bit_for_bit(self):
        plan, _ = self.compile(MODEL, spec(BOTH, "pad: {tokens: 0}\naccumulate: 2\n"), "both")
        data, texts = self.ragged(13)
        losses, state = self.train(plan, "whole", data, 9)
        first, _ = self.train(plan, "parts", data, 4)
        rest, resumed = self.train(plan, "parts", data, 9, "--resume", "--threads", 1)
        self.assertEqual(losses, first + rest)
        self.assert_same_state(state, resumed)
        _, errors = self.run_sluice("train", self.compile(MODEL, spec("[{batch: 4, T: 16}, {batch: 4, T: 32}]",
                                                                      "pad: {tokens: 0}\n"), "short")[0], *data,
                                    "--steps", 1, code=1)
        longer = next(i for i, text in enumerate(texts) if len(text) - 1 > 32)
        self.assertIn(f"sample {longer} of '", errors)
        self.assertIn("goes into none of the plan's shapes: 'T=16'", errors)

    def test_evaluation_chooses_buckets_too(self):
        plan, _ = self.compile(MODEL, spec(BOTH, "pad: {tokens: 0}\n"), "both")
        data, evaluated = self.data(8, 64), [text.replace("--data", "--eval-data") for text in self.data(5, 50, 7, "e")]
        arguments = ["train", plan, *data, "--steps", 2, *evaluated]
        small, _ = self.run_sluice(*arguments)
        large, _ = self.run_sluice(*arguments, "--eval-bucket", "T=128")
        self.assertAlmostEqual(small["eval"]["loss"], large["eval"]["loss"], places=5)
        _, errors = self.run_sluice(*arguments, "--eval-bucket", "T=32", code=2)
        self.assertIn("the plan has 'T=64'", errors)
        _, errors = self.run_sluice("train", plan, *data, "--steps", 2, "--eval-bucket", "T=64", code=2)
        self.assertIn("--eval-bucket needs --eval-data", errors)

    def test_samples_that_meet_in_an_output_are_not_filled_up(self):
        model = ROOT / "tests" / "models" / "zoo" / "clip.onnx"
        plan, report = self.compile(model, "loss: {kind: sum}\nentries: [infer]\n", "clip")
        self.assertTrue(any("samples meet in the output 'output'" in note for note in report["notes"]))
        random = np.random.default_rng(0)
        images, texts = random.random((5, 3, 12, 12), np.float32), random.integers(0, 10, (5, 8))

        def infer(count, code):
            return self.run_sluice("infer", plan, "--data", f"images=npy:{self.npy('i', images[:count])}", "--data",
                                   f"texts=npy:{self.npy('t', texts[:count])}", "-o", self.dir / "y.npy", code=code)

        infer(5, 0)
        self.assertIn("padding would be seen in the output 'output'", infer(3, 2)[1])

    def test_one_bucket_writes_the_same_plan(self):
        listed, report = self.compile(MODEL, spec("[{batch: 4, T: 64}]"), "model")
        before = listed.read_bytes()
        plain, _ = self.compile(MODEL, spec("[{batch: 4, T: 64}]"), "model")
        self.assertEqual(before, plain.read_bytes())
        self.assertEqual([b["name"] for b in report["buckets"]], ["plan"])

    def test_two_compilations_write_the_same_bytes(self):
        first = self.compile(MODEL, spec(BOTH), "both")[0].read_bytes()
        second = self.compile(MODEL, spec(BOTH), "both")[0].read_bytes()
        self.assertEqual(first, second)

    def test_a_budget_holds_for_the_largest(self):
        _, free = self.compile(MODEL, spec(BOTH), "free")
        budget = free["arena_bytes"] - 20000
        plan, tight = self.compile(MODEL, spec(BOTH, f"memory: {{budget: {budget}}}\n"), "tight")
        self.assertLessEqual(tight["arena_bytes"], budget)
        data = self.data(8, 64) + self.data(8, 128)
        loose, _ = self.compile(MODEL, spec(BOTH), "loose")
        ours, theirs = self.train(plan, "a", data, 4), self.train(loose, "b", data, 4)
        self.assertEqual(ours[0], theirs[0])
        self.assert_same_state(ours[1], theirs[1])

    def test_offload_puts_the_state_of_all_at_one_place(self):
        free, _ = self.compile(MODEL, spec(BOTH), "free")
        moving = spec(BOTH, "memory: {offload: auto}\n")
        errors = self.compile(MODEL, moving, "refused", "--memory", 1, code=3)[1]
        self.assertIn("with the shapes 'T=128'", errors)
        least = int(re.search(r"smallest that can be met is (\d+) bytes", errors)[1])
        plan, report = self.compile(MODEL, moving, "least", "--memory", least)
        self.assertGreater(report["host_state_bytes"], 0)
        self.assertTrue(all(variant["arena_bytes"] <= least for variant in report["variants"]))
        data = self.data(4, 64) + self.data(4, 128)
        ours, theirs = self.train(plan, "a", data, 3), self.train(free, "b", data, 3)
        self.assertEqual(ours[0], theirs[0])
        self.assert_same_state(ours[1], theirs[1])

    def test_errors_name_the_shapes(self):
        plan, _ = self.compile(MODEL, spec(BOTH), "both")
        _, errors = self.run_sluice("eval", plan, *self.data(4, 100), code=1)
        for part in ("goes into none of the plan's shapes", "'T=64'", "'T=128'", "found [100]"):
            self.assertIn(part, errors)
        _, errors = self.run_sluice("eval", plan, *self.data(4, 64), "--bucket", "T=32", code=2)
        self.assertIn("--bucket 'T=32': the plan has 'T=64' (tokens [4, 64]", errors)
        data = self.data(4, 64)[:2] + self.data(4, 128)[:2]
        _, errors = self.run_sluice("infer", plan, *data, "-o", self.dir / "y.npy", code=2)
        self.assertIn("infer takes one set of data", errors)
        _, errors = self.compile(MODEL, spec(BOTH, "pad: {token: 0}\n"), "bad", code=1)
        self.assertIn("'pad' names 'token', expected an input: 'labels', 'tokens'", errors)
        _, errors = self.compile(MODEL, spec("[{tokens: [4, 64]}, {tokens: [4, 64, 2]}]"), "bad", code=1)
        self.assertIn("with the shapes 'tokens=4x64x2'", errors)

    def test_a_parameter_that_depends_on_the_shapes_is_named(self):
        _, errors = self.compile(ROOT / "tests" / "models" / "bucket-branches.onnx", spec(BOTH), "bad", code=1)
        self.assertIn("parameter 'long' depends on the shapes: it is there only with 'T=128'", errors)

    def test_check_show_and_explain_know_the_buckets(self):
        plan, _ = self.compile(MODEL, spec(BOTH), "both")
        check, _ = self.run_sluice("check", plan)
        self.assertEqual([b["name"] for b in check["buckets"]], ["T=64", "T=128"])
        self.assertEqual(check["step_bytes"], max(b["step_bytes"] for b in check["buckets"]))
        pictures = []
        for name in ("T=64", "T=128"):
            picture = self.dir / f"{name}.svg"
            self.run_sluice("show", plan, "--bucket", name, "--memory", picture)
            pictures.append(picture.read_text())
        self.assertNotEqual(*pictures)
        stories = [self.run_sluice("explain", plan, "logits", "--bucket", f"T={t}")[0]["decisions"] for t in (64, 128)]
        self.assertNotEqual(*stories)
        whole, _ = self.run_sluice("explain", plan)
        notes = " ".join(d["why"] for d in whole["decisions"])
        self.assertIn("[T=64] ", notes)
        self.assertIn("[T=128] ", notes)
        _, errors = self.run_sluice("show", plan, "--bucket", "T=9", "--memory", self.dir / "x.svg", code=2)
        self.assertIn("there are 'T=64', 'T=128'", errors)


if __name__ == "__main__":
    unittest.main()
