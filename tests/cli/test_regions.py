"""`memory.regions`: named regions run again as units with the same bits; wrong names and regions are refused."""
import pathlib
import re
import sys
import unittest

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import ROOT, SluiceTest, newest_checkpoint, read_safetensors  # noqa: E402

DECODER = ROOT / "tests" / "models" / "small-decoder.onnx"
FASHION = ROOT / "examples" / "fashion-mnist" / "fashion-cnn.onnx"
SPEC = "loss: {kind: cross_entropy, logits: logits, labels: labels}\nseed: 3\n"


class Regions(SluiceTest):

    def train(self, plan, data, name):
        folder = self.dir / f"run-{name}"
        out, _ = self.run_sluice("train", plan, *data, "--steps", 5, "--losses", "--checkpoint", folder)
        return out["losses"], {key: tensor.tobytes() for key, tensor in read_safetensors(newest_checkpoint(folder)).items()}

    def check_bits(self, model, spec, data, *memories):
        free, unconstrained = self.compile(model, spec, "free")
        expected = self.train(free, data, "free")
        reports = []
        for i, memory in enumerate(memories):
            plan, report = self.compile(model, spec + f"memory: {{{memory}}}\n", f"regions{i}")
            self.assertRegex(" ".join(report["notes"]), r"recompute: [1-9]\d* runs more than .* by 'regions'")
            self.assertGreater(report["step_us"], unconstrained["step_us"])
            self.assertEqual(self.train(plan, data, f"regions{i}"), expected)
            reports.append(report)
        return unconstrained, reports

    def test_blocks_of_a_decoder_keep_the_bits_and_need_less(self):
        random = np.random.default_rng(6)
        tokens = self.npy("tokens", random.integers(0, 8, (24, 16)))
        data = ["--data", f"tokens=npy:{tokens}", "--data", f"labels=npy:{tokens}"]
        free, (one, both, globs) = self.check_bits(DECODER, SPEC, data, "regions: [blocks.0]", "regions: [blocks.0, blocks.1]",
                                                   "recompute: regions, regions: ['/blocks.0/*', [blocks.1]]")
        self.assertLess(one["arena_bytes"], free["arena_bytes"])
        self.assertLess(both["arena_bytes"], one["arena_bytes"])
        self.assertEqual(globs["arena_bytes"], both["arena_bytes"])

    def test_dropout_and_batch_norm_inside_a_region(self):
        random = np.random.default_rng(5)
        images, labels = random.random((40, 1, 28, 28), np.float32), random.integers(0, 10, 40)
        data = ["--data", f"images=npy:{self.npy('images', images)}", "--data", f"labels=npy:{self.npy('labels', labels)}"]
        self.check_bits(FASHION, SPEC + "shapes: {batch: 8}\n", data, "regions: [['/conv1/Conv', '/bn1/*', '/Relu', '/MaxPool']]", "regions: [[/fc1, '/Relu_2', /dropout]]")

    def refused(self, memory):
        return self.compile(DECODER, SPEC + f"memory: {{{memory}}}\n", "refused", code=1)[1]

    def test_a_name_of_nothing_is_refused_with_the_nearest(self):
        errors = self.refused("regions: [blocks.0, bloks.1]")
        self.assertIn("'memory.regions' has 'bloks.1', which names no node", errors)
        self.assertRegex(errors, r"nearest: '/blocks\.1'")

    def test_a_region_that_is_not_convex_is_refused_with_the_path(self):
        errors = self.refused("regions: [[/blocks.0/ln1, /blocks.0/proj]]")
        path = re.search(r"is not convex: the path (.*) leaves it and comes back", errors)[1]
        nodes = re.findall(r"'([^']*)'", path)
        self.assertEqual(nodes[:2], ["/blocks.0/ln1/LayerNormalization", "/blocks.0/qkv/MatMul"])
        self.assertEqual(nodes[-1], "/blocks.0/proj/MatMul")
        # The residual alone makes both ends of a block convex, and what lies between is named.
        self.assertIn("add the nodes between", errors)

    def test_a_node_in_two_regions_is_refused(self):
        self.assertRegex(self.refused("regions: [blocks.0, '*/ln1/*']"), r"has node '/blocks\.0/ln1/LayerNormalization' in two regions, 'blocks\.0' and")

    def test_regions_beside_another_policy_are_refused(self):
        self.assertIn("'memory.regions' is a policy of its own beside 'memory.recompute: auto'", self.refused("regions: [blocks.0], recompute: auto"))
        self.assertIn("needs 'memory.regions'", self.refused("recompute: regions"))
        self.assertIn("an entry of 'memory.regions' is a map", self.refused("regions: [{name: blocks.0}]"))

    def test_the_keep_mark_wins(self):
        _, free = self.compile(DECODER, SPEC, "free")
        _, kept = self.compile(DECODER, SPEC + "memory: {regions: [blocks.0], keep: ['*']}\n", "kept")
        self.assertAlmostEqual(kept["step_us"], free["step_us"], 6)

    def test_a_budget_that_the_regions_miss_is_refused(self):
        _, report = self.compile(DECODER, SPEC + "memory: {regions: [blocks.0]}\n", "fits")
        memory = f"regions: [blocks.0], budget: {report['arena_bytes'] - 64}"
        errors = self.compile(DECODER, SPEC + f"memory: {{{memory}}}\n", "below", code=3)[1]
        self.assertIn(f"smallest that can be met is {report['arena_bytes']} bytes", errors)
        self.assertIn("'memory.recompute: auto' needs less", errors)


if __name__ == "__main__":
    unittest.main()
