"""sluice probe and sluice verify --precision, against NumPy and against bad input."""
import json
import unittest

import numpy as np

from capi import Session
from harness import ROOT, SluiceTest, newest_checkpoint, pseudo_random, read_safetensors

LOSS = "loss: {kind: cross_entropy, logits: logits, labels: labels}\noptimizer: {kind: adamw, lr: 1.0e-2}\nshapes: {x: [8, 13]}\n"
SAMPLES = 40


def model(folder, name="mlp", scale=1.0):
    """x [N, 13] -> Gemm, Tanh -> Gemm -> logits [N, 4]; the batch is open."""
    from onnx import TensorProto, helper, numpy_helper

    values = {"w1": pseudo_random(13 * 9).reshape(13, 9) * np.float32(scale), "b1": pseudo_random(9),
              "w2": pseudo_random(36).reshape(9, 4), "b2": pseudo_random(4)}
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], "first"), helper.make_node("Tanh", ["h"], ["a"], "tanh"),
         helper.make_node("Gemm", ["a", "w2", "b2"], ["logits"], "second")], name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 13])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 4])],
        [numpy_helper.from_array(v, k) for k, v in values.items()])
    path = folder / f"{name}.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
    return path, values


def fisher(w, x, labels):
    """Mean over samples of the squared gradient of each sample's loss, in double."""
    w = {k: v.astype(np.float64) for k, v in w.items()}
    a = np.tanh(x @ w["w1"] + w["b1"])
    z = a @ w["w2"] + w["b2"]
    d = np.exp(z - z.max(1, keepdims=True))
    d /= d.sum(1, keepdims=True)
    d[np.arange(len(x)), labels] -= 1
    dh = d @ w["w2"].T * (1 - a * a)
    outer = lambda p, q: ((p[:, :, None] * q[:, None, :]) ** 2).mean(0)
    return {"w1": outer(x, dh), "b1": (dh**2).mean(0), "w2": outer(a, d), "b2": (d**2).mean(0)}


class ProbeTest(SluiceTest):
    def setUp(self):
        super().setUp()
        self.model, self.values = model(self.dir)
        self.x = pseudo_random(SAMPLES * 13).reshape(SAMPLES, 13) * np.float32(4)
        self.y = (np.arange(SAMPLES) * 7 % 4).astype(np.int64)
        self.data = self.given(self.x)
        self.out = self.dir / "probe.safetensors"

    def given(self, x, name="x"):
        return ["--data", f"x=npy:{self.npy(name, x)}", "--data", f"labels=npy:{self.npy('y', self.y)}"]

    def probe(self, subject, *options, data=None, code=0):
        return self.run_sluice("probe", subject, *(self.data if data is None else data), "--samples", SAMPLES, "-o", self.out, *options, code=code)

    def spec(self, text=LOSS):
        path = self.dir / "probe.yaml"
        path.write_text(text)
        return ["--spec", path]

    def check(self, report):
        expected = fisher(self.values, self.x.astype(np.float64), self.y)
        written = read_safetensors(self.out)
        self.assertEqual([p["name"] for p in report["parameters"]], sorted(expected))
        for parameter in report["parameters"]:
            name = parameter["name"]
            np.testing.assert_allclose(written[f"importance/{name}"], [expected[name].mean()], rtol=1e-4)
            self.assertLess(parameter["importance"]["low"], parameter["importance"]["mean"])
            half = (self.values[name].astype(np.float16).astype(np.float64) - self.values[name]) ** 2 / 2
            np.testing.assert_allclose(written[f"increase/{name}/fp16"], [(expected[name] * half).sum()], rtol=1e-2)
            self.assertGreater(written[f"increase/{name}/mxfp4/stderr"][0], 0)


class Probe(ProbeTest):
    def test_the_fisher_is_numpys_by_every_way(self):
        report, _ = self.probe(self.model, *self.spec())
        self.check(report)
        self.assertEqual((report["labels"], report["kind"]), ("true", "fisher"))
        plan, _ = self.compile(self.model, LOSS + "precision: {compute: amp_bf16}\n")
        self.check(self.probe(plan, "--model", self.model)[0])
        plan, _ = self.compile(self.model, LOSS + "entries: [step, probe]\naccumulate: 2\n", "own")
        report, errors = self.probe(plan)
        self.check(report)
        self.assertIn("one sample at a time goes through programs for 8", errors)

    def test_plans_of_several_shapes_are_probed_and_verified(self):
        shapes = LOSS.replace("shapes: {x: [8, 13]}", "shapes: [{x: [8, 13]}, {x: [20, 13]}]")
        plan, _ = self.compile(self.model, shapes + "precision: {compute: amp_bf16}\n")
        self.check(self.probe(plan, "--model", self.model)[0])
        report, _ = self.run_sluice("verify", plan, "--precision", "--model", self.model, *self.data, "--steps", 8, "--seeds", 1)
        self.assertNotEqual(report["difference"], 0)

    def test_the_c_api_gives_gradients_of_any_samples(self):
        plan, _ = self.compile(self.model, LOSS + "entries: [eval, probe]\n")
        session = Session(plan)
        single = session.probe(self.x[:1], self.y[:1])
        np.testing.assert_allclose(session.output("grad/b2") ** 2, fisher(self.values, self.x[:1], self.y[:1])["b2"], rtol=1e-4)
        gradients = []
        for i in range(5):
            session.probe(self.x[i : i + 1], self.y[i : i + 1])
            gradients.append(session.output("grad/w1"))
        result = session.probe(self.x[:5], self.y[:5])
        self.assertEqual((single.loss_count, result.loss_count), (1, 5))
        np.testing.assert_allclose(session.output("grad/w1"), np.sum(gradients, 0), rtol=1e-4, atol=1e-6)
        session.close()

    def test_a_checkpoint_gives_the_weights_and_the_moments(self):
        plan, _ = self.compile(self.model, LOSS)
        self.run_sluice("train", plan, *self.data, "--steps", 4, "--checkpoint", self.dir / "run")
        state = read_safetensors(newest_checkpoint(self.dir / "run"))
        self.values = {k: state[f"param/{k}"] for k in self.values}
        self.check(self.probe(plan, "--model", self.model, "--checkpoint", self.dir / "run")[0])
        report, _ = self.probe(plan, "--kind", "moments", "--checkpoint", self.dir / "run", data=[])
        for parameter in report["parameters"]:
            moment = state[f"opt/{parameter['name']}/v"].astype(np.float64) / (1 - 0.999**4)
            np.testing.assert_allclose(parameter["importance"]["mean"], 8 * moment.mean(), rtol=1e-4)
        errors = self.probe(plan, "--kind", "moments", data=[], code=1)[1]
        self.assertIn("no update has been done", errors)

    def test_a_plan_with_codes_is_probed_at_their_values(self):
        plan, _ = self.compile(self.model, LOSS + 'precision: {rules: [{match: "w*", storage: e4m3}]}\n')
        self.run_sluice("export", plan, "-o", self.dir / "start.safetensors")
        start = read_safetensors(self.dir / "start.safetensors")
        self.assertNotEqual(start["w1"].tobytes(), self.values["w1"].tobytes())
        self.values = {k: start[k] for k in self.values}
        self.check(self.probe(plan, "--model", self.model)[0])

    def test_hutchinson_repeats_and_other_seeds_differ(self):
        options = [*self.spec(), "--kind", "hutchinson", "--draws", 3]
        first, again = (self.probe(self.model, *options)[0] for _ in range(2))
        other, _ = self.probe(self.model, *options, "--seed", 5)
        means = [[p["importance"]["mean"] for p in r["parameters"]] for r in (first, again, other)]
        self.assertEqual(means[0], means[1])
        self.assertNotEqual(means[0], means[2])
        self.assertGreater(float(first["eps"]), 0)
        for eps in ("0", "-1", "nan"):
            self.assertIn("expected a distance above 0", self.probe(self.model, *options, f"--eps={eps}", code=2)[1])

    def test_bad_input_is_named_and_nothing_is_written(self):
        plan, _ = self.compile(self.model, LOSS)
        other, _ = model(self.dir, "other", 2.0)
        x = self.x.copy()
        x[17, 3] = np.nan
        for subject, options, data, words in (
                (plan, ["--no-shuffle", "--model", self.model], self.given(x, "nan"), ["input 'x'", "sample 17"]),
                (plan, ["--model", other], None, ["is not the model of", "hashes"]),
                (plan, [], None, ["no program 'probe'", "--model"]),
                (plan, ["--model", self.model, "--samples", 41], None, ["40 samples, 41 are asked for"]),
                (self.model, [*self.spec("loss: {kind: sum, logits: logits}\nshapes: {x: [8, 13]}\n"), "--labels", "sampled"],
                 self.data[:2], ["'cross_entropy' or 'nll'"])):
            with self.subTest(words=words):
                errors = self.run_sluice("probe", subject, *(data or self.data), *([] if "--samples" in options else ["--samples", SAMPLES]),
                                         "-o", self.out, *options, code=5 if "sample 17" in words else 1)[1]
                for word in words:
                    self.assertIn(word, errors)
                self.assertFalse(self.out.exists())


class Verify(ProbeTest):
    def verify(self, plan, *options, code=0):
        return self.run_sluice("verify", plan, "--precision", *self.data, "--steps", 16, "--seeds", 2, *options, code=code)

    def test_the_difference_is_that_of_two_trainings(self):
        bf16 = "precision: {compute: amp_bf16}\n"
        plan, _ = self.compile(self.model, LOSS + bf16)
        single, _ = self.compile(self.model, LOSS, "single")
        report, _ = self.verify(plan, "--model", self.model)
        halves = []
        for seed in range(2):
            runs = []
            for name, extra in (("ours", bf16), ("reference", "")):
                path, _ = self.compile(self.model, LOSS + extra + f"seed: {seed}\n", name)
                runs.append(self.run_sluice("train", path, *self.data, "--steps", 16, "--losses")[0]["losses"][8:])
            halves.append(np.array(runs[0]) - np.array(runs[1]))
        self.assertAlmostEqual(report["difference"], np.mean(halves), places=9)
        self.assertNotEqual(report["difference"], 0)
        self.assertEqual(report["windows"], 8)
        shown, _ = self.run_sluice("explain", plan, "--precision")
        self.assertEqual(shown["measured"]["difference"], report["difference"])
        # The same figures by a plan of one's own.
        self.assertEqual(self.verify(plan, "--against", single)[0]["difference"], report["difference"])

    def test_another_plan_has_no_figures(self):
        plan, _ = self.compile(self.model, LOSS)
        report, _ = self.verify(plan, "--model", self.model)
        self.assertEqual((report["difference"], report["seen"]), (0, False))
        self.compile(self.model, LOSS + "seed: 3\n")
        self.assertIsNone(self.run_sluice("explain", plan, "--precision")[0]["measured"])
        written = json.loads((self.dir / "model.precision.json").read_text())
        self.assertEqual(written["difference"], 0)

    def test_what_cannot_be_compared_is_refused(self):
        plan, _ = self.compile(self.model, LOSS)
        other, _ = model(self.dir, "other", 2.0)
        narrow, _ = self.compile(self.model, LOSS + "precision: {compute: amp_bf16}\n", "narrow")
        self.assertIn("hashes differ", self.verify(plan, "--model", other, code=1)[1])
        # Also of a model that has other shapes and names.
        self.assertIn("hashes differ", self.verify(plan, "--model", ROOT / "tests/models/small-cnn.onnx", code=1)[1])
        self.assertIn("expected an f32 plan", self.verify(plan, "--against", narrow, code=1)[1])
        for setting, words in (("clip: {kind: global_norm, max: 1.0}\n", "another 'clip'"), ("schedule: {kind: linear, total_steps: 9}\n", "another 'schedule'"),
                               ('precision: {rules: [{match: "*", saved: mxfp4}]}\n', "narrow formats"), ("precision: {optimizer_state: bf16}\n", "narrow formats")):
            against, _ = self.compile(self.model, LOSS + setting, "against")
            self.assertIn(words, self.verify(plan, "--against", against, code=1)[1])
        self.assertIn("--model", self.verify(plan, code=2)[1])
        self.assertFalse((self.dir / "model.precision.json").exists())


if __name__ == "__main__":
    unittest.main()
