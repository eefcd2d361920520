"""The cases M1 to M4 and M8 to M10 of the shared list: peaks that are known ahead, named, and not larger than they must be."""
import pathlib
import re
import struct
import subprocess
import sys
import unittest

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import ROOT, SHARED, SLUICE, SluiceTest, needs_shared  # noqa: E402

FASHION = ROOT / "examples" / "fashion-mnist" / "fashion-cnn.onnx"
CNN = ROOT / "tests" / "models" / "small-cnn.onnx"
RESNET = ROOT / "tests" / "models" / "zoo" / "resnet18.onnx"
LOSS = "loss: {kind: cross_entropy, logits: logits, labels: labels}\n"


class Training(SluiceTest):
    def images(self, count, classes=10, shape=(1, 28, 28), name="images"):
        random = np.random.default_rng(5)
        images, labels = random.random((count, *shape), np.float32), random.integers(0, classes, count)
        return ["--data", f"{name}=npy:{self.npy('images', images)}", "--data", f"labels=npy:{self.npy('labels', labels)}"]

    def test_m1_one_plan_covers_the_short_last_batch(self):
        plan, report = self.compile(FASHION, LOSS + "shapes: {batch: 256}\n")
        data = self.images(1000)
        out, _ = self.run_sluice("train", plan, *data, "--epochs", 1, "--no-shuffle", "--measure", "--checkpoint", self.dir / "run")
        self.assertEqual(out["steps"], 4)
        self.assertGreater(out["arena_bytes_measured"], report["arena_bytes"] - 64)
        self.assertLessEqual(out["arena_bytes_measured"], report["arena_bytes"])
        judged, _ = self.run_sluice("eval", plan, *data, "--checkpoint", self.dir / "run")
        self.assertEqual(judged["count"], 1000)

    def test_m2_alternating_entries_allocate_nothing(self):
        plan, _ = self.compile(CNN, LOSS)
        data = self.images(16)
        evaluation = [word.replace("--data", "--eval-data") for word in data]
        out, _ = self.run_sluice("train", plan, *data, *evaluation, "--eval-every", 1, "--steps", 50)
        self.assertEqual(out["allocations_in_steps"], 0)

    def test_m3_resnet_takes_what_was_said(self):
        imported, _ = self.run_sluice("import", RESNET)
        shape = imported["inputs"][0]["shape"]
        logits = imported["outputs"][0]["name"]
        spec = f"loss: {{kind: cross_entropy, logits: {logits}, labels: labels}}\n"
        plan, report = self.compile(RESNET, spec)
        data = self.images(2 * shape[0], 4, shape[1:], imported["inputs"][0]["name"])
        out, _ = self.run_sluice("train", plan, *data, "--steps", 2, "--measure")
        self.assertGreater(out["arena_bytes_measured"], report["arena_bytes"] - 64)
        self.assertLessEqual(out["arena_bytes_measured"], report["arena_bytes"])


def save_model(path, nodes, inputs, outputs, initializers=()):
    import onnx
    from onnx import helper, numpy_helper

    value = lambda name, shape: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "case", [value(*i) for i in inputs], [value(*o) for o in outputs],
                              [numpy_helper.from_array(array, name) for name, array in initializers])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


class Made(SluiceTest):
    def test_m4_the_update_is_the_peak_and_needs_no_copy(self):
        from onnx import helper

        random = np.random.default_rng(1)
        weights = [(f"w{i}", random.standard_normal((512, 512), np.float32) * np.float32(0.04)) for i in range(3)]
        nodes = [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}" if i < 2 else "logits"], name=f"layer{i}") for i in range(3)]
        model = save_model(self.dir / "wide.onnx", nodes, [("x0", [2, 512])], [("logits", [2, 512])], weights)
        _, report = self.compile(model, LOSS + "optimizer: {kind: adamw}\n")
        gradient = 4 * 512 * 512
        peak = [note for note in report["notes"] if note.startswith("peak: ")]
        self.assertTrue(peak and peak[0].startswith("peak: update"), peak)
        # A few activations and a tile of one gradient at a time: moments and weights change in place.
        self.assertNotIn("gradients", peak[0])
        self.assertLess(report["step_bytes"], 0.5 * gradient)
        self.assertTrue(any(note.startswith("updates: 3 are applied tile by tile") for note in report["notes"]), report["notes"])
        self.assertEqual(report["arena"]["optimizer"], 2 * 3 * gradient)

    def test_m8_a_large_tiled_constant_is_not_made(self):
        import onnx
        from onnx import helper, numpy_helper

        nodes = [helper.make_node("ConstantOfShape", ["shape"], ["ones"], value=numpy_helper.from_array(np.array([2], np.float32))),
                 helper.make_node("Tile", ["ones", "repeats"], ["tiled"]),
                 helper.make_node("ReduceSum", ["tiled"], ["sum"], keepdims=0),
                 helper.make_node("MatMul", ["x", "w"], ["y"]),
                 helper.make_node("Mul", ["y", "sum"], ["logits"])]
        constants = [("shape", np.array([4096, 4096])), ("repeats", np.array([4, 4])), ("w", np.ones((4, 4), np.float32))]
        model = save_model(self.dir / "tiled.onnx", nodes, [("x", [2, 4])], [("logits", [2, 4])], constants)
        plan, report = self.compile(model, LOSS)
        self.assertLess(plan.stat().st_size, 4 << 20)
        self.assertLess((self.dir / "model.safetensors").stat().st_size, 1 << 16)
        self.assertLess(report["state_bytes"], 1 << 16)


def number(attributes, name):
    """Of a float attribute as MLIR prints it: decimal, or the bits in hexadecimal."""
    text = re.search(rf"{name} = (\S+) : f64", attributes)
    if text is None:
        return 0.0
    return struct.unpack(">d", bytes.fromhex(text[1][2:]))[0] if text[1].startswith("0x") else float(text[1])


class Orders(SluiceTest):
    def infer_only(self, path, *options, code=0):
        return self.compile(path, "entries: [infer]\n", "plan", *options, code=code)

    @needs_shared("models", "onnxruntime-go", "example_big_fanout.onnx")
    def test_m9_fan_out_has_the_least_peak(self):
        model = SHARED / "models" / "onnxruntime-go" / "example_big_fanout.onnx"
        _, report = self.infer_only(model, "--threads", 1)
        # The hundred products write their parts of the concatenation; beside it lie the ports and one product's workspace.
        concatenated, workspace = 100 * 4 * 4, report["arena"]["workspace"]
        self.assertLessEqual(report["step_bytes"], workspace + concatenated + 3 * 64)
        errors = self.infer_only(model, "--memory", report["state_bytes"], code=3)[1]
        self.assertRegex(errors, r"the peak is infer, while '.+' runs: '.+' \(.+, \d+\)")

    @needs_shared("models", "onnxruntime-go", "example_big_compute.onnx")
    def test_m9_large_tensors_are_named(self):
        model = SHARED / "models" / "onnxruntime-go" / "example_big_compute.onnx"
        out, _ = self.run_sluice("fit", model, "--set", "entries=[infer]", "--memory", "1MiB", "--no-search", code=3)
        self.assertFalse(out["fits"])
        self.assertRegex(out["peak"], r"'.+' \(.+, \d{8,}\)")

    @needs_shared("models", "onnx-light", "light_densenet121.onnx")
    def test_m10_no_copies_grow_with_the_square_of_a_block(self):
        model = SHARED / "models" / "onnx-light" / "light_densenet121.onnx"
        blocks = {56 * 56: 6, 28 * 28: 12, 14 * 14: 24, 7 * 7: 16}  # pixels: layers, each with 32 new features
        for batch in (1, 4):
            spec = self.dir / "densenet.yaml"
            spec.write_text(f"shapes: {{data_0: [{batch}, 3, 224, 224]}}\nloss: {{kind: cross_entropy, logits: fc6_1}}\nthreads: 1\n"
                            "optimizer: {kind: sgd, lr: 1.0e-3}\n")
            command = [SLUICE, "compile", model, "--spec", spec, "--stop-after", "plan"]
            text = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True).stdout
            features = 4 * batch * sum(32 * pixels * layers for pixels, layers in blocks.items())
            for program in re.split(r"(?=plan\.program )", text)[1:]:
                launches = re.findall(r'plan\.launch "([^"]+)".*? node "[^"]*".*?attributes \{(.*?)\}', program)
                copies = [number(attributes, "bytes") for label, attributes in launches
                          if label in ("concat", "slice", "pad", "copy", "transpose", "move", "fill")]
                self.assertGreater(len(launches), 100)
                # Once at most each new feature's gradient is read and written; all 58 prefixes are 28 times as much.
                self.assertLessEqual(sum(copies), 2.05 * features, (batch, program[:60]))


if __name__ == "__main__":
    unittest.main()
