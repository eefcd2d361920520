"""Hyper-parameters changed and groups frozen between steps, through the C API: the same as a plan compiled with the other
values, the same bits after a checkpoint, and nothing else touched."""
import json
import pathlib
import sys
import unittest

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from capi import Session  # noqa: E402
from harness import SluiceTest, newest_checkpoint, read_safetensors  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
RECORD = json.loads((HERE / "mlp-losses.json").read_text())
X, Y = np.array(RECORD["x"], np.float32), np.array(RECORD["labels"], np.int64)
SHAPES = {"w1": (16, 6), "b1": (16,), "w2": (4, 16), "b2": (4,)}

# Kind: what it is compiled with, what is changed to.
CHANGES = {
    "sgd": ({"momentum": 0.9, "dampening": 0.1, "weight_decay": 0},
            {"lr": 0.02, "momentum": 0.5, "dampening": 0.3, "weight_decay": 0.1}),
    "adam": ({}, {"lr": 0.02, "betas": [0.8, 0.95], "eps": 1e-3, "weight_decay": 0.1}),
    "adamw": ({}, {"lr": 0.02, "betas": [0.8, 0.95], "eps": 1e-3, "weight_decay": 0.1}),
    "nadam": ({}, {"betas": [0.8, 0.95], "momentum_decay": 0.1}),
    "radam": ({"betas": [0.9, 0.9]}, {"betas": [0.8, 0.95], "eps": 1e-3}),
    "adagrad": ({}, {"lr_decay": 0.1, "eps": 1e-3, "weight_decay": 0.1}),
    "rmsprop": ({"momentum": 0.9, "centered": True}, {"alpha": 0.9, "momentum": 0.5, "eps": 1e-3}),
    "lamb": ({}, {"betas": [0.8, 0.95], "weight_decay": 0.1}),
    "lion": ({}, {"betas": [0.8, 0.95], "weight_decay": 0.1}),
    "adafactor": ({}, {"beta2_decay": -0.5, "eps": 1e-4, "eps2": 1e-2, "d": 2, "weight_decay": 0.1}),
    "muon": ({}, {"momentum": 0.5, "weight_decay": 0.3}),
}


class Hyper(SluiceTest):
    def session(self, plan):
        session = Session(plan)
        self.addCleanup(session.close)
        return session

    def plan(self, optimizer, more="", name="model"):
        spec = f"loss: {{kind: cross_entropy, logits: logits, labels: labels}}\noptimizer: {json.dumps(optimizer)}\n{more}"
        return self.compile(HERE / "mlp.onnx", spec, name)[0]

    def weights(self, session):
        return {key: session.read("param/" + key, shape) for key, shape in SHAPES.items()}

    def expect_equal(self, first, second):
        for key, value in self.weights(first).items():
            np.testing.assert_array_equal(value, self.weights(second)[key], err_msg=key)

    def set_all(self, session, group, options):
        for key, value in options.items():
            for name, number in (zip(("beta1", "beta2"), value) if key == "betas" else [(key, value)]):
                session.set_hyper(group, name, number)
                self.assertEqual(session.hyper(group, name), number)

    def test_a_change_is_as_if_compiled_with_it(self):
        for kind, (compiled, changed) in CHANGES.items():
            with self.subTest(kind):
                base = self.session(self.plan({"kind": kind, **compiled}, name=kind))
                other = self.session(self.plan({"kind": kind, **compiled, **changed}, name=kind + "-other"))
                self.set_all(base, "default", changed)
                if kind == "muon":  # its vectors are AdamW's
                    base.set_hyper("default-vectors", "weight_decay", changed["weight_decay"])
                for _ in range(3):
                    base.step(X, Y)
                    other.step(X, Y)
                self.expect_equal(base, other)

    def test_clipping_changes_too(self):
        clip = "clip: {kind: global_norm, max: %s}\n"
        base = self.session(self.plan({"kind": "sgd", "lr": 0.1}, clip % 100))
        other = self.session(self.plan({"kind": "sgd", "lr": 0.1}, clip % 0.01, "other"))
        base.set_hyper(None, "clip_max", 0.01)
        base.step(X, Y)
        other.step(X, Y)
        self.expect_equal(base, other)

    def test_a_frozen_group_keeps_every_bit(self):
        groups = 'parameter_groups: [{match: "w1", lr: 0.05, weight_decay: 0.1}]\n'
        for accumulate in (1, 2):
            with self.subTest(accumulate):
                more = groups + f"accumulate: {accumulate}\n"
                plan = self.plan({"kind": "adamw", "lr": 0.01}, more, f"whole{accumulate}")
                # The same groups without w1 are what the others must not notice.
                without = self.session(self.plan({"kind": "adamw", "lr": 0.01}, more.replace("lr", "frozen: true, lr"), "without"))
                session = self.session(plan)
                session.freeze("group1")
                before = [session.read(name, (16, 6)) for name in ("param/w1", "opt/w1/m", "opt/w1/v")]
                for _ in range(3 * accumulate):
                    session.step(X, Y)
                    without.step(X, Y)
                after = [session.read(name, (16, 6)) for name in ("param/w1", "opt/w1/m", "opt/w1/v")]
                for old, new in zip(before, after):
                    np.testing.assert_array_equal(old, new)
                self.expect_equal(session, without)
                # Thawed, its first update is a first update: a step of the rate in each direction.
                session.freeze("group1", False)
                for _ in range(accumulate):
                    session.step(X, Y)
                moved = np.abs(session.read("param/w1", (16, 6)) - before[0] * (1 - 0.05 * 0.1))
                np.testing.assert_allclose(moved, 0.05, rtol=1e-2)

    def test_a_frozen_group_is_no_part_of_the_norm(self):
        more = 'clip: {kind: global_norm, max: 0.1}\nparameter_groups: [{match: "w1", lr: 0.05}]\n'
        session = self.session(self.plan({"kind": "sgd", "lr": 0.01}, more))
        without = self.session(self.plan({"kind": "sgd", "lr": 0.01}, more.replace("lr", "frozen: true, lr"), "without"))
        session.freeze("group1")
        first, second = session.step(X, Y), without.step(X, Y)
        self.assertEqual(first.grad_norm, second.grad_norm)
        self.expect_equal(session, without)

    def test_a_checkpoint_goes_on_with_the_changes(self):
        more = 'parameter_groups: [{match: "w1", lr: 0.05}]\nclip: {kind: global_norm, max: 1.0}\n'
        plan = self.plan({"kind": "adamw", "lr": 0.01}, more)
        whole = self.session(plan)
        whole.step(X, Y)
        whole.set_hyper("default", "beta2", 0.7)
        whole.set_hyper("default", "lr", 0.1 / 3)
        whole.set_hyper(None, "clip_max", 0.1)
        whole.freeze("group1")
        whole.step(X, Y)
        whole.save(self.dir / "run")
        resumed = self.session(plan)
        resumed.set_hyper("default", "eps", 0.5)  # of the session before, not of the checkpoint
        resumed.load(self.dir / "run")
        for session in (whole, resumed):
            session.step(X, Y)
            session.freeze("group1", False)
            session.set_hyper("default", "beta2", float("nan"))  # the plan's again
            self.assertEqual(session.hyper("default", "beta2"), 0.999)
            session.step(X, Y)
        self.expect_equal(whole, resumed)
        out, errors = self.run_sluice("train", plan, "--data", f"x=npy:{self.npy('x', X)}", "--data", f"labels=npy:{self.npy('y', Y)}",
                                      "--steps", 3, "--no-shuffle", "--checkpoint", self.dir / "run", "--resume")
        self.assertNotIn("left out", errors)

    def test_the_command_line_changes_them_too(self):
        more = 'parameter_groups: [{match: "w1", lr: 0.05}]\n'
        plan = self.plan({"kind": "adamw", "lr": 0.01}, more)
        session = self.session(plan)
        session.step(X, Y)
        session.set_hyper("default", "weight_decay", 0.25)
        session.freeze("group1")
        session.step(X, Y)
        session.step(X, Y)
        train = ["train", plan, "--data", f"x=npy:{self.npy('x', X)}", "--data", f"labels=npy:{self.npy('y', Y)}", "--no-shuffle",
                 "--checkpoint", self.dir / "run"]
        self.run_sluice(*train, "--steps", 1)
        self.run_sluice(*train, "--steps", 2, "--resume", "--hyper", "default.weight_decay=0.25", "--freeze", "group1")
        self.run_sluice(*train, "--steps", 3, "--resume")  # the checkpoint holds them
        state = read_safetensors(newest_checkpoint(self.dir / "run"))
        for key, value in self.weights(session).items():
            np.testing.assert_array_equal(state["param/" + key], value, err_msg=key)
        for options, message in (("--hyper", "default.rate=1"), "has no hyper-parameter 'rate'"), (("--hyper", "lr"), "expected GROUP.NAME=VALUE"), (
                ("--freeze", "nobody"), "it has 'default', 'group1'"), (("--hyper", "clip_max=1"), "it does not clip"):
            _, errors = self.run_sluice(*train, "--steps", 4, "--resume", *options, code=2)
            self.assertIn(message, errors)

    def test_the_spec_changes_them_at_its_updates(self):
        changes = """changes:
  - {at: 0, group: group1, frozen: true}
  - {at: 2, betas: [0.8, 0.95], weight_decay: 0.25, clip_max: 0.1}
  - {at: 3, group: group1, frozen: false, lr: 0.02}
  - {at: 4, group: default, lr: 0.005, eps: 1.0e-3}
"""
        more = 'parameter_groups: [{match: "w1", lr: 0.05}]\nclip: {kind: global_norm, max: 1.0}\nschedule: {kind: linear, total_steps: 10}\n'
        for kind in ("adamw", "nadam", "radam", "lamb", "lion"):
            for accumulate in (1, 2) if kind == "adamw" else (1,):
                with self.subTest(kind, accumulate=accumulate):
                    every = more + f"accumulate: {accumulate}\n"
                    text = changes.replace(", eps: 1.0e-3", "") if kind == "lion" else changes
                    plan = self.plan({"kind": kind, "lr": 0.01}, every + text, f"{kind}{accumulate}")
                    ours = self.session(plan)
                    theirs = self.session(self.plan({"kind": kind, "lr": 0.01}, every, f"{kind}{accumulate}-plain"))
                    for update in range(6):
                        self.apply(theirs, update, kind)
                        for _ in range(accumulate):
                            ours.step(X, Y)
                            theirs.step(X, Y)
                        self.expect_equal(ours, theirs)
                    self.assertEqual(ours.hyper("default", "weight_decay"), 0.25)
                    # A run in pieces, across the changes.
                    for end in (1, 2, 3, 6):
                        session = self.session(plan)
                        if end > 1:
                            session.load(self.dir / f"{kind}{accumulate}")
                        while session.lib.sluice_session_updates(session.session) < end:
                            session.step(X, Y)
                        session.save(self.dir / f"{kind}{accumulate}")
                    self.expect_equal(session, ours)

    def apply(self, session, update, kind):
        """What the spec above does, by hand. Rates are those of the linear schedule."""
        if update in (0, 3):
            session.freeze("group1", update == 0)
        if update == 2:
            for group in ("default", "group1"):
                self.set_all(session, group, {"betas": [0.8, 0.95], "weight_decay": 0.25})
            session.set_hyper(None, "clip_max", 0.1)
        if update >= 3:
            session.set_hyper("group1", "lr", 0.02 * (1 - update / 10))
        if update >= 4:
            session.set_hyper("default", "lr", 0.005 * (1 - update / 10))
        if update == 4 and kind != "lion":
            session.set_hyper("default", "eps", 1e-3)

    def test_nadam_keeps_the_product_of_the_values_that_held(self):
        plan = self.plan({"kind": "nadam", "lr": 0.01}, "changes: [{at: 2, betas: [0.5, 0.9], momentum_decay: 0.1}]\n")
        session, gradients = self.session(plan), self.session(self.plan({"kind": "sgd", "lr": 1}, name="sgd"))
        weights = {key: value.astype(np.float64) for key, value in self.weights(session).items()}
        m = {key: np.zeros(shape) for key, shape in SHAPES.items()}
        v = {key: np.zeros(shape) for key, shape in SHAPES.items()}
        product = 1.0
        for t in range(1, 6):
            beta1, beta2, decay = (0.9, 0.999, 0.004) if t <= 2 else (0.5, 0.9, 0.1)
            mu, following = (beta1 * (1 - 0.5 * 0.96 ** (k * decay)) for k in (t, t + 1))
            product *= mu
            for key, value in weights.items():
                gradients.write("param/" + key, value.astype(np.float32))
            gradients.step(X, Y)
            for key, shape in SHAPES.items():  # torch.optim.NAdam
                g = weights[key].astype(np.float32).astype(np.float64) - gradients.read("param/" + key, shape)
                m[key] = beta1 * m[key] + (1 - beta1) * g
                v[key] = beta2 * v[key] + (1 - beta2) * g * g
                scale = np.sqrt(v[key] / (1 - beta2**t)) + 1e-8
                weights[key] -= 0.01 * ((1 - mu) / (1 - product) * g + following / (1 - product * following) * m[key]) / scale
            session.step(X, Y)
        for key, value in self.weights(session).items():
            np.testing.assert_allclose(value, weights[key], atol=2e-4, err_msg=key)

    def test_changes_that_nothing_has_are_refused(self):
        loss = "loss: {kind: cross_entropy, logits: logits}\noptimizer: {kind: sgd}\n"
        for changes, message in (
                ("[{at: 1, momentum: 0.5}]", "'changes' has 'momentum' at update 1, which no group has"),
                ("[{at: 1, group: other, lr: 1}]", "'changes' names the group 'other', expected one of 'default'"),
                ("[{at: 1, clip_max: 1}]", "'changes' has 'clip_max' at update 1, which needs 'clip'"),
                ("[{at: 1}]", "an element of 'changes' changes nothing"),
                ("[{lr: 1}]", "an element of 'changes' has no 'at'"),
                ("[{at: 3, lr: 1}, {at: 2, lr: 2}]", "'at' is 2 behind 3; the elements of 'changes' stand in order"),
                ("[{at: 3, group: default, clip_max: 1}]", "'clip_max' belongs to no group"),
                ("[{at: 3, lr: -1}]", "'lr' is -1"),
                ("[{at: 3, rate: 1}]", "unknown key 'changes[].rate'")):
            with self.subTest(changes):
                _, errors = self.compile(HERE / "mlp.onnx", f"{loss}changes: {changes}\n", "bad", code=1)
                self.assertIn(message, errors)

    def test_refusals(self):
        session = self.session(self.plan({"kind": "sgd", "lr": 0.1}))
        for group, name, value, message in (
                ("default", "momentum", 0.5, "it has 'lr', 'weight_decay'"),
                ("default", "weight_decay", -1.0, "expected a number of at least 0"),
                ("default", "weight_decay", float("inf"), "expected a number"),
                ("nobody", "weight_decay", 0.5, "it has 'default'"),
                (None, "clip_max", 0.5, "it does not clip")):
            with self.subTest(name), self.assertRaises(RuntimeError) as caught:
                session.set_hyper(group, name, value)
            self.assertIn(message, str(caught.exception))
        with self.assertRaises(RuntimeError):
            session.freeze("nobody")

    def test_groups_take_every_key_of_an_optimizer(self):
        more = 'parameter_groups: [{match: "w1", amsgrad: true, eps_mode: before_correction}, {match: "b*", kind: rmsprop, alpha: 0.5, momentum: 0.9, centered: true}]\n'
        session = self.session(self.plan({"kind": "adamw"}, more))
        session.read("opt/w1/max_v", (16, 6))
        session.read("opt/b1/grad_avg", (16,))
        self.assertEqual(session.hyper("group2", "alpha"), 0.5)
        _, errors = self.compile(HERE / "mlp.onnx", "loss: {kind: cross_entropy, logits: logits}\nparameter_groups: [{match: w1, alpha: 0.5}]\n", code=1)
        self.assertIn("'parameter_groups[].alpha' has no effect on adamw", errors)


if __name__ == "__main__":
    unittest.main(verbosity=2)
