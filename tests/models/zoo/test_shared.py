"""Every file of the shared models: it trains, or only infers, or is refused for the reason written here."""
import pathlib
import sys
import unittest

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "cli"))
from harness import SHARED, SluiceTest, needs_shared  # noqa: E402

EEG = "shapes: {batch_size: 1}\n"
SPEECH = "shapes: {input: [1, 576], state: [2, 1, 128]}\n"
SPEECH_16K = SPEECH + "values: {sr: 16000}\n"

# Model: (first lines of the spec, the output that is trained towards random numbers).
TRAINED = {
    "basic-pitch/nmp.onnx": ("shapes: {unk__749: 1}\n", "StatefulPartitionedCall:1"),
    "burn-onnx/external_data.onnx": ("", "Y"),
    "burn-onnx/mixed_data.onnx": ("", "Y"),
    "burn-onnx/mnist.onnx": ("", "33"),
    "byte-bilstm/model.onnx": ("shapes: {batch: 2, length: 12}\n", "output"),
    "magika/magika_fast_v2_1.onnx": ("shapes: {unk__132: 2}\n", "target_label"),
    "magika/magika_standard_v3_3.onnx": ("shapes: {unk__214: 2}\n", "target_label"),
    "onnx-light/light_bvlc_alexnet.onnx": ("", "prob_1"),
    "onnx-light/light_densenet121.onnx": ("", "fc6_1"),
    "onnx-light/light_inception_v1.onnx": ("", "prob_1"),
    "onnx-light/light_inception_v2.onnx": ("", "prob_1"),
    "onnx-light/light_resnet50.onnx": ("", "gpu_0/softmax_1"),
    "onnx-light/light_shufflenet.onnx": ("", "gpu_0/softmax_1"),
    "onnx-light/light_squeezenet.onnx": ("", "softmaxout_1"),
    "onnx-light/light_zfnet512.onnx": ("", "gpu_0/softmax_1"),
    "onnxruntime-go/example_lora.onnx": ("", "out"),
    "seizureguard/base_pat_02.onnx": (EEG, "output"),
    "seizureguard/base_pat_02_fp32.onnx": (EEG, "output"),
    "seizureguard/eval_model.onnx": (EEG, None),  # holds its loss
    "seizureguard/inference.onnx": (EEG, "output"),
    "silero-vad/silero_vad.onnx": (SPEECH_16K + "promote: ['*__encoder.*', '*__decoder.*']\n", "output"),
    "silero-vad/silero_vad_16k_op15.onnx": (SPEECH_16K, "output"),
    "silero-vad/silero_vad_half.onnx": (SPEECH, "output"),
    "silero-vad/silero_vad_op18_ifless.onnx": (SPEECH_16K, "output"),
    "wonnx/opt-mnist.onnx": ("", "Plus214_Output_0"),
}
# Compiled for training, not run: 1.2 GB of parameters and gradients.
COMPILED = {"onnx-light/light_vgg19.onnx": ("", "prob_1")}
# No parameters, or a file of unrelated nodes.
INFERRED = {
    "burn-onnx/disconnected_subgraphs.onnx": "",
    "burn-onnx/edge_cases.onnx": "",
    "burn-onnx/opset_01.onnx": "",
    "burn-onnx/opset_11.onnx": "",
    "burn-onnx/opset_22.onnx": "",
    "burn-onnx/very_long_names.onnx": "",
    "onnxruntime-go/example_big_fanout.onnx": "",
}
REFUSED = {
    "burn-onnx/nested_if_loop_if_scan.onnx": ("", ["'Loop' (node 'Loop_loop_result'): the trip count 'iterations' depends on data"]),
    "burn-onnx/opset_13.onnx": ("", ["'NonZero' (node 'nonzero_node'): the number of elements that are not zero depends on data"]),
    "burn-onnx/opset_24.onnx": ("", ["uses opset 24, newer than the newest known, 23"]),
    "onnxruntime-go/example_0_dim_output.onnx": ("", ["'Expand' (node '/Expand'): operand 1 ('/Where_output_0') depends on data"]),
    "onnxruntime-go/sklearn_randomforest.onnx": ("shapes: {X: [1, 4]}\n", ["TreeEnsembleClassifier", "ZipMap"]),
    "seizureguard/optimizer_model.onnx": ("", ["input 'params' is no tensor", "AdamWOptimizer"]),
    "seizureguard/training_model.onnx": (EEG, ["SoftmaxCrossEntropyLossGrad", "ConvGrad", "InPlaceAccumulatorV2", "give the forward or the eval model"]),
}
TOO_LARGE = ["onnxruntime-go/example_big_compute.onnx"]  # two tensors of 200 MB, for nothing new

TYPES = {"f32": np.float32, "f64": np.float64, "i64": np.int64, "i32": np.int32, "i8": np.int8, "u8": np.uint8, "i1": np.bool_}


def spec_of(lines, output):
    # Clipped: some of these files hold weights that nobody has trained.
    loss = f"loss: {{kind: mse, logits: '{output}', labels: target}}\n" if output else "loss: {kind: output, name: 'onnx::loss::2'}\n"
    return lines + loss + "optimizer: {kind: sgd, lr: 1.0e-4}\nclip: {kind: global_norm, max: 1.0}\n"


@needs_shared("models")
class Shared(SluiceTest):
    def setUp(self):
        super().setUp()
        self.random = np.random.default_rng(1)

    def path(self, name):
        return SHARED / "models" / name

    def compiled(self, name, lines, output):
        return self.compile(self.path(name), spec_of(lines, output))[0]

    def ports(self, name, lines):
        spec = self.dir / "import.yaml"
        spec.write_text(lines)
        info, _ = self.run_sluice("import", self.path(name), "--spec", spec)
        return info["inputs"], {port["name"]: port["shape"] for port in info["outputs"]}

    def data(self, inputs):
        parts = []
        for number, port in enumerate(inputs):
            kind = TYPES[port["type"]]
            integers = not np.issubdtype(kind, np.floating)
            values = self.random.integers(0, 2, port["shape"]) if integers else self.random.random(port["shape"])
            parts += ["--data", f"{port['name']}=npy:{self.npy(f'input{number}', values.astype(kind))}"]
        return parts

    def test_each_file_is_listed(self):
        files = {str(path.relative_to(SHARED / "models")) for path in (SHARED / "models").rglob("*.onnx")}
        self.assertEqual(files, {*TRAINED, *COMPILED, *INFERRED, *REFUSED, *TOO_LARGE})

    def test_two_steps(self):
        for name, (lines, output) in TRAINED.items():
            with self.subTest(name):
                plan = self.compiled(name, lines, output)
                inputs, outputs = self.ports(name, lines)
                data = self.data(inputs)
                if output:
                    target = self.npy("target", self.random.random(outputs[output]).astype(np.float32))
                    data += ["--data", f"target=npy:{target}"]
                out, _ = self.run_sluice("train", plan, *data, "--steps", 2, "--no-shuffle", "--losses")
                self.assertEqual(len(out["losses"]), 2)
                self.assertTrue(np.all(np.isfinite(out["losses"])), out["losses"])
                self.assertEqual(out["allocations_in_steps"], 0)

    def test_large_models_compile(self):
        for name, (lines, output) in COMPILED.items():
            with self.subTest(name):
                self.compiled(name, lines, output)

    def test_inference(self):
        for name, lines in INFERRED.items():
            with self.subTest(name):
                plan, _ = self.compile(self.path(name), lines + "entries: [infer]\n")
                inputs, outputs = self.ports(name, lines)
                out, _ = self.run_sluice("infer", plan, *self.data(inputs), "-o", self.dir / "out.npy")
                self.assertEqual({port["name"] for port in out["outputs"]}, set(outputs))

    def test_refusals_name_the_reason(self):
        for name, (lines, reasons) in REFUSED.items():
            with self.subTest(name):
                _, errors = self.compile(self.path(name), lines + "entries: [infer]\n", code=1)
                for reason in reasons:
                    self.assertIn(reason, errors)

    def test_the_exports_of_one_speech_network_agree(self):
        state, sound = self.npy("state", np.zeros((2, 1, 128), np.float32)), self.npy(
            "sound", (self.random.random((1, 576)) - 0.5).astype(np.float32))
        found = []
        for name in ("silero_vad", "silero_vad_16k_op15", "silero_vad_op18_ifless"):
            plan, _ = self.compile(self.path(f"silero-vad/{name}.onnx"), SPEECH_16K + "entries: [infer]\n")
            self.run_sluice("infer", plan, "--data", f"input=npy:{sound}", "--data", f"state=npy:{state}",
                            "-o", self.dir / "out.npy")
            found.append({key: np.load(self.dir / f"out-{key}.npy").ravel() for key in ("output", "stateN")})
        for other in found[1:]:
            for key in ("output", "stateN"):
                np.testing.assert_allclose(other[key], found[0][key], rtol=1e-4, atol=1e-6)


if __name__ == "__main__":
    unittest.main(verbosity=2)
