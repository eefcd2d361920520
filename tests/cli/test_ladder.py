"""`memory.ladder`: variants under smaller and smaller budgets in one plan, with one state and the same bits."""
import ctypes
import pathlib
import re
import sys
import unittest

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import ROOT, SluiceTest, newest_checkpoint, read_safetensors  # noqa: E402

DECODER = ROOT / "tests" / "models" / "small-decoder.onnx"
SPEC = "loss: {kind: cross_entropy, logits: logits, labels: labels}\nseed: 3\naccumulate: 2\n"
LADDER = [1.0, 0.9, 0.81]


class Ladder(SluiceTest):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tokens = np.random.default_rng(6).integers(0, 8, (24, 16))

    def data(self):
        tokens = self.npy("tokens", self.tokens)
        return ["--data", f"tokens=npy:{tokens}", "--data", f"labels=npy:{tokens}"]

    def ladder(self, memory=f"ladder: {LADDER}", name="ladder"):
        return self.compile(DECODER, SPEC + f"memory: {{{memory}}}\n", name)

    def run_train(self, plan, name, *options):
        folder = self.dir / f"run-{name}"
        out, _ = self.run_sluice("train", plan, *self.data(), "--steps", 4, "--losses", "--checkpoint", folder, "--measure", *options)
        state = {key: tensor.tobytes() for key, tensor in read_safetensors(newest_checkpoint(folder)).items()}
        return out["losses"], state, out["arena_bytes_measured"]

    def test_every_variant_fits_its_share_and_gives_the_same_bits(self):
        free, unconstrained = self.compile(DECODER, SPEC, "free")
        plan, report = self.ladder()
        rows = report["variants"]
        self.assertEqual([row["memory_fraction"] for row in rows], LADDER)
        self.assertEqual([row["variant"] for row in rows], [0, 1, 2])
        self.assertIsNone(rows[0]["budget_bytes"])
        self.assertEqual(rows[0]["arena_bytes"], unconstrained["arena_bytes"])
        self.assertEqual(len(report["buckets"]), 1)
        for share, row in zip(LADDER[1:], rows[1:]):
            self.assertEqual(row["budget_bytes"], int(unconstrained["arena_bytes"] * share))
            self.assertLessEqual(row["arena_bytes"], row["budget_bytes"])
            self.assertEqual(row["arena_bytes"] - row["step_bytes"], report["state_bytes"])
        times = [row["step_us"] for row in rows]
        self.assertEqual(times, sorted(times))
        self.assertLess(times[0], times[-1])
        expected = self.run_train(free, "free")[:2]
        for row in rows:
            losses, state, touched = self.run_train(plan, f"variant{row['variant']}", "--variant", row["variant"])
            self.assertEqual((losses, state), expected)
            self.assertLessEqual(touched, row["arena_bytes"])

    def test_shares_are_of_the_budget_where_there_is_one(self):
        _, free = self.compile(DECODER, SPEC, "free")
        budget = free["arena_bytes"] - 65536
        _, report = self.ladder(f"budget: {budget}, ladder: [1, 0.9]")
        self.assertEqual([row["budget_bytes"] for row in report["variants"]], [budget, int(budget * 0.9)])
        self.assertEqual(report["budget_bytes"], budget)
        for row in report["variants"]:
            self.assertLessEqual(row["arena_bytes"], row["budget_bytes"])

    def test_a_checkpoint_goes_on_under_another_variant(self):
        plan, _ = self.ladder()
        folder = self.dir / "changing"
        for steps, variant in ((1, 0), (2, 2), (3, 1), (4, 0)):
            self.run_sluice("train", plan, *self.data(), "--steps", steps, "--checkpoint", folder, "--resume", "--variant", variant)
        state = {key: tensor.tobytes() for key, tensor in read_safetensors(newest_checkpoint(folder)).items()}
        self.assertEqual(state, self.run_train(plan, "never")[1])

    def test_switching_between_micro_batches_by_the_c_api(self):
        from capi import Session
        plan, _ = self.ladder()
        never, switching = Session(plan), Session(plan)
        self.addCleanup(never.close)
        self.addCleanup(switching.close)
        self.assertEqual(switching.lib.sluice_plan_variant_count(switching.plan), 3)
        for i, variant in enumerate((0, 2, 2, 1, 0, 2)):
            self.assertEqual(switching.lib.sluice_session_use_variant(switching.session, ctypes.c_size_t(variant)), 0)
            batch = self.tokens[4 * i % 20:4 * i % 20 + 4]
            self.assertEqual(switching.step(batch, batch).loss_sum, never.step(batch, batch).loss_sum)
        for name, shape in (("param/head.weight", (33, 32)), ("opt/head.weight/v", (33, 32))):
            self.assertEqual(switching.read(name, shape).tobytes(), never.read(name, shape).tobytes())

    def test_offload_moves_the_state_that_the_smallest_rung_needs(self):
        """Without a budget and with one: the first rung would leave the state on the device, but then the last does not fit."""
        from capi import Session
        free, unconstrained = self.compile(DECODER, SPEC, "free")
        expected = self.run_train(free, "free")[:2]
        whole = unconstrained["arena_bytes"]
        for name, memory in (("shares", "offload: auto, ladder: [1.0, 0.5]"), ("budget", f"budget: {whole}, offload: auto, ladder: [1.0, 0.5]")):
            plan, report = self.ladder(memory, name)
            first, last = report["variants"]
            self.assertLess(last["budget_bytes"], unconstrained["state_bytes"], "the state alone is more")
            self.assertLessEqual(last["arena_bytes"], last["budget_bytes"])
            self.assertGreater(report["host_state_bytes"], 0)
            self.assertEqual(first["arena_bytes"] - first["step_bytes"], last["arena_bytes"] - last["step_bytes"])
            self.assertTrue(any("since '@0.5' does not fit without that" in note for note in report["notes"]), report["notes"])
            for variant in (0, 1):
                losses, state, touched = self.run_train(plan, f"{name}{variant}", "--variant", variant)
                self.assertEqual((losses, state), expected)
                self.assertLessEqual(touched, report["variants"][variant]["arena_bytes"])
        never, switching = Session(free), Session(plan)
        self.addCleanup(never.close)
        self.addCleanup(switching.close)
        for i, variant in enumerate((0, 1, 1, 0)):
            self.assertEqual(switching.lib.sluice_session_use_variant(switching.session, ctypes.c_size_t(variant)), 0)
            batch = self.tokens[4 * i:4 * i + 4]
            self.assertEqual(switching.step(batch, batch).loss_sum, never.step(batch, batch).loss_sum)

    def test_offload_leaves_the_state_where_every_rung_fits(self):
        _, unconstrained = self.compile(DECODER, SPEC, "free")
        _, report = self.ladder("offload: auto, ladder: [1.0, 0.9]")
        self.assertEqual(report["host_state_bytes"], 0)
        self.assertEqual(report["variants"][0]["arena_bytes"], unconstrained["arena_bytes"])
        self.assertEqual(report["variants"][0]["step_us"], unconstrained["step_us"])

    def test_a_rung_that_no_offload_meets_is_refused_with_its_smallest(self):
        errors = self.compile(DECODER, SPEC + "memory: {offload: auto, ladder: [1.0, 0.1]}\n", "low", code=3)[1]
        self.assertIn("on rung 1 of 'memory.ladder' (0.100)", errors)
        smallest = int(re.search(r"smallest that can be met is (\d+) bytes", errors)[1])
        self.compile(DECODER, SPEC + "memory: {offload: auto}\n", "least", "--memory", smallest)
        self.compile(DECODER, SPEC + "memory: {offload: auto}\n", "below", "--memory", smallest - 1, code=3)

    def test_check_show_and_explain_know_the_variants(self):
        plan, report = self.ladder()
        listed = self.run_sluice("check", plan)[0]["variants"]
        self.assertEqual([row["step_bytes"] for row in listed], [row["step_bytes"] for row in report["variants"]])
        self.assertEqual([row["memory_fraction"] for row in listed], LADDER)
        entries = {i: self.run_sluice("explain", plan, "--variant", i)[0]["entries"][0] for i in range(3)}
        self.assertEqual(entries[2]["budget_bytes"], report["variants"][2]["budget_bytes"])
        self.assertLess(entries[2]["step_bytes"], entries[0]["step_bytes"])
        pictures = []
        for i in (0, 2):
            picture = self.dir / f"memory{i}.svg"
            self.run_sluice("show", plan, "--variant", i, "--memory", picture)
            pictures.append(picture.read_text())
        self.assertNotIn("run again</title>", pictures[0])
        self.assertIn("run again</title>", pictures[1])
        for command in (["train", plan, *self.data(), "--steps", 1], ["explain", plan], ["show", plan, "--memory", self.dir / "m.svg"]):
            errors = self.run_sluice(*command, "--variant", 3, code=2)[1]
            self.assertIn("the plan has 3, counted from 0", errors)

    def test_a_share_that_cannot_be_met_is_refused_with_the_smallest(self):
        errors = self.compile(DECODER, SPEC + "memory: {ladder: [1.0, 0.1]}\n", "low", code=3)[1]
        self.assertIn("on rung 1 of 'memory.ladder' (0.100)", errors)
        self.assertRegex(errors, r"smallest that can be met is \d+ bytes")
        self.assertFalse((self.dir / "low.plan").exists())

    def test_wrong_ladders_are_refused(self):
        for ladder in ("[1.0, 1.0]", "[0.8, 0.9]", "[1.5]", "[1.0, 0]", "[1.0, -0.5]", "[x]"):
            errors = self.compile(DECODER, SPEC + f"memory: {{ladder: {ladder}}}\n", "wrong", code=1)[1]
            self.assertIn("ladder", errors)

    def test_a_ladder_of_one_is_the_plan_without(self):
        plain, _ = self.compile(DECODER, SPEC, "plain")
        one, report = self.ladder("ladder: [1.0]", "one")
        self.assertEqual(len(report["variants"]), 1)
        self.assertEqual(self.run_sluice("check", one)[0]["variants"], self.run_sluice("check", plain)[0]["variants"])


if __name__ == "__main__":
    unittest.main()
