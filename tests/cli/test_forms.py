"""Checkpoints between plans that store parameters and moments differently, the exact f32 on export, and parameters by the C API."""
import unittest

import numpy as np

from capi import Session
from harness import ROOT, SluiceTest, newest_checkpoint, read_safetensors

MLP = ROOT / "tests" / "models" / "mlp.onnx"  # 6 inputs, 4 outputs, batches of 32
DECODER = ROOT / "tests" / "models" / "small-decoder.onnx"
SPEC = """loss: {kind: mse, logits: logits, labels: labels}
optimizer: {kind: adamw, lr: 0.01}
"""
EXACT = ["fp32", "split", "fp32 master"]


def bits(array):
    return np.ascontiguousarray(array, np.float32).view(np.uint32)


def exact(state):
    """The f32 of every parameter of a checkpoint, by the definition of its form; bf16 comes as the f32 with the same value."""
    values = {}
    for name, stored in state.items():
        if not name.startswith("param/"):
            continue
        bare = name.removeprefix("param/")
        low = state.get(f"master/{bare}/low")
        if low is not None:
            stored = (bits(stored) + low.astype(np.int32).view(np.uint32)).view(np.float32)
        values[bare] = state.get(f"master/{bare}", stored)
    return values


class Forms(SluiceTest):
    def setUp(self):
        super().setUp()
        generator = np.random.default_rng(3)
        x = self.npy("x", generator.normal(size=(128, 6)).astype(np.float32))
        y = self.npy("y", generator.normal(size=(128, 4)).astype(np.float32))
        self.data = ["--no-shuffle", "--data", f"x=npy:{x}", "--data", f"labels=npy:{y}"]

    def plan(self, form):
        """`fp32`, or bf16 with that master."""
        options = [] if form == "fp32" else ["precision.compute=amp_bf16", f"precision.master={form.split()[0]}"]
        options = [word for option in options for word in ("--set", option)]
        return self.compile(MLP, SPEC, form.replace(" ", "-"), *options)[0]

    def train(self, plan, folder, steps, *more):
        out, shown = self.run_sluice("train", plan, *self.data, "--steps", steps, "--losses", "--checkpoint", self.dir / folder, *more)
        return out["losses"], shown, read_safetensors(newest_checkpoint(self.dir / folder))

    def through(self, plan, source, target):
        """The checkpoint of `source` loaded into the plan, saved again."""
        session = Session(plan)
        session.load(self.dir / source)
        session.save(self.dir / target)
        session.close()
        return read_safetensors(newest_checkpoint(self.dir / target))

    def same(self, left, right):
        self.assertEqual(sorted(left), sorted(right))
        for name in left:
            np.testing.assert_array_equal(bits(left[name]) if left[name].dtype == np.float32 else left[name],
                                          bits(right[name]) if right[name].dtype == np.float32 else right[name], err_msg=name)

    def test_forms_that_are_exact_keep_every_bit_there_and_back(self):
        plans = {form: self.plan(form) for form in EXACT}
        _, _, split = self.train(plans["split"], "split", 3)
        self.assertEqual({name for name in split if name.startswith("master/")}, {"master/w1/low", "master/w2/low"})
        self.assertTrue(split["master/w1/low"].any())
        wide = self.through(plans["fp32"], "split", "wide")
        self.same(exact(wide), exact(split))
        self.same({n: a for n, a in wide.items() if n.startswith(("opt/", "step"))},
                  {n: a for n, a in split.items() if n.startswith(("opt/", "step"))})
        self.assertEqual(sorted(exact(wide)), sorted(n.removeprefix("param/") for n in wide if n.startswith("param/")))
        self.same(self.through(plans["split"], "wide", "back"), split)
        masters = self.through(plans["fp32 master"], "wide", "masters")
        self.same(exact(masters), exact(split))
        self.same(self.through(plans["split"], "masters", "again"), split)

    def test_a_run_goes_on_as_if_it_had_always_had_the_form(self):
        split, wide = self.plan("split"), self.plan("fp32")
        _, _, whole = self.train(split, "whole", 6)
        self.train(split, "parts", 3)
        self.through(wide, "parts", "wide")
        self.through(split, "wide", "parts-back")
        _, _, parts = self.train(split, "parts-back", 6, "--resume")
        self.same(parts, whole)

    def test_without_a_master_the_f32_is_rounded_and_the_output_says_so(self):
        split, alone, wide = self.plan("split"), self.plan("none"), self.plan("fp32")
        _, _, trained = self.train(split, "split", 3)
        _, shown, rounded = self.train(alone, "split", 3, "--resume")
        self.assertIn("stored as bf16 with a split master became bf16 without a master", shown)
        self.assertIn("values were rounded: 'w1', 'w2'", shown)
        session = Session(alone)
        session.load(self.dir / "split")
        session.save(self.dir / "alone")
        values = exact(trained)
        for name in ("w1", "w2"):
            near = bits(values[name]).astype(np.uint64)
            near = ((near + 0x7FFF + (near >> 16 & 1)) >> 16 << 16).astype(np.uint32)
            np.testing.assert_array_equal(bits(session.read_parameter(name, values[name].shape)), near)
        session.close()
        _, shown, _ = self.train(wide, "alone", 3, "--resume")
        self.assertIn("2 parameters stored as bf16 without a master became f32; the f32 is the rounded value: 'w1', 'w2'", shown)

    def test_export_gives_the_master(self):
        import onnx
        from onnx import numpy_helper

        for form in ("split", "fp32 master", "none"):
            with self.subTest(form):
                plan = self.plan(form)
                run = self.dir / f"run {form}"
                _, _, state = self.train(plan, run.name, 3)
                onnx_file, file = self.dir / f"{form}.onnx", self.dir / f"{form}.out.safetensors"
                out, shown = self.run_sluice("export", plan, "--checkpoint", run, "--model", MLP, "-o", onnx_file)
                expected = ["w1", "w2"] if form == "none" else []
                self.assertEqual(out["without_master"], expected)
                self.assertEqual("without a master, and are written widened" in shown, form == "none")
                self.same({t.name: numpy_helper.to_array(t) for t in onnx.load(onnx_file).graph.initializer}, exact(state))
                out, _ = self.run_sluice("export", plan, "--checkpoint", run, "-o", file)
                self.assertEqual(out["without_master"], expected)
                self.same(read_safetensors(file), exact(state))

    def test_weights_of_another_form(self):
        split, wide = self.plan("split"), self.plan("fp32")
        _, _, state = self.train(split, "split", 3)
        checkpoint = newest_checkpoint(self.dir / "split")
        out, _ = self.run_sluice("eval", wide, *self.data, "--weights", checkpoint)
        by_checkpoint, _ = self.run_sluice("eval", wide, *self.data, "--checkpoint", self.dir / "split")
        self.assertEqual(out["loss"], by_checkpoint["loss"])

    def test_moments_of_fewer_bits(self):
        """A step computes in f32 from what it decodes, so the plan of f32 moments gives the same parameters from the same checkpoint;
        and what it then has, encoded by the runtime, is what the other plan's kernel has encoded."""
        generator = np.random.default_rng(3)
        tokens = self.npy("tokens", generator.integers(0, 33, (16, 16)))
        labels = self.npy("labels", generator.integers(0, 33, (16, 16)))
        self.data = ["--no-shuffle", "--data", f"tokens=npy:{tokens}", "--data", f"labels=npy:{labels}"]
        spec = "loss: {kind: cross_entropy, logits: logits, labels: labels}\noptimizer: {kind: adamw, lr: 0.01}\n"
        wide, _ = self.compile(DECODER, spec, "wide")
        for form in ("int8", "fp8", "bf16"):
            with self.subTest(form):
                narrow, _ = self.compile(DECODER, spec, form, "--set", f"precision.optimizer_state={form}")
                self.train(narrow, form, 2)
                self.through(wide, form, f"{form}-wide")
                _, _, narrow_state = self.train(narrow, form, 3, "--resume")
                _, _, wide_state = self.train(wide, f"{form}-wide", 3, "--resume")
                self.same({n: a for n, a in wide_state.items() if n.startswith("param/")},
                          {n: a for n, a in narrow_state.items() if n.startswith("param/")})
                back = self.through(narrow, f"{form}-wide", f"{form}-back")
                codes = {n: a for n, a in narrow_state.items() if a.dtype == np.int8 or n.endswith(("/scale", "/range"))}
                self.assertEqual(bool(codes), form != "bf16")
                self.same({n: back[n] for n in codes}, codes)

    def test_parameters_by_the_c_api(self):
        session = Session(self.plan("split"))
        shape = (16, 6)
        values = np.random.default_rng(1).normal(size=shape).astype(np.float32)
        session.write_parameter("w1", values)
        np.testing.assert_array_equal(bits(session.read_parameter("w1", shape)), bits(values))
        low = session.read("master/w1/low", shape, np.int16)
        np.testing.assert_array_equal(low.view(np.uint16), bits(values) & 0xFFFF)
        with self.assertRaisesRegex(RuntimeError, "'w1' has 96 values, 3 are given"):
            session.read_parameter("w1", 3)
        session.close()


if __name__ == "__main__":
    unittest.main()
