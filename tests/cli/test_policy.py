"""`precision.policy`: formats by a probe file within a budget, its certificate and report, and what is refused. Probe files are made up here."""
import json
import re
import struct
import subprocess
import sys
import unittest

import numpy as np

from harness import ROOT, SLUICE, SluiceTest

DECODER = ROOT / "tests" / "models" / "small-decoder.onnx"
MLP = ROOT / "tests" / "models" / "mlp.onnx"
LOSS = "threads: 1\nentries: [step]\nloss: {kind: cross_entropy, logits: logits, labels: labels}\n"
BITS = {"bf16": 16, "fp16": 16, "e4m3": 8, "mxfp8": 8, "mxfp4": 4}


def write_safetensors(path, tensors, metadata):
    header, data = {"__metadata__": metadata}, b""
    for name, array in tensors.items():
        raw = np.ascontiguousarray(array, np.float32).tobytes()
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class PolicyTest(SluiceTest):
    model, loss = MLP, LOSS.replace("cross_entropy", "mse")

    def setUp(self):
        super().setUp()
        plan, self.report = self.compile(self.model, self.loss, "plain")
        self.rows = self.explain(plan)["parameters"]
        text = subprocess.run([SLUICE, "compile", self.model, "--stop-after", "model"], capture_output=True, text=True).stdout
        self.hash = re.search(r'graph.model_hash = "([^"]*)"', text)[1]

    def explain(self, plan):
        return self.run_sluice("explain", plan, "--precision")[0]

    def probe(self, importance, name="probe", **metadata):
        """Increases as of rounding: importance x elements x 4^-bits, in two blocks each."""
        tensors = {}
        for row in self.rows:
            h, elements = importance(row["name"]), row["bytes"] / row["bytes_per_element"]
            tensors[f"importance/{row['name']}"] = np.full(2, h)
            tensors[f"importance/{row['name']}/stderr"] = np.full(2, h / 10)
            for format, bits in BITS.items():
                rise = h * elements * 4.0**-bits
                tensors[f"increase/{row['name']}/{format}"] = np.array([rise / 4, rise * 3 / 4])
                tensors[f"increase/{row['name']}/{format}/stderr"] = np.full(2, rise / 100)
        path = self.dir / f"{name}.safetensors"
        write_safetensors(path, tensors, {"kind": "fisher", "samples": "64", "model_hash": self.hash, **metadata})
        return path

    def policy(self, settings, more="", name="policy", code=0):
        return self.compile(self.model, self.loss + f"precision: {{{more}policy: {{{settings}}}}}\n", name, code=code)


class Assignment(PolicyTest):
    model, loss = DECODER, LOSS

    def test_what_matters_keeps_its_bits(self):
        probe = self.probe(lambda name: 1.0 if "down" in name else 1e-6)
        plan, report = self.policy(f"from: {probe}, budget: 0.5x")
        out = self.explain(plan)
        rows = {row["name"]: row for row in out["parameters"]}
        for name, row in rows.items():
            if name.endswith("down.weight"):
                self.assertEqual(row["stored"], "f32", row)
            elif name.endswith(("qkv.weight", "up.weight", "proj.weight")):
                self.assertNotEqual(row["stored"], "f32", row)
            if name.endswith("bias"):
                self.assertIsNone(row["importance"])
        line = next(note for note in report["notes"] if note.startswith("policy: "))
        self.assertIn("by importance (fisher, 64 samples)", line)
        self.assertIn("numbers change", line)
        self.assertEqual(["policy: " + text for text in out["policy"]], [note for note in report["notes"] if note.startswith("policy: ")])
        chosen = [row for row in rows.values() if row["importance"] is not None]
        self.assertGreater(len(chosen), 5)
        self.run_sluice("show", plan, "--graph", self.dir / "step.dot")
        drawn = (self.dir / "step.dot").read_text()
        for bits in {16 if row["stored"] == "bf16" else 4 if row["stored"] == "mxfp4" else 8 for row in chosen if row["stored"] != "f32"}:
            self.assertIn(f"stored in\\n{bits} bits", drawn)
        self.assertTrue(all(row["increase"] >= 0 for row in chosen))

    def test_bytes_are_within_the_budget_and_fall_with_it(self):
        probe, sizes, rises = self.probe(lambda name: float(len(name))), [], []
        wide = sum(row["bytes"] for row in self.rows) / 3  # moments are two thirds
        for share in (0.8, 0.3):
            plan, report = self.policy(f"from: {probe}, budget: {share}x")
            self.assertLessEqual(report["state"]["parameter"], share * wide + 64 * len(self.rows))
            sizes.append(report["state"]["parameter"])
            rises.append(sum(row["increase"] or 0 for row in self.explain(plan)["parameters"]))
        self.assertEqual(sizes, sorted(sizes, reverse=True))
        self.assertEqual(rises, sorted(rises))

    def test_other_kinds_meet_the_budget_with_a_larger_increase(self):
        probe, rises = self.probe(lambda name: 1.0 if "qkv" in name else 1e-5), {}
        for kind in ("importance", "random", "size"):
            plan, report = self.policy(f"kind: {kind}, from: {probe}, budget: 0.5x", name=kind)
            rises[kind] = sum(row["increase"] or 0 for row in self.explain(plan)["parameters"])
            self.assertIn(f"formats by {kind}", str(report["notes"]))
        self.assertLess(rises["importance"], rises["random"])
        self.assertLess(rises["importance"], rises["size"])

    def test_rules_win_and_plans_are_the_same_every_time(self):
        probe = self.probe(lambda name: 1.0)
        more = 'compute: amp_bf16, rules: [{match: "*.qkv.weight", keep: fp32}], '
        plan, _ = self.policy(f"from: {probe}, budget: 0.6x", more)
        rows = {row["name"]: row for row in self.explain(plan)["parameters"]}
        self.assertEqual(rows["blocks.0.qkv.weight"]["stored"], "f32")
        self.assertIsNone(rows["blocks.0.qkv.weight"]["increase"])
        again, _ = self.policy(f"from: {probe}, budget: 0.6x", more, "again")
        self.assertEqual(plan.read_bytes(), again.read_bytes())


class Joint(SluiceTest):
    def test_bits_give_way_where_recompute_would_be_too_slow(self):
        form = "compute: amp_bf16, optimizer_state: int8"
        (self.dir / "fit.yaml").write_text(f"{LOSS}precision: {{{form}}}\n")
        least = self.run_sluice("fit", DECODER, "--spec", self.dir / "fit.yaml", "--no-search", "--points", 0)[0]["smallest_budget_bytes"]

        def joint(speed, name):
            precision = f"precision: {{{form}, policy: {{kind: size, speed: {speed}}}}}"
            _, report = self.compile(DECODER, f"{LOSS}memory: {{budget: {least}}}\n{precision}\n", name)
            line = next(note for note in report["notes"] if "under the memory budget" in note)
            return report, line, [float(text) for text in re.findall(r"predicted speed of ([0-9.]+)", line)]

        # Where recompute may cost what it likes, all parameters keep their form.
        wide, line, speeds = joint(0.01, "wide")
        self.assertNotIn("numbers change", line)
        self.assertEqual(len(speeds), 1)
        self.assertLess(speeds[0], 1)
        narrow, line, speeds = joint(speeds[0] + 0.005, "narrow")
        self.assertIn("fewer bits in place of more recompute, and numbers change", line)
        self.assertGreater(speeds[1], speeds[0])
        self.assertLess(narrow["step_us"], wide["step_us"])
        self.assertLessEqual(narrow["arena_bytes"], least)
        self.assertLess(sum(narrow["state"].values()), sum(wide["state"].values()))


class BadInput(PolicyTest):
    def refuse(self, settings, *parts, more=""):
        errors = self.policy(settings, more, "refused", code=1)[1]
        for part in parts:
            self.assertIn(part, errors)
        self.assertFalse((self.dir / "refused.plan").exists())
        self.assertFalse((self.dir / "refused.safetensors").exists())

    def test_policies_that_cannot_be_read(self):
        self.refuse("kind: importance, budget: 0.6x", "has no 'from'", "sluice probe")
        self.refuse("kind: hessian, from: x", "importance, random, size")
        self.refuse(f"from: {self.dir}/absent, budget: 0.6x", "absent")
        self.refuse("kind: size", "has no 'budget'")
        self.refuse("kind: size, budget: 0.6x, formats: [fp5]", "'fp5'", "mxfp4")
        self.refuse(f"from: {self.dir}/plain.safetensors, budget: 0.6x", "none of a probe")

    def test_a_budget_below_the_smallest(self):
        probe = self.probe(lambda name: 1.0)
        self.refuse(f"from: {probe}, budget: 0.01x", "the smallest formats take", "parameters that keep their form")
        self.refuse(f"from: {probe}, budget: 0.2x, formats: [bf16]", "the smallest formats take")

    def test_a_probe_of_another_model(self):
        probe = self.probe(lambda name: 1.0, model_hash="f" * 64)
        self.refuse(f"from: {probe}, budget: 0.6x", "another model", "ffffffffffff")

    def test_nan_in_a_probe(self):
        probe = self.probe(lambda name: np.nan if name == "w2" else 1.0)
        self.refuse(f"from: {probe}, budget: 0.6x", "'importance/w2'", "NaN")

    def test_a_format_that_overflows_is_not_taken(self):
        probe = self.probe(lambda name: 1.0)
        tensors = {}
        for row in self.rows:
            tensors[f"importance/{row['name']}"] = np.ones(1)
            for format in ("mxfp4", "mxfp8"):
                tensors[f"increase/{row['name']}/{format}"] = np.array([3.4028235e38 if format == "mxfp4" else 1e-3])
        write_safetensors(probe, tensors, {"kind": "fisher", "samples": "64", "model_hash": self.hash})
        self.refuse(f"from: {probe}, budget: 0.2x", "the smallest formats take")
        plan, _ = self.policy(f"from: {probe}, budget: 0.4x")
        stored = {row["stored"] for row in self.explain(plan)["parameters"]}
        self.assertNotIn("mxfp4", stored)


class AtScale(SluiceTest):
    """The tables of bench/scale.py, on a few blocks of a model."""

    def test_planned_states_are_the_closed_forms(self):
        sys.path.insert(0, str(ROOT / "bench"))
        import scale
        chosen = [scale.POLICIES[1], scale.POLICIES[4], scale.POLICIES[5]]
        rows, parameters = scale.plan_model("resnet-152", self.dir, chosen, layers=1, points=1, shapes={"batch": 2})
        self.assertEqual([row["name"] for row in rows], [policy["name"] for policy in chosen])
        for row in rows:
            self.assertNotIn("refused", row)
            self.assertAlmostEqual(row["states"] / row["closed_states"], 1, delta=0.03, msg=row["name"])
            self.assertEqual(sum(row["parts"].values()), row["total"])
            self.assertGreaterEqual(row["small_speed"], scale.SPEED)
            self.assertLessEqual(row["least"], row["small"])
        totals = {row["name"]: row["total"] for row in rows}
        self.assertLess(totals["bf16 split, int8 moments"], totals["bf16, f32 master and moments"])
        text = scale.section("resnet-152", rows, parameters)
        for row in rows:
            self.assertIn(f"| {row['name']} |", text)


if __name__ == "__main__":
    unittest.main()
