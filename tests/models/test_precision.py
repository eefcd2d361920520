"""Mixed precision: against a model of it in NumPy, against f32, and against itself under every other choice."""
import pathlib
import sys
import unittest

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from harness import SluiceTest, newest_checkpoint, pseudo_random, read_safetensors  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ADAMW = "optimizer: {kind: adamw, lr: 1.0e-3, weight_decay: 0.01}\n"
LOSS = "loss: {kind: cross_entropy, logits: logits, labels: labels}\n"
AMP = "precision: {compute: amp_bf16}\n"


def nearest(x):
    """float32 to bf16 and back, ties to even."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)


def half_up(x):
    """The bf16 half of a split weight."""
    return ((np.asarray(x, np.float32).view(np.uint32) + 0x8000) & 0xFFFF0000).view(np.float32)


def joined(state, name):
    """The exact weight of a split or f32 master."""
    if "master/" + name in state:
        return state["master/" + name]
    high = state["param/" + name].view(np.uint32)
    return (high + state[f"master/{name}/low"].astype(np.uint32)).view(np.float32)


def mlp(folder, sizes=(37, 19, 5), batch=33):
    """x -> Gemm, Tanh -> Gemm -> logits, with values of the shared generator."""
    from onnx import TensorProto, helper, numpy_helper

    values = {}
    for i, (rows, columns) in enumerate(zip(sizes, sizes[1:]), 1):
        scale = 2 / np.sqrt(rows)
        values[f"w{i}"] = (pseudo_random(rows * columns + i)[i:] * scale).reshape(rows, columns).astype(np.float32)
        values[f"b{i}"] = pseudo_random(columns + 7 * i)[7 * i:].astype(np.float32) * np.float32(0.1)
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], "first"), helper.make_node("Tanh", ["h"], ["a"], "tanh"),
         helper.make_node("Gemm", ["a", "w2", "b2"], ["logits"], "second")], "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, sizes[0]])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, sizes[2]])],
        [numpy_helper.from_array(v, k) for k, v in values.items()])
    path = folder / "mlp.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
    return path, values


class Precision(SluiceTest):
    def setUp(self):
        super().setUp()
        self.model, self.values = mlp(self.dir)
        self.x = pseudo_random(66 * 37).reshape(66, 37) * np.float32(3)
        self.y = (np.arange(66) * 7 % 5).astype(np.int64)
        self.data = ["--data", f"x=npy:{self.npy('x', self.x)}", "--data", f"labels=npy:{self.npy('y', self.y)}"]

    def train(self, spec, name="m", steps=10, model=None, data=None, options=(), compile_options=()):
        plan, report = self.compile(model or self.model, LOSS + spec, name, *compile_options)
        self.runs = getattr(self, "runs", 0) + 1
        run = self.dir / f"run-{self.runs}"
        out, _ = self.run_sluice("train", plan, *(data or self.data), "--steps", steps, "--no-shuffle", "--losses",
                                 "--checkpoint", run, *options)
        self.assertEqual(out["allocations_in_steps"], 0)
        return out["losses"], read_safetensors(newest_checkpoint(run)), report, plan

    def recorded(self, name, input_name):
        golden = read_safetensors(HERE / f"{name}.safetensors")
        data = ["--data", f"{input_name}=npy:{self.npy('gx', golden['in/' + input_name])}",
                "--data", f"labels=npy:{self.npy('gy', golden['labels'])}"]
        return HERE / f"{name}.onnx", data, golden["losses"]


class Numbers(Precision):
    def reference(self, steps, lr):
        """What the precision page says, in NumPy: SGD on f32 weights."""
        w = {k: v.copy() for k, v in self.values.items()}
        losses = []
        for step in range(steps):
            rows = slice(33 * (step % 2), 33 * (step % 2) + 33)
            x, y = nearest(self.x[rows]), self.y[rows]
            w1, w2 = half_up(w["w1"]), half_up(w["w2"])
            a = nearest(np.tanh(nearest(x @ w1) + w["b1"]))
            logits = (nearest(a @ w2) + w["b2"]).astype(np.float64)
            p = np.exp(logits - logits.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            losses.append(-np.log(p[np.arange(33), y]).mean())
            p[np.arange(33), y] -= 1
            d = nearest(p.astype(np.float32))
            dh = nearest(nearest(d @ w2.T) * (1 - a * a))
            for name, gradient in (("w2", a.T @ d), ("b2", d.sum(0)), ("w1", x.T @ dh), ("b1", dh.sum(0))):
                w[name] -= np.float32(lr) * (gradient / np.float32(33))
        return losses, w

    def test_bf16_computes_what_the_definition_says(self):
        expected, weights = self.reference(10, 0.5)
        losses, state, _, _ = self.train(AMP + "optimizer: {kind: sgd, lr: 0.5}\n")
        np.testing.assert_allclose(losses, expected, rtol=2e-4)
        for name in ("w1", "w2"):
            self.assertLess(np.abs(joined(state, name) - weights[name]).max(), 2e-3)
        # The test sees rounding: in f32 the losses are others.
        single, _, _, _ = self.train("optimizer: {kind: sgd, lr: 0.5}\n", "f32")
        self.assertGreater(np.abs(np.array(single) - expected).max(), 5 * np.abs(np.array(losses) - expected).max())

    def test_recorded_models_stay_near_f32(self):
        for name, input_name in (("small-cnn", "images"), ("small-decoder", "tokens")):
            model, data, golden = self.recorded(name, input_name)
            for mode in ("compute: amp_bf16", "compute: amp_fp16", "compute: amp_bf16, master: fp32",
                         "compute: amp_bf16, master: none", "compute: amp_bf16, optimizer_state: bf16",
                         "compute: amp_bf16, optimizer_state: int8", "optimizer_state: int8", "compute: amp_bf16, optimizer_state: fp8",
                         "optimizer_state: fp8"):
                with self.subTest(model=name, mode=mode):
                    losses, _, _, _ = self.train(f"precision: {{{mode}}}\n" + ADAMW, "amp", model=model, data=data)
                    np.testing.assert_allclose(losses, golden, rtol=3e-2)

    def test_maxima_that_products_read_have_gradients(self):
        """PointNet: a maximum over points goes into a linear layer, whose operand is rounded."""
        golden = read_safetensors(HERE / "zoo/pointnet.safetensors")
        data = ["--data", f"points=npy:{self.npy('points', golden['in/points'])}", "--data", f"labels=npy:{self.npy('y', golden['labels'])}"]
        for mode in ("amp_bf16", "amp_fp16, loss_scale: {kind: static, init: 64}"):
            with self.subTest(mode=mode):
                spec = f"shapes: {{batch: 6}}\nloss: {{kind: nll, logits: output, labels: labels}}\nprecision: {{compute: {mode}}}\n" + ADAMW
                plan, _ = self.compile(HERE / "zoo/pointnet.onnx", spec, "maxima")
                out, _ = self.run_sluice("train", plan, *data, "--steps", 10, "--no-shuffle", "--losses")
                np.testing.assert_allclose(out["losses"], golden["losses"], rtol=2e-2)

    def test_a_split_master_is_an_f32_master(self):
        """1,000 updates: every weight and moment the same, bit for bit."""
        spec = "compute: amp_bf16, master: "
        data = ["--data", f"x=npy:{self.npy('x', self.x)}", "--data", f"labels=npy:{self.npy('y', self.y)}"]
        split, a, _, _ = self.train(f"precision: {{{spec}split}}\n" + ADAMW, "split", 1000, data=data)
        single, b, _, _ = self.train(f"precision: {{{spec}fp32}}\n" + ADAMW, "single", 1000, data=data)
        self.assertEqual(split, single)
        for name in ("w1", "w2"):
            np.testing.assert_array_equal(joined(a, name).view(np.uint32), joined(b, name).view(np.uint32))
            np.testing.assert_array_equal(a["param/" + name], b["param/" + name])
            np.testing.assert_array_equal(half_up(joined(a, name)), a["param/" + name])
            np.testing.assert_array_equal(a[f"opt/{name}/v"], b[f"opt/{name}/v"])
        self.assertEqual(a["master/w1/low"].dtype, np.int16)
        self.assertLess(split[-1], 0.5 * split[0])

    def test_without_a_master_rounding_is_random_and_repeatable(self):
        spec = "precision: {compute: amp_bf16, master: none}\n" + ADAMW
        first, a, report, _ = self.train(spec, "a", 20)
        again, b, _, _ = self.train(spec, "b", 20)
        other, c, _, _ = self.train("seed: 2\n" + spec, "c", 20)
        self.assertEqual(first, again)
        np.testing.assert_array_equal(a["param/w1"], b["param/w1"])
        self.assertTrue(np.any(a["param/w1"] != c["param/w1"]))
        self.assertFalse(any(name.startswith("master/") for name in a))
        self.assertTrue(any("stochastic" in line for line in report["warnings"] + report["notes"]), report["notes"])

    def test_updates_below_bf16s_step_are_not_lost(self):
        """Cases P1 and P2: 100 steps of 1e-3 from 1.0, with a master and on average without."""
        from onnx import TensorProto, helper, numpy_helper

        ones = np.ones((64, 64), np.float32)
        graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["logits"])], "one",
                                  [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])],
                                  [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 64])],
                                  [numpy_helper.from_array(ones, "w")])
        path = self.dir / "one.onnx"
        path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
        # Only decay moves the weights: gradients of zeros are zeros.
        data = ["--data", f"x=npy:{self.npy('zero', np.zeros((1, 64), np.float32))}",
                "--data", f"labels=npy:{self.npy('label', np.zeros(1, np.int64))}"]
        decay = "optimizer: {kind: adamw, lr: 1.0e-3, weight_decay: 1.0}\n"
        _, exact, _, _ = self.train(AMP + decay, "split", 100, model=path, data=data)
        expected = np.float32(1)
        for _ in range(100):
            expected = expected * np.float32(np.float32(1) - np.float32(1e-3) * np.float32(1.0))
        np.testing.assert_array_equal(joined(exact, "w"), np.full_like(ones, expected))
        np.testing.assert_array_equal(exact["param/w"], half_up(joined(exact, "w")))
        _, rounded, _, _ = self.train("precision: {compute: amp_bf16, master: none}\n" + decay, "none", 100, model=path, data=data)
        w = rounded["param/w"]
        self.assertGreater(len(np.unique(w)), 1)
        # A step of bf16 below 1 is 2^-8; each of 100 roundings adds at most a quarter of its square to the variance.
        sigma = np.sqrt(100 / 4) * 2.0**-8 / np.sqrt(w.size)
        self.assertLess(abs(w.mean() - expected), 3 * sigma)


class Choices(Precision):
    """What does not belong to precision changes no bit."""

    def same(self, a, b):
        self.assertEqual(a[0], b[0])
        self.assertEqual(a[1].keys(), b[1].keys())
        for name in a[1]:
            np.testing.assert_array_equal(a[1][name], b[1][name], name)

    def test_threads(self):
        for mode in ("compute: amp_bf16", "compute: amp_fp16", "compute: amp_bf16, master: none, optimizer_state: bf16",
                     "compute: amp_bf16, optimizer_state: int8"):
            with self.subTest(mode=mode):
                spec = f"precision: {{{mode}}}\n" + ADAMW
                self.same(self.train("threads: 1\n" + spec, "one"), self.train("threads: 2\n" + spec, "two"))

    def test_recompute(self):
        """Case R12: what is computed again has the type and bits of the first."""
        model, data, _ = self.recorded("small-decoder", "tokens")
        base = self.train(AMP + ADAMW, "all", model=model, data=data)
        arena = base[2]["arena_bytes"]
        for policy in ("memory: {recompute: sqrt}\n", "memory: {recompute: {every: 1}}\n",
                       f"memory: {{budget: {int(arena * 0.93)}, recompute: auto}}\n"):
            with self.subTest(policy=policy):
                other = self.train(AMP + ADAMW + policy, "less", model=model, data=data)
                self.same(base, other)
                if "budget" in policy:
                    self.assertLess(other[2]["arena_bytes"], arena)

    def test_accumulation_sums_in_f32(self):
        spec = AMP + "optimizer: {kind: sgd, lr: 0.5}\n"
        whole, a, _, _ = self.train(spec + "accumulate: 2\n", "two", 5)
        plan = self.train(spec + "accumulate: 2\n", "again", 5)
        self.same((whole, a), plan)
        self.assertEqual(len(whole), 5)

    def test_memory_shrinks(self):
        model, data, _ = self.recorded("small-decoder", "tokens")
        single = self.train(ADAMW, "f32", 1, model=model, data=data)[2]
        half = self.train(AMP + ADAMW, "bf16", 1, model=model, data=data)[2]
        self.assertLess(half["categories"]["activations"] if "categories" in half else half["step_bytes"],
                        single["categories"]["activations"] if "categories" in single else single["step_bytes"])

    def test_evaluation_computes_as_the_step(self):
        spec = AMP + "optimizer: {kind: sgd, lr: 0.0}\n"
        losses, _, _, plan = self.train(spec, "e", 2)
        out, _ = self.run_sluice("eval", plan, *self.data)
        self.assertAlmostEqual(out["loss"], sum(losses) / 2, places=6)


class Reports(Precision):
    def test_explain(self):
        _, _, _, plan = self.train(AMP + ADAMW, "p", 1)
        out, _ = self.run_sluice("explain", plan, "--precision")
        rows = {row["name"]: row for row in out["parameters"]}
        self.assertEqual(rows["w1"]["stored"], "bf16")
        self.assertEqual(rows["w1"]["master"], "split")
        self.assertEqual(rows["w1"]["bytes"], 37 * 19 * 12)
        self.assertEqual(rows["b1"]["stored"], "f32")
        self.assertIn("products read it", rows["w1"]["why"])
        plan, _ = self.compile(self.model, LOSS + ADAMW, "q")
        out, _ = self.run_sluice("explain", plan, "--precision", "w1")
        self.assertEqual([row["stored"] for row in out["parameters"]], ["f32"])

    def test_check_says_where_products_of_bf16_run(self):
        plan, _ = self.compile(self.model, LOSS + AMP + ADAMW, "p")
        out, _ = self.run_sluice("check", plan)
        flags = pathlib.Path("/proc/cpuinfo").read_text()
        if out["level"] == "amx":
            self.assertIn("amx_bf16", flags)
            self.assertIn("on the matrix unit", out["bf16_products"])
        else:
            self.assertEqual(out["level"] == "avx512-bf16", "avx512_bf16" in flags)
            self.assertIn("for level amx this machine lacks", out["bf16_products"])
            _, errors = self.run_sluice("train", plan, *self.data, "--steps", 1, "--level", "amx", code=4)
            self.assertIn("this processor cannot run amx code: it lacks", errors)
            if "amx_bf16" not in flags:
                self.assertIn("amx-bf16", errors)
        plan, _ = self.compile(self.model, LOSS + ADAMW, "q")
        out, _ = self.run_sluice("check", plan)
        self.assertNotIn("bf16_products", out)
        self.assertNotEqual(out["level"], "amx")

    def test_a_rule_keeps_products_in_f32(self):
        spec = "precision: {compute: amp_bf16, rules: [{match: w2, keep: fp32}]}\n" + ADAMW
        _, state, _, plan = self.train(spec, "r", 1)
        self.assertEqual(state["param/w2"].dtype, np.float32)
        self.assertNotIn("master/w2/low", state)
        self.assertIn("master/w1/low", state)
        out, _ = self.run_sluice("explain", plan, "--precision", "w2")
        self.assertIn("the rule 'w2' keeps it", out["parameters"][0]["why"])

    def test_what_keeps_f32_moments_under_int8(self):
        self.keeps_f32_moments("int8", "i8")

    def test_what_keeps_f32_moments_under_fp8(self):
        self.keeps_f32_moments("fp8", "fp8")

    def keeps_f32_moments(self, form, shown):
        model = HERE.parent.parent / "examples" / "char-decoder" / "char-decoder.onnx"
        plan, _ = self.compile(model, LOSS + ADAMW + f"shapes: {{batch: 2}}\nprecision: {{optimizer_state: {form}}}\n")
        out, _ = self.run_sluice("explain", plan, "--precision")
        rows = {row["name"]: row for row in out["parameters"]}
        self.assertEqual(rows["blocks.0.up.weight"]["moments"], shown)
        # 4 bytes and two codes each, and a scale of each moment for 256 of them.
        self.assertEqual(rows["blocks.0.up.weight"]["bytes"], 512 * 128 * 6 + 2 * 4 * 256)
        for name, why in (("tokens.weight", "an embedding"), ("blocks.0.up.bias", "a vector")):
            self.assertEqual(rows[name]["moments"], "f32")
            self.assertIn(why, rows[name]["why"])

    def refused(self, precision, *words, extra=""):
        errors = self.compile(self.model, LOSS + ADAMW + f"precision: {{{precision}}}\n" + extra, "bad", code=1)[1]
        for word in words:
            self.assertIn(word, errors)

    def test_bad_input(self):
        self.refused("compute: amp_bf16, rules: [{match: 'w3*', keep: fp32}]", "w3*", "matches no", "w1")
        self.refused("compute: amp_fp16, loss_scale: none", "loss_scale")
        self.refused("compute: amp_fp8", "amp_fp8", "amp_bf16")
        self.refused("compute: amp_fp16, master: split", "split", "fp32")
        self.refused("master: split", "no effect")
        self.refused("optimizer_state: int4", "int4", "int8")

    def test_a_device_without_the_format(self):
        spec = self.dir / "device.yaml"
        spec.write_text(LOSS + ADAMW + AMP)
        _, errors = self.run_sluice("fit", self.model, "--spec", spec, "--device", "v100-32", "--memory", "1GiB", code=1)
        for word in ("amp_bf16", "v100-32", "bf16", "amp_fp16"):
            self.assertIn(word, errors)


if __name__ == "__main__":
    unittest.main()
