"""The arena of every plan against the most that is live together: placement loses at most 1% on any of our models, and on most nothing."""
import pathlib
import re
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "zoo"), str(HERE.parent / "cli")]
import test_shared  # noqa: E402
import test_zoo  # noqa: E402
from harness import ROOT, SHARED, SLUICE, SluiceTest, needs_shared  # noqa: E402

LABELLED = "loss: {kind: cross_entropy, logits: logits, labels: labels}\n"


class Placement(SluiceTest):
    def check_placement(self, model, spec, *options, most=1.01):
        """The peak over the largest sum of live bytes, for each entry of the plan."""
        path = self.dir / "placed.yaml"
        path.write_text(spec)
        command = [SLUICE, "compile", model, "--spec", path, *options, "--stop-after", "plan", "-o", self.dir / "placed.plan"]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        programs = [line for line in done.stdout.splitlines() if line.lstrip().startswith("plan.program @")]
        self.assertTrue(programs, done.stdout[:500])
        for line in programs:
            entry = re.search(r"@(\w+)", line)[1]
            peak, bound = (int(match[1]) if (match := re.search(rf"\b{key} = (\d+)", line)) else 0 for key in ("step_bytes", "bound_bytes"))
            self.assertGreaterEqual(peak, bound)
            self.assertLessEqual(peak, bound * most, f"{model} {entry}")

    def spec(self, name):
        return LABELLED + ("shapes: {batch: 4}\n" if name.startswith("memory/") else "")

    def test_examples(self):
        for name in ("char-decoder/char-decoder", "fashion-mnist/fashion-cnn"):
            model = ROOT / "examples" / f"{name}.onnx"
            self.check_placement(model, model.with_name("train.yaml").read_text())

    @needs_shared("models")
    def test_thousands_of_buffers(self):
        model = SHARED / "models" / "onnx-light" / "light_densenet121.onnx"
        spec = "loss: {kind: mse, logits: fc6_1, labels: target}\noptimizer: {kind: sgd}\nclip: {kind: global_norm, max: 1.0}\n"
        self.check_placement(model, spec, most=1.005)

    def test_small_models(self):
        for name in ("small-cnn", "small-decoder", "memory/dropout-decoder", "memory/mlp"):
            for more in ("", "accumulate: 2\n", "clip: {kind: global_norm, max: 1.0}\n"):
                self.check_placement(HERE / f"{name}.onnx", self.spec(name) + more)

    def test_recomputed(self):
        for name in ("small-cnn", "small-decoder", "memory/dropout-decoder"):
            for policy in ("sqrt", "{every: 1}", "{every: 2}"):
                self.check_placement(HERE / f"{name}.onnx", self.spec(name) + f"memory: {{recompute: {policy}}}\n")


class Zoo(Placement):
    def check(self, name, loss=test_zoo.CROSS_ENTROPY, shapes="", folded=None):
        self.check_placement(test_zoo.HERE / f"{name}.onnx", shapes + loss + test_zoo.OPTIMIZER)


for method in dir(test_zoo.Zoo):
    if method.startswith("test_"):
        setattr(Zoo, method, getattr(test_zoo.Zoo, method))
for method in ("test_examples", "test_thousands_of_buffers", "test_small_models", "test_recomputed"):
    setattr(Zoo, method, None)


@needs_shared("models")
class Shared(SluiceTest):
    check_placement = Placement.check_placement

    def test_models(self):
        for name, (lines, output) in {**test_shared.TRAINED, **test_shared.COMPILED}.items():
            with self.subTest(name):
                loss = f"loss: {{kind: mse, logits: '{output}', labels: target}}\n" if output else "loss: {kind: output, name: 'onnx::loss::2'}\n"
                self.check_placement(test_shared.SHARED / "models" / name, lines + loss + "optimizer: {kind: sgd, lr: 1.0e-4}\n")


if __name__ == "__main__":
    unittest.main()
