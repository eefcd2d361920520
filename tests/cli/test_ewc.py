"""EWC and SI on the command line and through the C API, against NumPy and against bad input."""
import ctypes
import unittest

import numpy as np

from capi import Session
from harness import SluiceTest, newest_checkpoint, pseudo_random, read_safetensors
from test_probe import fisher, model

LOSS = "loss: {kind: cross_entropy, logits: logits, labels: labels}\noptimizer: {kind: adamw, lr: 1.0e-2}\nshapes: {x: [8, 13]}\n"
EWC = "continual: {ewc: {lambda: 100, online: {gamma: 0.5}, fisher: {storage: fp32}}}\n"
SAMPLES = 40


class ContinualTest(SluiceTest):
    def setUp(self):
        super().setUp()
        self.model, self.values = model(self.dir)
        self.x = pseudo_random(SAMPLES * 13).reshape(SAMPLES, 13) * np.float32(4)
        self.y = (np.arange(SAMPLES) * 7 % 4).astype(np.int64)
        self.data = ["--data", f"x=npy:{self.npy('x', self.x)}", "--data", f"labels=npy:{self.npy('y', self.y)}"]
        self.run_folder = self.dir / "run"

    def train(self, plan, steps, *options, code=0):
        return self.run_sluice("train", plan, *self.data, "--steps", steps, "--checkpoint", self.run_folder, *options, code=code)

    def weights(self, tensors):
        return {name: tensors[f"param/{name}"] for name in self.values}


class Continual(ContinualTest):
    def test_consolidate_ends_a_task_of_a_checkpoint(self):
        plan, report = self.compile(self.model, LOSS + EWC)
        elements = sum(v.size for v in self.values.values())
        self.assertGreaterEqual(report["arena"]["continual"], 8 * elements)
        self.train(plan, 5)
        report, _ = self.run_sluice("consolidate", plan, *self.data, "--checkpoint", self.run_folder)
        self.assertEqual((report["tasks"], report["samples"], report["penalty_before"]), (1, SAMPLES, 0))
        tensors = read_safetensors(newest_checkpoint(self.run_folder))
        expected = fisher(self.weights(tensors), self.x.astype(np.float64), self.y)
        for name, value in expected.items():
            np.testing.assert_allclose(tensors[f"ewc/{name}/fisher"], value, rtol=1e-4, atol=1e-9)
            np.testing.assert_array_equal(tensors[f"ewc/{name}/anchor"], tensors[f"param/{name}"])
        self.train(plan, 9, "--resume")
        report, _ = self.run_sluice("consolidate", plan, *self.data, "--checkpoint", self.run_folder, "--samples", 16)
        self.assertEqual((report["tasks"], report["samples"]), (2, 16))
        self.assertGreater(report["penalty_before"], 0)

    def test_the_c_api_estimates_consolidates_and_gives_the_penalty(self):
        plan, _ = self.compile(self.model, LOSS + EWC)
        session = Session(plan)
        call, value = session.lib.sluice_session_fisher, ctypes.c_double()
        with self.assertRaisesRegex(RuntimeError, "no Fisher to consolidate"):
            session._check(session.lib.sluice_session_consolidate(session.session))
        for first in range(0, SAMPLES, 8):
            arrays = [np.ascontiguousarray(self.x[first : first + 8]), self.y[first : first + 8].copy()]
            pointers = (ctypes.c_void_p * 2)(*[a.ctypes.data for a in arrays])
            session._check(call(session.session, pointers, ctypes.c_size_t(2), ctypes.c_int64(8)))
        session._check(session.lib.sluice_session_consolidate(session.session))
        expected = fisher(self.values, self.x.astype(np.float64), self.y)
        np.testing.assert_allclose(session.read("ewc/w1/fisher", (13, 9)), expected["w1"], rtol=1e-4, atol=1e-9)
        moved = self.values["b2"] + np.float32(0.5)
        session.write_parameter("b2", moved)
        session._check(session.lib.sluice_session_penalty(session.session, ctypes.byref(value)))
        self.assertAlmostEqual(value.value, 50 * 0.25 * expected["b2"].sum(), delta=1e-4 * value.value)
        session.set_hyper("default", "ewc_lambda", 200)
        before = value.value
        session._check(session.lib.sluice_session_penalty(session.session, ctypes.byref(value)))
        self.assertAlmostEqual(value.value, 2 * before, delta=1e-6 * before)
        session.close()

    def test_refreshes_count_from_the_first_sample_so_that_a_resumed_run_has_the_same_bits(self):
        plan, _ = self.compile(self.model, LOSS + EWC.replace("fisher:", "refresh: 0.4, fisher:"))
        self.train(plan, 12)
        whole = read_safetensors(newest_checkpoint(self.run_folder))
        self.assertEqual(whole["ewc/tasks"], 12 * 8 // 16)
        self.run_folder = self.dir / "again"
        self.train(plan, 5)
        self.train(plan, 12, "--resume")
        again = read_safetensors(newest_checkpoint(self.run_folder))
        for name, tensor in whole.items():
            np.testing.assert_array_equal(tensor, again[name], name)

    def test_si_consolidates_without_data(self):
        plan, _ = self.compile(self.model, LOSS + "continual: {si: {c: 0.1}}\n")
        self.train(plan, 6)
        report, _ = self.run_sluice("consolidate", plan, "--checkpoint", self.run_folder)
        self.assertEqual((report["tasks"], report["samples"]), (1, 0))
        self.assertGreater(report["importance_max"], 0)
        self.train(plan, 8, "--resume")

    def test_ranks_hold_the_same_anchors(self):
        plan, _ = self.compile(self.model, LOSS + EWC + "parallel: {data: 2}\n", "two")
        alone, _ = self.compile(self.model, LOSS + EWC + "accumulate: {count: 2, as_ranks: 2}\n", "alone")
        ends = []
        for subject in (plan, alone):
            self.run_folder = self.dir / subject.stem
            self.train(subject, 2)
            self.run_sluice("consolidate", subject, *self.data, "--checkpoint", self.run_folder)
            self.train(subject, 4, "--resume")
            ends.append(read_safetensors(newest_checkpoint(self.run_folder)))
        for name in ends[0]:
            np.testing.assert_array_equal(ends[0][name], ends[1][name], name)


class Refusals(ContinualTest):
    def expect(self, spec, *texts):
        _, errors = self.compile(self.model, LOSS + spec, "bad", code=1)
        for text in texts:
            self.assertIn(text, errors)

    def test_specs_that_say_too_little_or_too_much(self):
        self.expect("continual: {ewc: {lambda: 1, online: {}}}\n", "'continual.ewc.online' has no 'gamma'")
        self.expect("continual: {ewc: {}}\n", "'continual.ewc' has no 'lambda'")
        self.expect("continual: {ewc: {lambda: 1, gama: 1}}\n", "unknown key 'continual.ewc.gama'")
        self.expect("continual: {ewc: {lambda: 1, refresh: 0.1}}\n", "needs 'online: {gamma: G}'")
        self.expect("continual: {ewc: {lambda: 1}, si: {c: 1}}\n", "give one")
        self.expect("continual: {ewc: {lambda: 1, fisher: {storage: int4}}}\n", "expected one of bf16, fp32, fp16, int8")
        self.expect("continual: {ewc: {lambda: 1}}\nparallel: {data: 2, zero: 1}\n", "not yet supported with 'parallel.zero'")

    def test_a_checkpoint_without_a_fisher_and_one_of_another_head(self):
        plain, _ = self.compile(self.model, LOSS, "plain")
        self.train(plain, 2)
        before = newest_checkpoint(self.run_folder).read_bytes()
        plan, _ = self.compile(self.model, LOSS + EWC)
        for command in (["consolidate", plan, *self.data, "--checkpoint", self.run_folder],
                        ["train", plan, *self.data, "--steps", 4, "--checkpoint", self.run_folder, "--resume"]):
            _, errors = self.run_sluice(*command, code=1)
            self.assertIn("has no anchors and importances", errors)
        _, errors = self.run_sluice("consolidate", plain, *self.data, "--checkpoint", self.run_folder, code=1)
        self.assertIn("the plan holds no parameters at anchors", errors)
        self.assertEqual(newest_checkpoint(self.run_folder).read_bytes(), before)


if __name__ == "__main__":
    unittest.main()
