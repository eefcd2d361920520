"""Streams of tasks: replay, resume in the middle, the gate, what is refused."""
import ctypes
import json
import signal
import subprocess
import threading
import time
import unittest

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from capi import Session, StepResult
from harness import SLUICE, SluiceTest, newest_checkpoint, read_checkpoint

SPEC = "loss: {kind: cross_entropy, logits: logits, labels: labels}\nseed: 3\nthreads: 1\noptimizer: {kind: sgd, lr: 0.03, momentum: 0.9}\n"
REPLAY = "continual: {replay: {ratio: 0.5, capacity: 64KiB%s}}\n"
DERPP = ", derpp: {alpha: 0.3, beta: 0.5}"
BATCH, FEATURES, CLASSES = 16, 8, 4


def model(path):
    rng = np.random.default_rng(0)
    weights = {"w1": rng.normal(size=(FEATURES, 24)) * 0.3, "b1": np.zeros(24), "w2": rng.normal(size=(24, CLASSES)) * 0.2, "b2": np.zeros(CLASSES)}
    nodes = [helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], name="fc1"), helper.make_node("Relu", ["h"], ["a"], name="relu"),
             helper.make_node("Gemm", ["a", "w2", "b2"], ["logits"], name="fc2")]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [BATCH, FEATURES])],
                              [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [BATCH, CLASSES])],
                              [numpy_helper.from_array(v.astype(np.float32), k) for k, v in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


class TaskTest(SluiceTest):
    """Two classes a task, all of one space: class-incremental."""

    def setUp(self):
        super().setUp()
        model(self.dir / "m.onnx")
        rng = np.random.default_rng(5)
        centres = rng.normal(size=(CLASSES, FEATURES)) * 1.5
        for task in range(2):
            for part, count in (("train", 150), ("test", 80)):
                labels = rng.integers(0, 2, count) + 2 * task
                x = centres[labels] + rng.normal(size=(count, FEATURES)) * 0.5
                self.npy(f"x-{task}-{part}", x.astype(np.float32))
                self.npy(f"y-{task}-{part}", labels.astype(np.int64))
            self.task(task)

    def task(self, index, extra="epochs: 3\n"):
        data = {key: [f"x=npy:{self.dir}/x-{index}-{part}.npy", f"labels=npy:{self.dir}/y-{index}-{part}.npy"]
                for key, part in (("data", "train"), ("eval_data", "test"))}
        path = self.dir / f"task{index}.yaml"
        path.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in data.items()) + extra)
        return path

    def plan(self, extra="", name="m"):
        return self.compile(self.dir / "m.onnx", SPEC + extra, name)

    def stream(self, plan, folder, *more, code=0):
        tasks = f"{self.dir}/task0.yaml,{self.dir}/task1.yaml"
        return self.run_sluice("train", plan, "--tasks", tasks, "--checkpoint", self.dir / folder, *more, code=code)

    def state(self, folder):
        return {key: tensor.tobytes() for key, tensor in read_checkpoint(newest_checkpoint(self.dir / folder)).items()}


class Tasks(TaskTest):
    def test_replay_keeps_what_fine_tuning_forgets(self):
        plain, _ = self.stream(self.plan()[0], "plain")
        self.assertGreater(plain["matrix"][0][0], 0.9)
        self.assertLess(plain["matrix"][1][0], 0.5)
        self.assertAlmostEqual(plain["forgetting"], plain["matrix"][0][0] - plain["matrix"][1][0])
        self.assertAlmostEqual(plain["backward_transfer"], -plain["forgetting"])
        self.assertAlmostEqual(plain["acc"], sum(plain["matrix"][1]) / 2)
        for name, extra in (("er", ""), ("balanced", ", policy: balanced"), ("prioritized", ", policy: prioritized"), ("derpp", DERPP)):
            with self.subTest(name):
                plan, report = self.plan(REPLAY % extra, name)
                self.assertIn("replay: 8 of 16 samples of a micro-batch are of tasks before", "\n".join(report["notes"]))
                out, _ = self.stream(plan, name)
                self.assertGreater(out["acc"], 0.9, out["matrix"])
                kept = out["tasks"][0]["replay"]
                self.assertEqual(kept["samples"], min(150, kept["capacity"]))
                self.assertEqual(out["tasks"][1]["replay"]["seen"], 300)
        self.assertIn("<svg", (self.dir / "er" / "tasks-matrix.svg").read_text())
        self.assertIn("<polyline", (self.dir / "er" / "tasks-curves.svg").read_text())
        self.assertEqual(json.loads((self.dir / "er" / "tasks.json").read_text())["metric"], "accuracy")

    def test_memory_decisions_change_nothing(self):
        plan, report = self.plan(REPLAY % DERPP, "kept")
        self.assertEqual(report["arena"]["host"], 64 << 10)
        self.stream(plan, "kept")
        small, less = self.plan(REPLAY % DERPP + "memory: {recompute: {every: 1}}\n", "recomputed")
        self.assertRegex("\n".join(less["notes"]), r"recompute: \d+ runs more")
        self.stream(small, "recomputed")
        self.assertEqual(self.state("kept"), self.state("recomputed"))

    def test_ends_of_tasks_consolidate(self):
        plan, _ = self.plan("continual: {ewc: {lambda: 1, online: {gamma: 0.9}}, replay: {ratio: 0.25, derpp: {}}}\n", "both")
        out, _ = self.stream(plan, "both")
        self.assertEqual([task["consolidated"]["samples"] for task in out["tasks"]], [150, 150])
        self.assertEqual(read_checkpoint(newest_checkpoint(self.dir / "both"))["ewc/tasks"].item(), 2)

    def test_a_killed_stream_goes_on_bit_for_bit(self):
        plan, _ = self.plan(REPLAY % DERPP, "derpp")
        whole, _ = self.stream(plan, "whole", "--checkpoint-every", 3)
        command = [SLUICE, "train", str(plan), "--tasks", f"{self.dir}/task0.yaml,{self.dir}/task1.yaml", "--checkpoint",
                   str(self.dir / "parts"), "--checkpoint-every", "3", "--resume", "--json"]
        for marker in ("task-0001/step-00000003", "task-0002"):
            running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while running.poll() is None and not list((self.dir / "parts").glob(marker + "*")):
                time.sleep(0.001)
            running.send_signal(signal.SIGKILL)
            running.wait()
        out, _ = self.stream(plan, "parts", "--checkpoint-every", 3, "--resume")
        self.assertEqual(out["matrix"], whole["matrix"])
        self.assertEqual(self.state("parts"), self.state("whole"))
        replays = [sorted((self.dir / folder).glob("replay-*.bin")) for folder in ("parts", "whole")]
        self.assertEqual([len(files) for files in replays], [1, 1])
        self.assertEqual(replays[0][0].read_bytes(), replays[1][0].read_bytes())

    def test_a_month_is_added_behind(self):
        plan, _ = self.plan(REPLAY % "", "er")
        whole, _ = self.stream(plan, "whole")
        self.run_sluice("train", plan, "--tasks", self.dir / "task0.yaml", "--checkpoint", self.dir / "parts")
        out, _ = self.stream(plan, "parts", "--resume")
        self.assertEqual(out["matrix"], whole["matrix"])
        self.assertEqual(self.state("parts"), self.state("whole"))

    def test_the_gate_brings_the_old_weights_back(self):
        plan, _ = self.plan()
        self.run_sluice("train", plan, "--tasks", self.dir / "task0.yaml", "--checkpoint", self.dir / "first")
        self.task(1, "epochs: 3\naccept_if: forgetting <= 0.1\n")
        out, _ = self.stream(plan, "gated")
        self.assertFalse(out["tasks"][1]["accepted"])
        self.assertGreater(out["tasks"][1]["gate"]["value"], 0.1)
        self.assertEqual(out["matrix"][1], out["matrix"][0])
        self.assertEqual(self.state("gated"), self.state("first"))
        self.task(1, "epochs: 3\naccept_if: accuracy >= previous + 0.2\n")
        out, _ = self.stream(plan, "let-through")
        self.assertTrue(out["tasks"][1]["accepted"])
        self.assertEqual(out["tasks"][1]["gate"]["previous"], out["matrix"][0][1])
        self.assertNotEqual(self.state("let-through"), self.state("first"))

    def test_what_is_wrong_is_named_and_changes_nothing(self):
        plan, _ = self.plan()
        _, errors = self.run_sluice("train", plan, "--tasks", self.dir / "none.yaml", "--checkpoint", self.dir / "a", code=1)
        self.assertIn("cannot read the task", errors)
        self.task(1, "epochs: 1\naccept_if: accuracy about 3\n")
        _, errors = self.stream(plan, "a", code=1)
        self.assertIn("expected such as 'accuracy >= previous - 0.01'", errors)
        self.task(1, "epochs: 1\naccept_if: f1 > 0.5\n")
        _, errors = self.stream(plan, "a", code=1)
        self.assertIn("the evaluation has no figure 'f1'", errors)
        self.task(1, "epochs: 1\nlessons: 3\n")
        _, errors = self.stream(plan, "a", code=1)
        self.assertIn("unknown key 'lessons'", errors)
        self.assertFalse((self.dir / "a").exists())
        self.task(1, "epochs: 1\n")
        self.stream(plan, "a")
        before = self.state("a")
        _, errors = self.run_sluice("train", plan, "--tasks", self.dir / "task1.yaml", "--checkpoint", self.dir / "a", "--resume", code=1)
        self.assertIn("unknown task 'task1' in place 1 of --tasks: 'task0' was learned there", errors)
        _, errors = self.stream(plan, "a", code=1)
        self.assertIn("--resume goes on with it", errors)
        _, errors = self.run_sluice("train", plan, "--data", "x=npy:none.npy", "--steps", 3, "--checkpoint", self.dir / "a", "--resume", code=1)
        self.assertIn("is the folder of a sequence of tasks", errors)
        _, errors = self.run_sluice("consolidate", plan, "--data", "x=npy:none.npy", "--checkpoint", self.dir / "a", code=1)
        self.assertIn("each of which 'train --tasks' has consolidated at its end", errors)
        self.assertEqual(self.state("a"), before)
        for more in (["--gradients", "g.jsonl"], ["--task", "x"], ["--grow-head"]):
            _, errors = self.stream(plan, "b", *more, code=2)
            self.assertIn(f"{more[0]} is not yet supported with --tasks", errors)
        self.task(1, "epochs: 0\n")
        _, errors = self.stream(plan, "b", code=1)
        self.assertIn("give 'epochs' or 'steps', and more than 0", errors)
        self.assertEqual(self.state("a"), before)

    def test_a_buffer_that_no_machine_has_is_refused(self):
        plan, _ = self.plan("continual: {replay: {capacity: 1000000GiB}}\n", "huge")
        _, errors = self.stream(plan, "huge", code=3)
        self.assertIn("bytes of host memory, which cannot be had", errors)

    def test_specs_that_cannot_be_had_are_refused(self):
        for extra, text in (("ratio: 1.5", "ratio"), ("policy: newest", "policy"), ("capacity: 3 apples", "capacity"),
                            ("alpha: 0.5", "has a meaning for the policy 'prioritized' alone")):
            _, errors = self.compile(self.dir / "m.onnx", SPEC + "continual: {replay: {%s}}\n" % extra, "bad", code=1)
            self.assertIn(text, errors)

    def test_training_without_tasks_has_nothing_to_replay(self):
        plan, _ = self.plan(REPLAY % DERPP, "derpp")
        plain, _ = self.plan("", "plain")
        data = ["--data", f"x=npy:{self.dir}/x-0-train.npy", "--data", f"labels=npy:{self.dir}/y-0-train.npy", "--epochs", 1, "--losses"]
        with_replay, _ = self.run_sluice("train", plan, *data)
        without, _ = self.run_sluice("train", plain, *data)
        np.testing.assert_allclose(with_replay["losses"], without["losses"], rtol=2e-6)


class Host(TaskTest):
    """The same from a host program, through the C API."""

    def session(self, plan):
        opened = Session(plan)
        self.addCleanup(opened.close)
        return opened

    def arrays(self, task, first, count):
        return [np.load(self.dir / f"{name}-{task}-train.npy")[first : first + count] for name in "xy"]

    def replay(self, session, folder):
        handle = ctypes.c_void_p()
        session._check(session.lib.sluice_replay_open(session.session, folder and str(folder).encode(), ctypes.byref(handle)))
        for name in ("samples", "seen", "class_samples"):
            getattr(session.lib, "sluice_replay_" + name).restype = ctypes.c_int64
        return handle

    def call(self, session, function, *arguments, arrays):
        arrays = [np.ascontiguousarray(a) for a in arrays]
        pointers = (ctypes.c_void_p * len(arrays))(*[a.ctypes.data for a in arrays])
        tail = [ctypes.c_int64(len(arrays[0]))]
        session._check(function(*arguments, pointers, ctypes.c_size_t(len(arrays)), *tail, *self.last))

    def add(self, session, replay, arrays, task):
        self.last = [ctypes.c_int64(task)]
        self.call(session, session.lib.sluice_replay_add, replay, session.session, arrays=arrays)

    def step(self, session, replay, arrays, label=None):
        result = StepResult()
        self.last = [ctypes.byref(result)]
        if label is None:
            self.call(session, session.lib.sluice_session_step_replay, session.session, replay, arrays=arrays)
        else:
            self.call(session, session.lib.sluice_session_step_replay_class, session.session, replay, ctypes.c_int64(label), arrays=arrays)
        return result.loss_sum / result.loss_count

    def test_the_loss_is_that_of_der(self):
        rng = np.random.default_rng(2)
        for kind, spec in (("cross_entropy", SPEC), ("mse", SPEC.replace("cross_entropy", "mse"))):
            with self.subTest(kind):
                plan, _ = self.compile(self.dir / "m.onnx", spec + REPLAY % DERPP, kind)
                session = self.session(plan)
                count = 13 # the rest is padding
                x, labels = self.arrays(0, 0, count)
                weight, match = rng.uniform(size=(2, count)).astype(np.float32)
                kept = rng.normal(size=(count, CLASSES)).astype(np.float32)
                session.infer(x)
                z = session.output("logits").astype(np.float64)
                if kind == "mse":
                    labels = rng.normal(size=(count, CLASSES)).astype(np.float32)
                    each, per_sample = ((z - labels) ** 2).sum(1), CLASSES
                else:
                    each, per_sample = np.log(np.exp(z).sum(1)) - z[np.arange(count), labels], 1
                expected = (weight * each).sum() + (match * ((z - kept) ** 2).mean(1)).sum()
                result = session.step(x, labels, weight, match, kept)
                self.assertEqual(result.loss_count, count * per_sample)
                self.assertAlmostEqual(result.loss_sum, expected, delta=1e-5 * abs(expected))

    def test_a_service_keeps_samples_over_a_restart(self):
        plan, _ = self.plan(REPLAY % DERPP, "derpp")
        session = self.session(plan)
        replay = self.replay(session, self.dir / "kept")
        with self.assertRaisesRegex(RuntimeError, "the replay buffer is empty"):
            self.step(session, replay, self.arrays(0, 0, 8))
        for first in range(0, 96, 16):
            self.add(session, replay, self.arrays(0, first, 16), task=0)
        self.assertEqual(session.lib.sluice_replay_samples(replay), 96)
        labels = self.arrays(0, 0, 96)[1]
        self.assertEqual([session.lib.sluice_replay_class_samples(replay, ctypes.c_int64(c)) for c in range(3)],
                         [int((labels == 0).sum()), int((labels == 1).sum()), 0])
        with self.assertRaisesRegex(RuntimeError, "1 to 8 new samples, 9 are given"):
            self.step(session, replay, self.arrays(1, 0, 9))
        weights = session.read_parameter("w1", (FEATURES, 24))
        with self.assertRaisesRegex(RuntimeError, "the replay buffer has no sample of class 3"):
            self.step(session, replay, self.arrays(1, 0, 8), label=3)
        np.testing.assert_array_equal(session.read_parameter("w1", (FEATURES, 24)), weights)
        again = self.session(plan)
        reopened = self.replay(again, self.dir / "kept")
        self.assertEqual(again.lib.sluice_replay_seen(reopened), 96)
        losses = [[self.step(s, r, self.arrays(1, first, 8)) for first in range(0, 80, 8)] for s, r in ((session, replay), (again, reopened))]
        self.assertEqual(*losses)
        self.assertLess(losses[0][-1], losses[0][0])
        self.assertTrue(np.isfinite(self.step(session, replay, self.arrays(1, 80, 8), label=1)))
        for s, r in ((session, replay), (again, reopened)):
            s.lib.sluice_replay_free(r)

    def test_a_reader_sees_whole_states_while_another_thread_learns(self):
        plan, _ = self.plan()
        learner, reader = self.session(plan), self.session(plan)
        snapshot = ctypes.c_void_p()
        learner._plain(learner.lib.sluice_snapshot_create(learner.plan, ctypes.byref(snapshot)))
        with self.assertRaisesRegex(RuntimeError, "the snapshot is empty"):
            reader._check(reader.lib.sluice_snapshot_apply(snapshot, reader.session))
        shapes = {"w1": (FEATURES, 24), "w2": (24, CLASSES), "b2": (CLASSES,)}
        weights = lambda session: b"".join(session.read_parameter(name, shape).tobytes() for name, shape in shapes.items())
        known, seen, ends = {weights(learner)}, [], threading.Event()
        learner._check(learner.lib.sluice_snapshot_take(snapshot, learner.session))

        def read():
            while not ends.is_set() or not seen:
                reader._check(reader.lib.sluice_snapshot_apply(snapshot, reader.session))
                reader.infer(self.arrays(0, 0, BATCH)[0])
                seen.append(weights(reader))

        thread = threading.Thread(target=read)
        thread.start()
        for turn in range(60):
            learner.step(*self.arrays(turn % 2, turn, BATCH))
            known.add(weights(learner))
            learner._check(learner.lib.sluice_snapshot_take(snapshot, learner.session))
        ends.set()
        thread.join()
        self.assertTrue(set(seen) <= known)
        self.assertEqual(len(known), 61)
        reader._check(reader.lib.sluice_snapshot_apply(snapshot, reader.session))
        self.assertEqual(weights(reader), weights(learner))
        learner.lib.sluice_snapshot_free(snapshot)


if __name__ == "__main__":
    unittest.main()
