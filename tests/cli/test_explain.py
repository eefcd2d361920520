"""Certificates, reasons for every tensor, and pictures of what the memory decisions did."""
import pathlib
import re
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import ROOT, SluiceTest  # noqa: E402

DECODER = ROOT / "tests" / "models" / "small-decoder.onnx"
SPEC = "loss: {kind: cross_entropy, logits: logits, labels: labels}\nseed: 3\n"
SVG = "{http://www.w3.org/2000/svg}"


class Explain(SluiceTest):

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        maker = cls()
        maker.dir = pathlib.Path(folder.name)
        cls.free, report = maker.compile(DECODER, SPEC, "free")
        cls.budget = int(report["arena_bytes"] * 0.8)
        cls.tight, cls.tight_report = maker.compile(DECODER, SPEC, "tight", "--memory", cls.budget)

    def why(self, plan, tensor, *options):
        return [(d["subject"], d["why"]) for d in self.run_sluice("explain", plan, tensor, *options)[0]["decisions"]]

    def reason(self, plan, tensor, start):
        found = [why for _, why in self.why(plan, tensor) if re.match(start, why)]
        self.assertTrue(found, f"{tensor}: {self.why(plan, tensor)}")
        return found[0]

    # Certificates

    def test_each_entry_states_bytes_time_bounds_and_gaps(self):
        entries = {e["name"]: e for e in self.run_sluice("explain", self.tight)[0]["entries"]}
        self.assertEqual(sorted(entries), ["eval", "infer", "step"])
        self.assertEqual({e["name"]: e for e in self.tight_report["entries"]}, entries)
        step = entries["step"]
        self.assertEqual(step["budget_bytes"], self.budget)
        self.assertEqual(step["state_bytes"] + step["step_bytes"], self.tight_report["arena_bytes"])
        self.assertGreater(step["us"], step["us_bound"])
        for entry in entries.values():
            self.assertLessEqual(entry["state_bytes"] + entry["step_bytes"], self.budget)
            self.assertGreaterEqual(entry["step_bytes"], entry["step_bytes_bound"])
            self.assertAlmostEqual(entry["step_bytes_gap"], entry["step_bytes"] / entry["step_bytes_bound"] - 1)
            self.assertAlmostEqual(entry["us_gap"], entry["us"] / entry["us_bound"] - 1)
            self.assertLessEqual(entry["peak"]["bytes"], entry["step_bytes"])
        self.assertIsNone(self.run_sluice("explain", self.free)[0]["entries"][0]["budget_bytes"])

    def test_what_is_live_at_the_peak_adds_up_and_does_not_overlap(self):
        for plan in (self.free, self.tight):
            for entry in self.run_sluice("explain", plan)[0]["entries"]:
                live = sorted(entry["peak"]["live"], key=lambda buffer: buffer["offset"])
                self.assertEqual(sum(buffer["bytes"] for buffer in live), entry["peak"]["bytes"])
                for low, high in zip(live, live[1:]):
                    self.assertLessEqual(low["offset"] + low["bytes"], high["offset"])
                self.assertTrue(all(buffer["name"] for buffer in live))
                self.assertTrue(entry["peak"]["node"])

    # One tensor

    def test_a_forward_value_is_kept_for_a_reason_and_at_a_price(self):
        why = self.reason(self.free, "/blocks.0/Add_output_0", "kept until")
        self.assertRegex(why, r"8192 bytes; a run more would take [\d.]+ us, [\d.]+ us for a MiB; no budget asks for less")

    def test_a_forward_value_is_recomputed_at_a_price(self):
        decisions = self.run_sluice("explain", self.tight)[0]["decisions"]
        name = next(d["subject"] for d in decisions if re.match("recomputed 1 time .* free between launch", d["why"]))
        why = self.reason(self.tight, name, "recomputed")
        first, again = map(int, re.search(r"bytes are free between launch (\d+) and (\d+); a run more takes [\d.]+ us, [\d.]+ u?m?s for a MiB", why).groups())
        self.assertLess(first, again)

    def test_a_kept_mark_is_given_as_the_reason(self):
        plan, _ = self.compile(DECODER, SPEC + "memory: {keep: [/blocks.0/Add_output_0]}\n", "marked", "--memory", self.budget)
        self.assertRegex(self.reason(plan, "/blocks.0/Add", "kept until"), r"'memory\.keep' names it")

    def test_a_policy_is_given_as_the_reason(self):
        plan, _ = self.compile(DECODER, SPEC + "memory: {regions: [blocks.0]}\n", "policy")
        self.assertRegex(self.reason(plan, "/blocks.1/Add", "kept until"), "the policy keeps it")
        self.assertTrue(self.reason(plan, "/blocks.0/Softmax", "recomputed 1 time"))

    def test_a_value_inside_a_kernel_and_one_that_only_renames_bytes(self):
        self.assertRegex(self.reason(self.free, "/blocks.0/up/Add", "never stored"), "inside the kernel of '/blocks.0/Mul_1'")
        self.assertTrue(self.reason(self.free, "/blocks.0/up/Add", "kept until"))
        self.assertRegex(self.reason(self.free, "/blocks.0/Reshape", "the bytes of"), "'/blocks.0/Split' under another name")

    def test_parameters_gradients_and_moments(self):
        lines = self.why(self.free, "blocks.0.up.weight")
        text = "\n".join(f"{subject}: {why}" for subject, why in lines)
        self.assertRegex(text, r"param/blocks\.0\.up\.weight: parameter \[128, 32\].*trained: kept")
        self.assertRegex(text, r"opt/blocks\.0\.up\.weight/m: moment .*kept between steps")
        self.assertRegex(text, "step: gradient, 16384 bytes: never stored, the update is applied tile by tile as it is computed")
        clipped, _ = self.compile(DECODER, SPEC + "clip: {kind: global_norm, max: 1.0}\n", "clipped")
        text = "\n".join(why for _, why in self.why(clipped, "blocks.0.up.weight"))
        self.assertIn("kept until the norm of all gradients is known", text)

    def test_a_part_of_a_name_finds_all_and_nothing_is_an_error(self):
        self.assertGreater(len(self.why(self.free, "LayerNorm")), 4)
        errors = self.run_sluice("explain", self.free, "no-such-thing", code=1)[1]
        self.assertIn("no tensor or decision named like 'no-such-thing'", errors)

    def test_results_are_known_by_the_models_names(self):
        # The model's own names where they do not follow from the node's.
        import onnx
        model = onnx.load(str(DECODER))
        for node in model.graph.node:
            node.input[:] = ["hidden" if name == "/blocks.0/Add_output_0" else name for name in node.input]
            node.output[:] = ["hidden" if name == "/blocks.0/Add_output_0" else name for name in node.output]
        path = self.dir / "renamed.onnx"
        onnx.save(model, str(path))
        plan, _ = self.compile(path, SPEC, "renamed")
        self.assertEqual(self.why(plan, "hidden"), self.why(self.free, "/blocks.0/Add"))

    def test_unknown_keep_names_are_refused_without_a_budget_too(self):
        errors = self.compile(DECODER, SPEC + "memory: {keep: [/blocks.0/Ad]}\n", "wrong", code=1)[1]
        self.assertIn("'memory.keep' has '/blocks.0/Ad', which names nothing", errors)
        self.assertIn("'/blocks.0/Add'", errors)

    # Pictures

    def test_the_memory_picture_names_every_buffer_and_marks_the_peak(self):
        path = self.dir / "memory.svg"
        self.run_sluice("show", self.tight, "--memory", path)
        root = ElementTree.parse(path).getroot()
        titles = [title.text for title in root.iter(f"{SVG}title")]
        rows = [text.text for text in root.iter(f"{SVG}text")]
        peak = self.run_sluice("explain", self.tight)[0]["entries"][0]["peak"]
        self.assertTrue(any(row and row.startswith("peak ") and f"at launch {peak['launch']} of" in row for row in rows))
        self.assertEqual(sum("live at the peak" in title for title in titles), len(peak["live"]))
        self.assertTrue(any(title.endswith("run again") for title in titles))
        numbers = {int(title.split(":")[0]) for title in titles}
        self.assertEqual(numbers, set(range(1, len(titles) + 1)))
        for title in titles:
            number, name = title.splitlines()[0].split(": ", 1)
            self.assertTrue(name)
            self.assertIn(number, rows, "every buffer is a row of the table")
        for buffer in peak["live"]:
            self.assertTrue(any(row and row.endswith(buffer["name"][-40:]) for row in rows), buffer["name"])

    def test_what_is_offloaded_is_marked_and_priced(self):
        plan, _ = self.compile(DECODER, SPEC + "memory: {offload: host}\n", "host")
        self.run_sluice("show", plan, "--memory", self.dir / "memory.svg", "--graph", self.dir / "graph.dot")
        titles = [title.text for title in ElementTree.parse(self.dir / "memory.svg").getroot().iter(f"{SVG}title")]
        self.assertTrue(any("opt/head.weight/m" in title and title.endswith("offloaded") for title in titles))
        graph = (self.dir / "graph.dot").read_text()
        self.assertRegex(graph, r"copy from the host\\nopt/head\.weight/m")
        self.assertRegex(graph, r"copy to the host\\nopt/head\.weight/m")
        why = self.reason(plan, "head.weight", "moment")
        self.assertRegex(why, r"at the host's state offset \d+.*in the host's memory, copies take [\d.]+ us a step")

    def test_graphs_mark_what_runs_again_at_each_stage(self):
        path = self.dir / "graph.dot"
        spec = self.dir / "spec.yaml"
        spec.write_text(SPEC)
        for stage in ("model", "train", "regions", "decide", "plan"):
            self.run_sluice("show", DECODER, "--spec", spec, "--set", "memory.regions=[blocks.0]", "--stage", stage, "--graph", path)
            text = path.read_text()
            self.assertIn("dropped" if stage != "plan" else "run again", text.split("cluster_legend")[1])
            marked = re.findall(r"label=\"([^\"]*)\",style=\"?filled", text.split("cluster_legend")[0])
            self.assertTrue(marked, stage)
            if stage in ("decide", "plan"):
                self.assertTrue(any("(run again, 1)" in label for label in marked), stage)
            self.run_sluice("show", DECODER, "--spec", spec, "--stage", stage, "--graph", path)
            self.assertNotIn("style=filled", path.read_text())
        self.run_sluice("show", self.tight, "--graph", path)
        text = path.read_text()
        self.assertIn("(run again, 1)", text)
        self.assertIn("cluster_legend", text)
        self.run_sluice("show", self.free, "--graph", path)
        self.assertNotIn("cluster_legend", path.read_text())


if __name__ == "__main__":
    unittest.main()
