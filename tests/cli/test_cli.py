"""The command line as a user meets it: results, promises about bits and memory, and what is wrong said well."""
import os
import pathlib
import resource
import struct
import subprocess
import sys
import unittest

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import ROOT, SHARED, SLUICE, SluiceTest, needs_shared, newest_checkpoint, read_safetensors  # noqa: E402

CNN = ROOT / "tests" / "models" / "small-cnn.onnx"
DECODER = ROOT / "tests" / "models" / "small-decoder.onnx"
FASHION = ROOT / "examples" / "fashion-mnist" / "fashion-cnn.onnx"
LOSS = "loss: {kind: cross_entropy, logits: logits, labels: labels}\n"


def small_files():
    """Files may not grow beyond 20,000 bytes: writing fails as on a full disk (SIGXFSZ stays ignored)."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))


class WithData(SluiceTest):
    """Forty random images and labels; the batch of the CNN is 8."""

    def setUp(self):
        super().setUp()
        random = np.random.default_rng(5)
        self.images = random.random((40, 1, 28, 28), np.float32)
        self.labels = random.integers(0, 10, 40)
        self.data = ["--data", f"images=npy:{self.npy('images', self.images)}", "--data", f"labels=npy:{self.npy('labels', self.labels)}"]

    def final_state(self, plan, run, *options, steps=7):
        folder = self.dir / run
        self.run_sluice("train", plan, *self.data, "--steps", steps, "--checkpoint", folder, *options)
        return read_safetensors(newest_checkpoint(folder))

    def assertSameBits(self, a, b):
        self.assertEqual(sorted(a), sorted(b))
        for name in a:
            self.assertEqual(a[name].tobytes(), b[name].tobytes(), name)


class Bits(WithData):
    SPEC = LOSS + "seed: 3\noptimizer: {kind: adamw, lr: 1.0e-2}\nclip: {kind: global_norm, max: 1.0}\nshapes: {batch: 8}\n"

    def test_any_number_of_threads_gives_the_same_bits(self):
        plan, _ = self.compile(FASHION, self.SPEC, "plan", "--threads", 3)
        one = self.final_state(plan, "one", "--threads", 1)
        self.assertSameBits(one, self.final_state(plan, "two", "--threads", 2))
        self.assertSameBits(one, self.final_state(plan, "three", "--threads", 3))

    def test_planned_threads_do_not_change_bits(self):
        one, _ = self.compile(FASHION, self.SPEC, "one", "--threads", 1)
        two, _ = self.compile(FASHION, self.SPEC, "two", "--threads", 2)
        self.assertSameBits(self.final_state(one, "a"), self.final_state(two, "b"))

    def test_fusion_does_not_change_bits(self):
        fused, a = self.compile(FASHION, self.SPEC, "fused")
        split, b = self.compile(FASHION, self.SPEC, "split", "--no-fuse")
        self.assertLess(a["step_bytes"], b["step_bytes"])
        self.assertSameBits(self.final_state(fused, "a"), self.final_state(split, "b"))

    def test_both_feature_levels_give_the_same_bits(self):
        plan, _ = self.compile(FASHION, self.SPEC)
        if "avx512f" not in pathlib.Path("/proc/cpuinfo").read_text():
            self.skipTest("this processor has no AVX-512")
        self.assertSameBits(self.final_state(plan, "a", "--level", "x86-64-v3"), self.final_state(plan, "b", "--level", "x86-64-v4"))

    def test_resume_at_any_step_gives_the_same_bits(self):
        plan, _ = self.compile(FASHION, self.SPEC)
        whole = self.final_state(plan, "whole", steps=8)
        for stop in range(1, 8):
            run = f"stop{stop}"
            self.final_state(plan, run, steps=stop)
            self.assertSameBits(whole, self.final_state(plan, run, "--resume", steps=8))

    def test_compiling_twice_gives_the_same_bytes(self):
        a, _ = self.compile(FASHION, self.SPEC, "a")
        b, _ = self.compile(FASHION, self.SPEC, "b")
        self.assertEqual(a.read_bytes(), b.read_bytes())
        self.assertEqual(a.with_suffix(".safetensors").read_bytes(), b.with_suffix(".safetensors").read_bytes())

    def test_training_twice_gives_the_same_bits_and_another_seed_others(self):
        plan, _ = self.compile(FASHION, self.SPEC)
        a = self.final_state(plan, "a")
        self.assertSameBits(a, self.final_state(plan, "b"))
        other, _ = self.compile(FASHION, self.SPEC.replace("seed: 3", "seed: 4"), "other")
        c = self.final_state(other, "c")
        self.assertNotEqual(a["param/fc1.weight"].tobytes(), c["param/fc1.weight"].tobytes())


class Memory(WithData):
    def test_the_bytes_touched_are_the_bytes_stated(self):
        plan, report = self.compile(FASHION, LOSS + "shapes: {batch: 8}\n")
        out, _ = self.run_sluice("train", plan, *self.data, "--steps", 3, "--measure")
        self.assertEqual(report["arena_bytes"], report["state_bytes"] + report["step_bytes"])
        self.assertLessEqual(out["arena_bytes_measured"], report["arena_bytes"])
        # The last buffer may end in padding to its alignment.
        self.assertGreater(out["arena_bytes_measured"], report["arena_bytes"] - 64)
        self.assertEqual(out["allocations_in_steps"], 0)

    def test_categories_add_up_to_the_peak(self):
        _, report = self.compile(FASHION, LOSS + "shapes: {batch: 8}\n")
        self.assertEqual(sum(report["arena"].values()), report["arena_bytes"])
        self.assertEqual(report["arena"]["parameters"] % 64, 0)

    def test_resident_size_is_flat_over_many_steps(self):
        plan, _ = self.compile(CNN, LOSS)
        few, _ = self.run_sluice("train", plan, *self.data, "--steps", 100)
        many, _ = self.run_sluice("train", plan, *self.data, "--steps", 10000)
        # The process's own pages: how much of the program's file is resident is the kernel's choice. A kibibyte lost per
        # step would be 10 MB; the allowance is for small pages that the kernel joins to huge ones.
        self.assertGreater(few["anonymous_bytes"], 0)
        self.assertLess(many["anonymous_bytes"] - few["anonymous_bytes"], 8 << 20)

    def test_a_budget_below_the_need_is_refused_with_the_smallest_that_can(self):
        spec = LOSS + "shapes: {batch: 8}\nmemory: {recompute: none}\n"
        _, report = self.compile(FASHION, spec)
        need = report["arena_bytes"]
        errors = self.compile(FASHION, spec, "small", "--memory", need - 1, code=3)[1]
        self.assertIn(str(need), errors)
        self.assertFalse((self.dir / "small.plan").exists())
        self.compile(FASHION, spec, "fits", "--memory", need)

    @needs_shared("models", "onnxruntime-go", "example_0_dim_output.onnx")
    def test_a_shape_that_depends_on_data_is_refused_by_name(self):
        model = SHARED / "models" / "onnxruntime-go" / "example_0_dim_output.onnx"
        _, errors = self.run_sluice("import", model, "--shape", "x=2x8", code=1)
        self.assertIn("'Expand'", errors)
        self.assertIn("depends on data", errors)
        # With the values of x known, every shape is: [2, 0, 8], so nothing needs a byte.
        values = "values: {x: [" + ", ".join(["0"] * 16) + "]}\n"
        plan, report = self.compile(model, "shapes: {x: [2, 8]}\nentries: [infer]\n" + values)
        self.assertEqual(report["arena_bytes"], 0)
        # No input is left to give data for.
        self.run_sluice("infer", plan, "-o", self.dir / "out.npy")
        self.assertEqual(np.load(self.dir / "out.npy").shape, (2, 0, 8))

    def test_tensors_without_elements(self):
        from onnx import TensorProto, helper

        tensor = helper.make_tensor_value_info
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"]),
             helper.make_node("ReduceSum", ["y"], ["s"], keepdims=0), helper.make_node("Slice", ["y", "a", "a"], ["e"])],
            "empty", [tensor("x", TensorProto.FLOAT, [2, 0])],
            [tensor("y", TensorProto.FLOAT, [2, 3]), tensor("s", TensorProto.FLOAT, []), tensor("e", TensorProto.FLOAT, [0, 3])],
            [helper.make_tensor("w", TensorProto.FLOAT, [0, 3], []), helper.make_tensor("a", TensorProto.INT64, [1], [0])])
        path = self.dir / "empty.onnx"
        path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString())
        plan, _ = self.compile(path, "entries: [infer]\n")
        self.run_sluice("infer", plan, "--data", f"x=npy:{self.npy('x', np.ones((2, 0), np.float32))}", "-o", self.dir / "out.npy")
        self.assertEqual(np.load(self.dir / "out-y.npy").tolist(), [[0, 0, 0], [0, 0, 0]])
        self.assertEqual(np.load(self.dir / "out-s.npy"), 0)
        self.assertEqual(np.load(self.dir / "out-e.npy").shape, (0, 3))


class PartialBatches(WithData):
    def test_the_last_batch_is_padded_and_counted_right(self):
        plan, _ = self.compile(CNN, LOSS)
        full, _ = self.run_sluice("eval", plan, *self.data)
        self.assertEqual(full["count"], 40)
        images, labels = self.npy("i37", self.images[:37]), self.npy("l37", self.labels[:37])
        part, _ = self.run_sluice("eval", plan, "--data", f"images=npy:{images}", "--data", f"labels=npy:{labels}")
        self.assertEqual(part["count"], 37)
        again, _ = self.run_sluice("infer", plan, "--data", f"images=npy:{images}", "-o", self.dir / "y.npy")
        logits = np.load(again["outputs"][0]["path"]).astype(np.float64)
        self.assertEqual(logits.shape, (37, 10))
        shifted = logits - logits.max(1, keepdims=True)
        loss = np.mean(np.log(np.exp(shifted).sum(1)) - shifted[np.arange(37), self.labels[:37]])
        self.assertAlmostEqual(part["loss"], loss, places=5)
        self.assertAlmostEqual(part["accuracy"], np.mean(logits.argmax(1) == self.labels[:37]), places=9)


class Export(WithData):
    def test_weights_go_out_and_back_in(self):
        plan, _ = self.compile(CNN, LOSS)
        state = self.final_state(plan, "run")
        out, _ = self.run_sluice("export", plan, "--checkpoint", self.dir / "run", "-o", self.dir / "w.safetensors")
        weights = read_safetensors(self.dir / "w.safetensors")
        self.assertEqual(weights["fc1.weight"].tobytes(), state["param/fc1.weight"].tobytes())
        trained, _ = self.run_sluice("eval", plan, *self.data, "--checkpoint", self.dir / "run")
        loaded, _ = self.run_sluice("eval", plan, *self.data, "--weights", self.dir / "w.safetensors")
        self.assertEqual(trained["loss"], loaded["loss"])

        self.run_sluice("export", plan, "--checkpoint", self.dir / "run", "--model", CNN, "-o", self.dir / "trained.onnx")
        again, _ = self.compile(self.dir / "trained.onnx", LOSS, "again")
        exported, _ = self.run_sluice("eval", again, *self.data)
        self.assertEqual(trained["loss"], exported["loss"])


class Show(WithData):
    def test_pictures(self):
        plan, _ = self.compile(CNN, LOSS)
        for option, name in [("--graph", "g.svg"), ("--graph", "g.png"), ("--graph", "g.dot"), ("--memory", "m.svg"), ("--trace", "t.json")]:
            self.run_sluice("show", plan, option, self.dir / name)
            self.assertGreater((self.dir / name).stat().st_size, 500, name)
        self.assertIn("peak", (self.dir / "m.svg").read_text())
        spec = self.dir / "model.yaml"
        for stage in ["model", "train", "regions"]:
            self.run_sluice("show", CNN, "--spec", spec, "--stage", stage, "--graph", self.dir / "s.dot")
            self.assertIn("digraph", (self.dir / "s.dot").read_text())
        self.assertIn(".png or .dot", self.run_sluice("show", plan, "--graph", self.dir / "g.gif", code=2)[1])

    def test_timeline_of_a_run(self):
        plan, _ = self.compile(CNN, LOSS)
        self.run_sluice("train", plan, *self.data, "--steps", 2, "--trace", self.dir / "trace.json")
        self.assertIn("traceEvents", (self.dir / "trace.json").read_text())

    def test_explain_names_where_a_tensor_lies(self):
        plan, _ = self.compile(CNN, LOSS + "frozen: ['conv1*']\n")
        out, _ = self.run_sluice("explain", plan, "conv1.weight")
        self.assertIn("frozen", " ".join(d["why"] for d in out["decisions"]))
        self.assertIn("no tensor", self.run_sluice("explain", plan, "nonsense", code=1)[1])

    def test_stop_after_prints_each_stage(self):
        spec = self.dir / "s.yaml"
        spec.write_text(LOSS)
        for stage, word in [("model", "@forward"), ("train", "@step"), ("regions", "graph.region"), ("plan", "plan.program")]:
            done = subprocess.run([SLUICE, "compile", CNN, "--spec", spec, "--stop-after", stage], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(word, done.stdout, stage)


class BadInput(WithData):
    def refuse(self, *arguments, code=1, says=()):
        before = sorted(p.name for p in self.dir.iterdir())
        _, errors = self.run_sluice(*arguments, code=code)
        for word in says:
            self.assertIn(word, errors)
        self.assertEqual(before, sorted(p.name for p in self.dir.iterdir()), "nothing may be left behind")

    def spec(self, text):
        path = self.dir / "spec.yaml"
        path.write_text(text)
        return path

    def test_a_missing_and_a_truncated_model(self):
        out = self.dir / "o.plan"
        self.refuse("compile", self.dir / "none.onnx", "-o", out, says=["none.onnx"])
        cut = self.dir / "cut.onnx"
        cut.write_bytes(CNN.read_bytes()[:5000])
        self.refuse("compile", cut, "-o", out, says=["cut.onnx"])

    def test_an_unbound_dimension_names_the_input_and_the_key(self):
        self.refuse("compile", FASHION, "--spec", self.spec(LOSS), "-o", self.dir / "o.plan", says=["images", "batch", "shapes"])

    def test_spec_errors_have_a_place(self):
        self.refuse("compile", CNN, "--spec", self.spec("los: {}\n"), "-o", self.dir / "o.plan", says=["spec.yaml:1:1", "'loss'"])
        self.refuse("compile", CNN, "--spec", self.spec(LOSS + "frozen: [nothing*]\n"), "-o", self.dir / "o.plan", says=["nothing*"])
        self.refuse("compile", CNN, "--spec", self.spec(LOSS.replace("logits: logits", "logits: logit")), "-o", self.dir / "o.plan", says=["logit", "logits"])
        self.refuse("compile", CNN, "-o", self.dir / "o.plan", says=["loss"])

    def test_an_unwritable_output(self):
        self.refuse("compile", CNN, "--spec", self.spec(LOSS), "-o", self.dir / "no" / "such" / "o.plan", says=["no/such", "No such file"])

    def test_a_label_out_of_range(self):
        plan, _ = self.compile(CNN, LOSS)
        labels = self.labels.copy()
        labels[11] = 10
        bad = self.npy("bad", labels)
        self.refuse("train", plan, *self.data[:2], "--data", f"labels=npy:{bad}", "--steps", 5, "--no-shuffle", code=5, says=["labels", "value is 10", "11 of the data", "0 to 9"])

    def test_data_with_nan(self):
        plan, _ = self.compile(CNN, LOSS)
        images = self.images.copy()
        images[3, 0, 2, 1] = np.nan
        bad = self.npy("bad", images)
        done = subprocess.run([SLUICE, "train", plan, "--data", f"images=npy:{bad}", *self.data[2:], "--steps", "5", "--no-shuffle"], capture_output=True, text=True)
        self.assertIn(done.returncode, (1, 5))
        self.assertIn("images", done.stderr)
        self.assertIn("nan in sample 3", done.stderr)

    def test_data_shorter_than_said(self):
        plan, _ = self.compile(CNN, LOSS)
        path = self.dir / "short.idx"
        path.write_bytes(struct.pack(">IIII", 0x00000803, 40, 28, 28) + bytes(1000))
        self.refuse("train", plan, "--data", f"images=idx:{path}", *self.data[2:], "--steps", 1, code=5, says=["short.idx", "31360", "1000"])

    def test_a_shape_that_does_not_match(self):
        plan, _ = self.compile(CNN, LOSS)
        bad = self.npy("bad", np.zeros((40, 1, 27, 28), np.float32))
        self.refuse("train", plan, "--data", f"images=npy:{bad}", *self.data[2:], "--steps", 1, says=["images", "27", "28"])

    def test_missing_data_and_unknown_inputs(self):
        plan, _ = self.compile(CNN, LOSS)
        self.refuse("train", plan, *self.data[:2], "--steps", 1, says=["labels"])
        self.refuse("train", plan, *self.data, "--data", self.data[1].replace("images=", "imags="), "--steps", 1, says=["imags"])
        self.refuse("train", plan, "--data", "images=npy:gone.npy", *self.data[2:], "--steps", 1, says=["gone.npy"])

    def test_checkpoint_of_another_model(self):
        plan, _ = self.compile(CNN, LOSS)
        other, _ = self.compile(DECODER, LOSS, "other")
        self.final_state(plan, "run", steps=1)
        tokens = self.npy("t", np.zeros((4, 16), np.int64))
        data = ["--data", f"tokens=npy:{tokens}", "--data", f"labels=npy:{tokens}"]
        self.refuse("train", other, *data, "--steps", 2, "--checkpoint", self.dir / "run", "--resume", says=["another model", "tokens.weight"])
        self.assertTrue(newest_checkpoint(self.dir / "run").exists())

    def test_weights_file_gone_and_damaged_plan(self):
        plan, _ = self.compile(CNN, LOSS)
        self.refuse("eval", plan, *self.data, "--weights", self.dir / "gone.safetensors", says=["gone.safetensors"])
        plan.with_suffix(".safetensors").unlink()
        self.refuse("eval", plan, *self.data, code=5, says=["model.safetensors"])
        cut = self.dir / "cut.plan"
        cut.write_bytes(plan.read_bytes()[:-100])
        self.refuse("check", cut, code=5, says=["cut.plan"])

    def test_data_of_the_wrong_type(self):
        plan, _ = self.compile(CNN, LOSS)
        halves = self.npy("halves", self.labels + 0.5)
        self.refuse("train", plan, *self.data[:2], "--data", f"labels=npy:{halves}", "--steps", 1, code=5, says=["halves.npy", "labels", "i64"])
        words = self.npy("words", np.array(["nine"] * 40))
        self.refuse("train", plan, *self.data[:2], "--data", f"labels=npy:{words}", "--steps", 1, says=["words.npy", "U4", "numbers"])
        self.refuse("train", CNN, *self.data, "--steps", 1, says=["small-cnn.onnx", "is no plan"])
        self.refuse("compile", plan, "--spec", self.spec(LOSS), "-o", self.dir / "o.plan", says=["model.plan", "not an ONNX model"])
        self.refuse("compile", CNN, "--spec", self.dir, "-o", self.dir / "o.plan", says=["cannot read the spec"])

    def test_a_plan_for_other_processors(self):
        plan, _ = self.compile(CNN, LOSS)
        raw = bytearray(plan.read_bytes().replace(b"x86-64-v3", b"x86-64-v8").replace(b"x86-64-v4", b"x86-64-v9"))
        checksum = 0xCBF29CE484222325  # FNV-1a of what is behind the header, as runtime/PlanFile.h says
        for byte in raw[32:]:
            checksum = (checksum ^ byte) * 0x100000001B3 & (2**64 - 1)
        raw[24:32] = struct.pack("<Q", checksum)
        plan.write_bytes(raw)
        report, errors = self.run_sluice("check", plan, code=4)
        self.assertFalse(report["ok"])
        for text in (errors, report["reasons"][0]):
            self.assertIn("code for x86-64-v8, x86-64-v9, this runtime runs x86-64-v3 and x86-64-v4", text)
        self.refuse("train", plan, *self.data, "--steps", 1, code=4, says=["x86-64-v9"])

    def test_what_is_no_file_is_not_replaced(self):
        pipe = self.dir / "pipe"
        os.mkfifo(pipe)
        self.refuse("compile", CNN, "--spec", self.spec(LOSS), "-o", pipe, says=["pipe", "is no regular file"])
        self.assertTrue(pipe.is_fifo())

    def test_errors_of_set_name_it(self):
        (self.dir / "model.yaml").write_text("seed: 1\n")
        for setting, words in (("threads=-2", "'threads'"), ("optimizer.kind=sgdd", "'sgdd'"), ("optimiser.kind=sgd", "unknown key 'optimiser'")):
            errors = self.run_sluice("compile", CNN, "--spec", self.dir / "model.yaml", "--set", "seed=3", "--set", setting, "-o", self.dir / "x.plan", code=1)[1]
            self.assertIn(f"--set '{setting}': ", errors)
            self.assertIn(words, errors)

    def test_a_full_disk_keeps_the_old_plan(self):
        plan, _ = self.compile(CNN, LOSS)
        before = {path.name: path.read_bytes() for path in self.dir.iterdir()}
        command = [SLUICE, "compile", CNN, "--spec", self.dir / "model.yaml", "--set", "seed=3", "-o", plan]
        done = subprocess.run(command, capture_output=True, text=True, preexec_fn=small_files, restore_signals=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("File too large", done.stderr)
        self.assertEqual(before, {path.name: path.read_bytes() for path in self.dir.iterdir()})

    def test_usage(self):
        self.assertEqual(subprocess.run([SLUICE, "trai"], capture_output=True).returncode, 2)
        self.assertEqual(subprocess.run([SLUICE], capture_output=True).returncode, 2)
        self.assertEqual(subprocess.run([SLUICE, "--help"], capture_output=True).returncode, 0)
        plan, _ = self.compile(CNN, LOSS)
        for command in (["train"], ["eval"], ["infer", "-o", self.dir / "out.npy"]):
            self.assertIn("--data is required", self.run_sluice(command[0], plan, *command[1:], code=2)[1])

    def test_disk_full_while_saving_keeps_the_old_checkpoint(self):
        plan, _ = self.compile(CNN, LOSS)
        self.final_state(plan, "run", steps=1)
        before = newest_checkpoint(self.dir / "run").read_bytes()
        command = [SLUICE, "train", plan, *self.data, "--steps", "3", "--checkpoint", self.dir / "run", "--resume"]
        done = subprocess.run(command, capture_output=True, text=True, preexec_fn=small_files, restore_signals=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("run", done.stderr)
        self.assertEqual(before, newest_checkpoint(self.dir / "run").read_bytes())


class Import(SluiceTest):
    def test_what_is_in_the_model(self):
        out, _ = self.run_sluice("import", FASHION, "--shape", "batch=4")
        self.assertEqual(out["ops"]["Conv"], 2)
        self.assertEqual(out["inputs"][0]["name"], "images")
        self.assertEqual(out["unsupported"], [])

    @needs_shared("models", "onnxruntime-go", "sklearn_randomforest.onnx")
    def test_a_random_forest_is_not_trainable(self):
        out, errors = self.run_sluice("import", SHARED / "models" / "onnxruntime-go" / "sklearn_randomforest.onnx", code=1)
        self.assertIn("'ai.onnx.ml.TreeEnsembleClassifier' (node 'TreeEnsembleClassifier'): not trainable", errors)
        self.assertIn("ai.onnx.ml.TreeEnsembleClassifier", [u["op"] for u in out["unsupported"]])


if __name__ == "__main__":
    unittest.main(verbosity=2)
