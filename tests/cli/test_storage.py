"""Parameters and saved values in formats of fewer bits, from the spec to checkpoints and exports."""
import shutil
import unittest

import numpy as np

from harness import ROOT, SluiceTest, metadata_of, newest_checkpoint, read_checkpoint, read_safetensors

DECODER = ROOT / "tests" / "models" / "small-decoder.onnx"
SPEC = """loss: {kind: cross_entropy, logits: logits, labels: labels}
optimizer: {kind: adamw, lr: 0.01}
"""
FORMATS = ["fp16", "e4m3_128x128", "nvfp4"]  # without a scale, with one per block, with two; all are resumed in CodedProductsTest


class Storage(SluiceTest):
    def setUp(self):
        super().setUp()
        generator = np.random.default_rng(3)
        tokens = self.npy("tokens", generator.integers(0, 33, (64, 16)))
        labels = self.npy("labels", generator.integers(0, 33, (64, 16)))
        self.data = ["--no-shuffle", "--data", f"tokens=npy:{tokens}", "--data", f"labels=npy:{labels}"]

    def plan(self, name, rules="", *options, code=0):
        rules = f"precision: {{rules: [{rules}]}}\n" if rules else ""
        return self.compile(DECODER, SPEC + rules, name, *options, code=code)

    def train(self, plan, folder, steps, *more):
        out, shown = self.run_sluice("train", plan, *self.data, "--steps", steps, "--losses", "--checkpoint", self.dir / folder, *more)
        return out["losses"], shown, read_safetensors(newest_checkpoint(self.dir / folder))

    def same(self, left, right):
        self.assertEqual(sorted(left), sorted(right))
        for name in left:
            np.testing.assert_array_equal(left[name], right[name], err_msg=name)

    def test_a_run_resumes_bit_for_bit_in_every_format(self):
        wide, _ = self.plan("wide")
        expected, _, _ = self.train(wide, "wide", 4)
        for form in FORMATS:
            with self.subTest(form):
                plan, _ = self.plan(form, f"{{match: '*', storage: {form}}}")
                losses, _, whole = self.train(plan, f"{form}-whole", 4)
                self.train(plan, f"{form}-parts", 2)
                _, _, parts = self.train(plan, f"{form}-parts", 4, "--resume")
                self.same(whole, parts)
                self.assertLess(abs(losses[-1] - expected[-1]), 0.5)
                self.assertNotEqual(losses, expected)

    def test_checkpoints_have_values_that_other_plans_read(self):
        wide, _ = self.plan("wide")
        for form, master in (("nvfp4", "none"), ("e4m3", "fp32")):
            with self.subTest(form):
                plan, _ = self.plan(form, f"{{match: '*', storage: {form}, master: {master}}}")
                _, _, state = self.train(plan, form, 2)
                weights = {n: a for n, a in state.items() if n.startswith("param/")}
                self.assertEqual({a.dtype for a in weights.values()}, {np.dtype(np.float32)})
                self.assertFalse([n for n in state if n.startswith("master/")])
                metadata = metadata_of(newest_checkpoint(self.dir / form))
                self.assertIn(form, {v for k, v in metadata.items() if k.startswith("format/")})
                # There and back: the wide plan has the values, and the codes are theirs again.
                _, shown, moved = self.train(wide, form, 2, "--resume")
                self.assertIn(f"stored as {form}", shown)
                self.same({n: moved[n] for n in weights}, weights)
                _, _, back = self.train(plan, form, 2, "--resume")
                for name, values in weights.items():
                    error = np.abs(back[name] - values).max() / np.abs(values).max()
                    self.assertLessEqual(error, 0 if master == "fp32" else 1e-6, name)

    def test_values_of_another_plan_are_rounded_within_the_stated_error(self):
        wide, _ = self.plan("wide")
        _, _, exact = self.train(wide, "wide", 2)
        for form, bound in {"mxfp8": 2**-4}.items():
            with self.subTest(form):
                plan, _ = self.plan(form, f"{{match: '*', storage: {form}}}")
                shutil.copytree(self.dir / "wide", self.dir / form)
                _, shown, rounded = self.train(plan, form, 2, "--resume")
                self.assertIn("values were rounded", shown)
                for name, values in exact.items():
                    if name.startswith("param/"):
                        self.assertLessEqual(np.abs(rounded[name] - values).max(), bound * np.abs(values).max(), name)

    def test_state_shrinks_and_explain_says_to_what(self):
        wide, report = self.plan("wide")
        stored, smaller = self.plan("mxfp4", "{match: '*', storage: mxfp4, moments: int8}")
        self.assertLess(smaller["memory"]["state_bytes"] if "memory" in smaller else smaller["state_bytes"],
                        0.6 * (report["memory"]["state_bytes"] if "memory" in report else report["state_bytes"]))
        _, shown = self.run_sluice("explain", stored, "--precision")
        rows, _ = self.run_sluice("explain", stored, "--precision")
        text = str(rows)
        self.assertIn("stored as mxfp4 in", text)
        self.assertIn("updates round stochastically: the rule '*'", text)

    def test_export_gives_the_values(self):
        plan, _ = self.plan("mxfp8", "{match: '*', storage: mxfp8}")
        _, _, state = self.train(plan, "run", 2)
        self.run_sluice("export", plan, "--checkpoint", self.dir / "run", "-o", self.dir / "out.safetensors")
        exported = read_safetensors(self.dir / "out.safetensors")
        self.same({f"param/{n}": a for n, a in exported.items()}, {n: a for n, a in state.items() if n.startswith("param/")})

    def test_parts_of_the_notes_become_rules(self):
        spec = SPEC + "optim: {precision_policy: {h: [fp8, fp16]}}\n"
        _, errors = self.compile(DECODER, spec, "notes", code=1)
        self.assertIn("no parameter has 'h' as an element of its name", errors)

    def test_ranks_have_the_bits_of_one(self):
        rules = "{match: '*', storage: mxfp8}, {match: '*', saved: e4m3_1x128}"
        ranks, _ = self.plan("ranks", rules, "--ranks", 2)
        one, _ = self.plan("one", rules, "--set", "accumulate={count: 2, as_ranks: 2}")
        expected, _, state = self.train(one, "one", 2)
        losses, _, shared = self.train(ranks, "ranks", 2, "--comm", "local")
        self.assertEqual(losses, expected)
        self.same(shared, state)

    def test_moments_of_codes_are_a_probe(self):
        """Also of 4 bits, which have half as many bytes as values."""
        plan, _ = self.plan("four", "{match: '*', storage: mxfp4}")
        _, _, state = self.train(plan, "run", 2)
        report, _ = self.run_sluice("probe", plan, "--kind", "moments", "--checkpoint", self.dir / "run", "-o", self.dir / "p.safetensors")
        ratios = [p["importance"]["mean"] / state[f"opt/{p['name']}/v"].mean() for p in report["parameters"] if p["importance"]["mean"]]
        self.assertGreater(len(ratios), 5)
        np.testing.assert_allclose(ratios, ratios[0], rtol=1e-3)

    def test_ranks_share_delayed_scales(self):
        """Each rank's histories hold the largest of all, also where one has no samples."""
        rules = "{match: '*', saved: e4m3, scaling: delayed}, {match: 'head*', storage: e4m3, scaling: delayed}"
        ranks, _ = self.plan("ranks", rules, "--ranks", 2)
        one, _ = self.plan("one", rules, "--set", "accumulate={count: 2, as_ranks: 2}")
        expected, _, state = self.train(one, "one", 3)
        losses, _, shared = self.train(ranks, "ranks", 3, "--comm", "local")
        self.assertEqual(losses, expected)
        self.same(shared, state)
        histories = [array for name, array in state.items() if name.startswith("scale/saved/") and name.endswith("/history")]
        self.assertTrue(histories)
        for history in histories:
            self.assertGreater(history[:3].min(), 0)

    def test_moments_resume_move_and_are_explained(self):
        wide, _ = self.plan("wide")
        expected, _, _ = self.train(wide, "wide", 4)
        for form in ("fp16", "mxfp8", "nvfp4"):
            with self.subTest(form):
                plan, _ = self.plan(form, "", "--set", f"precision.optimizer_state={form}")
                losses, _, whole = self.train(plan, f"{form}-whole", 4)
                self.train(plan, f"{form}-parts", 2)
                for copy in ("wide", "copy"):
                    shutil.copytree(self.dir / f"{form}-parts", self.dir / f"{form}-{copy}")
                _, _, parts = self.train(plan, f"{form}-parts", 4, "--resume")
                self.same(whole, parts)
                self.assertNotEqual(losses, expected)
                self.assertLess(abs(losses[-1] - expected[-1]), 0.1)
                # Another plan computes the same update from the values.
                _, shown, moved = self.train(wide, f"{form}-wide", 3, "--resume")
                self.assertIn("moments stored as", shown)
                _, _, third = self.train(plan, f"{form}-copy", 3, "--resume")
                self.same({n: a for n, a in third.items() if n.startswith("param/")}, {n: a for n, a in moved.items() if n.startswith("param/")})
                rows, _ = self.run_sluice("explain", plan, "--precision")
                self.assertIn("fp16, f32" if form == "fp16" else form, {row["moments"] for row in rows["parameters"]})
                coded = [k.removeprefix("format/") for k in metadata_of(newest_checkpoint(self.dir / f"{form}-whole")) if k.startswith("format/opt/")]
                self.assertEqual(bool(coded), form != "fp16")
                for name in coded:
                    if name.endswith("/v"):
                        self.assertGreater(whole[name].min(), 0, name)

    def test_ranks_keep_coded_moments_whole(self):
        form = "precision.optimizer_state=mxfp8"
        ranks, report = self.plan("ranks", "", "--ranks", 2, "--set", form, "--set", "parallel.zero=1")
        one, _ = self.plan("one", "", "--set", form, "--set", "accumulate={count: 2, as_ranks: 2}")
        expected, _, state = self.train(one, "one", 2)
        losses, _, _ = self.train(ranks, "ranks", 2, "--comm", "local")
        self.assertEqual(losses, expected)
        self.same(read_checkpoint(newest_checkpoint(self.dir / "ranks")), state)
        self.assertIn("the stored format of its moments is that of the whole", str(self.run_sluice("explain", ranks)[0]))

    def test_what_is_wrong_is_named(self):
        cases = {
            "{match: '*', storage: int3}": "'precision.rules[].storage' is 'int3', expected one of fp32, bf16, fp16, e4m3",
            "{match: '*', moments: int4}": "'precision.rules[].moments' is 'int4', expected int8, fp8 (e4m3 with its range expanded) or one of fp32",
            "{match: '*', storage: mxfp8_e5m2}": "mxfp8 is e4m3 in both directions",
            "{match: '*', storage: mxfp8, scaling: delayed}": "which is for formats with one scale per tensor, e4m3 and e5m2",
            "{match: '*', storage: mxfp8, keep: fp32}": "has both 'keep' and 'storage'",
            "{match: '*', master: fp32}": "'precision.rules[].master' has no effect without 'storage'",
            "{match: 'nothing', storage: mxfp8}": "'nothing' matches no parameter of the model",
            "{match: 'nothing', saved: mxfp8}": "reads no value of a node that 'nothing' matches",
            "{match: '*', keep: fp32}": "has no effect under compute fp32",
            "{storage: mxfp8}": "expected one of them: a glob, or an element of names",
        }
        for rule, expected in cases.items():
            with self.subTest(rule):
                plan, errors = self.plan("wrong", rule, code=1)
                self.assertIn(expected, errors)
                self.assertFalse(plan.exists())


if __name__ == "__main__":
    unittest.main()
