"""Weights of single tasks (`continual.masks`), and heads that grow."""
import sys
import unittest

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from capi import Session
from harness import ROOT, SluiceTest, newest_checkpoint, read_safetensors

sys.path.insert(0, str(ROOT / "examples" / "credit-cohorts"))
import transform as transforms  # noqa: E402

BASE = """
shapes: {batch: 16}
seed: 3
loss: {kind: cross_entropy, logits: logits, labels: labels}
"""
ADAMW = "optimizer: {kind: adamw, lr: 1.0e-2, weight_decay: 0.1}\n"
PACKNET = "continual: {masks: {kind: packnet, tasks: [a, b, c], share: 0.4, retrain: 0.5}}\n"
SUPERMASK = "continual: {masks: {kind: supermask, tasks: [a, b]}}\n"


def network(path, classes=4, width=12, hidden=24, norm=False):
    draws = np.random.default_rng(1)
    real = lambda *shape: draws.standard_normal(shape).astype(np.float32) * 0.3
    weights = [numpy_helper.from_array(v, n) for n, v in
               [("w1", real(hidden, width)), ("b1", real(hidden)), ("w2", real(4, hidden) if classes == 4 else np.concatenate(
                   [real(4, hidden), np.full((classes - 4, hidden), 0.5, np.float32)])), ("b2", np.zeros(classes, np.float32))]]
    nodes = [helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], transB=1, name="fc1")]
    middle = "h"
    if norm:
        for name, value in (("scale", 1), ("shift", 0), ("mean", 0), ("variance", 1)):
            weights.append(numpy_helper.from_array(np.full(hidden, value, np.float32), name))
        nodes.append(helper.make_node("BatchNormalization", ["h", "scale", "shift", "mean", "variance"], ["n", "mean_next", "variance_next"], name="bn",
                                      training_mode=1))
        middle = "n"
    nodes += [helper.make_node("Relu", [middle], ["a"]), helper.make_node("Gemm", ["a", "w2", "b2"], ["logits"], transB=1, name="fc2")]
    value = lambda name, size: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])
    graph = helper.make_graph(nodes, "net", [value("x", width)], [value("logits", classes)], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


class MaskTest(SluiceTest):
    def data(self, task):
        draws = np.random.default_rng(sum(map(ord, task)))
        x = draws.standard_normal((64, 12)).astype(np.float32)
        y = (x @ draws.standard_normal((12, 4))).argmax(1).astype(np.int64)
        return ["--data", f"x=npy:{self.npy(task + '-x', x)}", "--data", f"labels=npy:{self.npy(task + '-y', y)}"]

    def train(self, plan, task, steps, code=0, run="run", more=()):
        return self.run_sluice("train", plan, *self.data(task), "--task", task, "--steps", steps, "--checkpoint", self.dir / run, "--resume", *more, code=code)

    def outputs(self, plan, task, run="run"):
        out = self.dir / "z.npy"
        self.run_sluice("infer", plan, *self.data(task)[:2], "--task", task, "--checkpoint", self.dir / run, "-o", out)
        return np.load(out)

    def state(self, run="run"):
        return read_safetensors(newest_checkpoint(self.dir / run))


class Packnet(MaskTest):
    def check(self, spec, norm=False):
        plan, report = self.compile(network(self.dir / "net.onnx", norm=norm), BASE + spec)
        self.assertGreater(report["arena"]["continual"], 0)
        self.train(plan, "a", 20)
        first, before = self.outputs(plan, "a"), self.state()
        self.train(plan, "b", 40)
        second = self.outputs(plan, "b")
        self.train(plan, "c", 60)
        np.testing.assert_array_equal(self.outputs(plan, "a"), first)
        np.testing.assert_array_equal(self.outputs(plan, "b"), second)
        after = self.state()
        for name in ("w1", "w2"):
            kept = before[f"mask/{name}"] == 1
            self.assertEqual(kept.sum(), int(np.ceil(0.4 * kept.size)))  # the share of what was free
            np.testing.assert_array_equal(after[f"param/{name}"][kept], before[f"param/{name}"][kept])
            self.assertTrue((after[f"param/{name}"][after[f"mask/{name}"] == 2] != 0).all())
            np.testing.assert_array_equal(after[f"param/{name}"][after[f"mask/{name}"] == 127], 0)
        self.assertFalse(np.array_equal(second, first))

    def test_outputs_of_earlier_tasks_keep_their_bits(self):
        self.check(ADAMW + PACKNET)

    def test_so_they_do_with_momentum_decay_and_clip_accumulated(self):
        self.check("optimizer: {kind: sgd, lr: 0.1, momentum: 0.9, weight_decay: 0.1}\nclip: {kind: global_norm, max: 1.0}\naccumulate: 2\n" + PACKNET)

    def test_so_they_do_with_statistics_of_batches(self):
        self.check(ADAMW + PACKNET, norm=True)

    def test_so_they_do_under_recompute(self):
        self.check(ADAMW + "memory: {recompute: {every: 2}}\n" + PACKNET)

    def test_resumes_in_the_middle_of_a_task_bit_for_bit(self):
        plan, _ = self.compile(network(self.dir / "net.onnx"), BASE + ADAMW + PACKNET)
        for run, more in (("whole", ()), ("parts", ("--checkpoint-every", 7))):
            self.train(plan, "a", 20, run=run)
            self.train(plan, "b", 40, run=run, more=more)
        # Of the second, what is behind update 35 again: it lies behind the pruning.
        newest_checkpoint(self.dir / "parts").unlink()
        self.assertIn("00000035", newest_checkpoint(self.dir / "parts").name)
        self.train(plan, "b", 40, run="parts")
        whole, parts = self.state("whole"), self.state("parts")
        for name in whole:
            np.testing.assert_array_equal(whole[name], parts[name], err_msg=name)

    def test_refuses_what_tasks_cannot(self):
        plan, _ = self.compile(network(self.dir / "net.onnx"), BASE + ADAMW + PACKNET)
        self.assertIn("unknown task 'd': the plan's tasks are 'a', 'b', 'c'", self.train(plan, "d", 5, code=1)[1])
        self.assertIn("builds on those before it", self.train(plan, "b", 5, code=1)[1])
        self.train(plan, "a", 5)
        _, errors = self.run_sluice("infer", plan, *self.data("b")[:2], "--task", "b", "--checkpoint", self.dir / "run", "-o", self.dir / "z.npy", code=1)
        self.assertIn("has not been learned", errors)
        self.assertIn("has been learned", self.train(plan, "a", 10, code=1)[1])
        _, errors = self.run_sluice("train", plan, *self.data("b"), "--steps", 10, code=2)
        self.assertIn("--task NAME", errors)
        _, errors = self.compile(self.dir / "net.onnx", BASE + ADAMW + PACKNET + "parallel: {data: 2}\n", "clash", code=1)
        self.assertIn("not yet supported with 'parallel.data'", errors)


class Supermask(MaskTest):
    def test_tasks_keep_their_bits_and_weights_stay(self):
        plan, _ = self.compile(network(self.dir / "net.onnx"), BASE + ADAMW + SUPERMASK)
        weights = read_safetensors(plan.with_suffix(".safetensors"))
        report = self.train(plan, "a", 60)[0]
        self.assertLess(report["loss"], 1.2)  # ln 4 is 1.386
        first = self.outputs(plan, "a")
        self.train(plan, "b", 120)
        np.testing.assert_array_equal(self.outputs(plan, "a"), first)
        state = self.state()
        np.testing.assert_array_equal(state["param/w1"], weights["param/w1"])
        self.assertEqual(state["mask/a/w1"].size, 12 * 24 // 8)
        self.assertFalse(np.array_equal(state["mask/a/w1"], state["mask/b/w1"]))
        bits = np.unpackbits(state["mask/b/w1"].view(np.uint8), bitorder="little").reshape(24, 12)
        np.testing.assert_array_equal(bits, state["param/w1.score"] > 0)
        report, _ = self.run_sluice("eval", plan, *self.data("a"), "--task", "a", "--checkpoint", self.dir / "run")
        self.assertGreater(report["accuracy"], 0.5)

    def test_scores_get_the_straight_through_gradient(self):
        spec = BASE + "optimizer: {kind: sgd, lr: 1.0}\n"
        plan, _ = self.compile(network(self.dir / "net.onnx"), spec + SUPERMASK)
        before = read_safetensors(plan.with_suffix(".safetensors"))
        self.train(plan, "a", 1, more=("--no-shuffle",))
        after = self.state()
        # By hand: the gradient with respect to masked weights, times the weights.
        x, y = np.load(self.dir / "a-x.npy")[:16].astype(float), np.load(self.dir / "a-y.npy")[:16]
        mask = {n: before[f"param/{n}.score"] > 0 for n in ("w1", "w2")}
        w1, w2 = (before[f"param/{n}"] * mask[n] for n in ("w1", "w2"))
        a = np.maximum(x @ w1.T + before["param/b1"], 0)
        z = a @ w2.T + before["param/b2"]
        p = np.exp(z - z.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        p[np.arange(16), y] -= 1
        grads = {"w2": p.T @ a / 16, "w1": ((p @ w2) * (a > 0)).T @ x / 16}
        for name, gradient in grads.items():
            step = before[f"param/{name}.score"] - after[f"param/{name}.score"]
            np.testing.assert_allclose(step, gradient * before[f"param/{name}"], rtol=2e-4, atol=1e-6)


class Service(MaskTest):
    def call(self, session, what, name=None):
        arguments = [] if what in ("prune", "end") else [name.encode() if name else None]
        session._check(getattr(session.lib, f"sluice_session_{what}_task")(session.session, *arguments))

    def learn(self, session, name, x, y, steps):
        for _ in range(steps):
            session.step(x, y)

    def test_tasks_of_a_service(self):
        sgd = "optimizer: {kind: sgd, lr: 0.1, momentum: 0.9, weight_decay: 0.1}\n"
        plan, _ = self.compile(network(self.dir / "net.onnx"), BASE + sgd + PACKNET)
        draws = np.random.default_rng(5)
        x, y = draws.standard_normal((16, 12)).astype(np.float32), draws.integers(0, 4, 16)
        session = Session(plan)
        self.addCleanup(session.close)

        def seen(name):
            self.call(session, "view", name)
            session.infer(x)
            self.call(session, "view", None)
            return session.output("logits").copy()

        self.call(session, "begin", "a")
        self.learn(session, "a", x, y, 3)
        self.call(session, "prune")
        self.learn(session, "a", x, y, 3)
        self.call(session, "end")
        first, weights, mask = seen("a"), session.read("param/w1", (24, 12)), session.read("mask/w1", (24, 12), np.int8)
        self.call(session, "begin", "b")
        self.learn(session, "b", x, y, 4)
        now = session.read("param/w1", (24, 12))
        np.testing.assert_array_equal(now[mask == 1], weights[mask == 1])  # neither momentum nor decay
        self.assertTrue((now[mask == 127] != weights[mask == 127]).any())
        np.testing.assert_array_equal(seen("a"), first)
        for what, name, text in (("view", "c", "has not been learned"), ("begin", "z", "unknown task 'z'"), ("begin", "c", "has not ended")):
            with self.assertRaisesRegex(RuntimeError, text):
                self.call(session, what, name)


class Heads(MaskTest):
    EWC = "continual: {ewc: {lambda: 10, online: {gamma: 1}, fisher: {storage: fp32, samples: 16}}}\n"

    def test_grown_head_keeps_old_rows_with_their_fisher(self):
        old, _ = self.compile(network(self.dir / "old.onnx"), BASE + ADAMW + self.EWC, "old")
        run = ["--checkpoint", self.dir / "run"]
        self.run_sluice("train", old, *self.data("a"), "--steps", 5, *run)
        self.run_sluice("consolidate", old, *self.data("a"), *run)
        before = self.state()
        new, _ = self.compile(network(self.dir / "new.onnx", classes=6), BASE + ADAMW + self.EWC, "new")
        _, errors = self.run_sluice("train", new, *self.data("a"), "--steps", 5, *run, "--resume", code=1)
        self.assertIn("'param/w2' is f32[4, 24], the plan expects f32[6, 24]", errors)
        self.assertIn("--grow-head", errors)
        _, notes = self.run_sluice("train", new, *self.data("a"), "--steps", 6, *run, "--resume", "--grow-head", "--freeze", "default")
        self.assertIn("'param/w2' has grown from [4, 24] to [6, 24]", notes)
        after, initial = self.state(), read_safetensors(new.with_suffix(".safetensors"))
        for name in ("param/w2", "opt/w2/m", "opt/w2/v", "ewc/w2/anchor", "ewc/w2/fisher"):
            np.testing.assert_array_equal(after[name][:4], before[name], err_msg=name)
        np.testing.assert_array_equal(after["param/w2"][4:], initial["param/w2"][4:])
        np.testing.assert_array_equal(after["ewc/w2/fisher"][4:], 0)
        np.testing.assert_array_equal(after["param/w1"], before["param/w1"])


class Transform(unittest.TestCase):
    ROWS = [{"age": "20", "kind": "x"}, {"age": "40", "kind": "y"}]

    def test_numbers_and_categories(self):
        made = transforms.fit(self.ROWS, ["age"], ["kind"])
        np.testing.assert_array_equal(transforms.apply(made, self.ROWS, ["age", "kind"]), [[-1, 1, 0], [1, 0, 1]])

    def test_refuses_other_columns_values_and_versions(self):
        made = transforms.fit(self.ROWS, ["age"], ["kind"])
        for rows, names, change, text in [(self.ROWS, ["years", "kind"], {}, "'age' is missing; 'years' is not in it"),
                                          ([{"age": "1", "kind": "z"}], ["age", "kind"], {}, "has 'z' in 'kind'"),
                                          (self.ROWS, ["age", "kind"], {"version": 2}, "version 2, expected 1")]:
            with self.assertRaisesRegex(transforms.Refused, text):
                transforms.apply({**made, **change}, rows, names)


if __name__ == "__main__":
    unittest.main(verbosity=2)
