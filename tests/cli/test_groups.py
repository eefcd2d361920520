"""Groups of parameters that are updated together: by topology and by rules, and what explain says of them."""
import unittest

import numpy as np

from harness import ROOT, SluiceTest

DECODER = ROOT / "tests" / "models" / "small-decoder.onnx"
CNN = ROOT / "tests" / "models" / "small-cnn.onnx"
SPEC = "loss: {kind: cross_entropy, logits: logits, labels: labels}\nseed: 3\n"


class Groups(SluiceTest):
    def groups(self, model, update):
        """Name of the group of each parameter, and the lines about groups."""
        plan, _ = self.compile(model, SPEC + f"update: {update}\n")
        said = self.run_sluice("explain", plan, "--updates")[0]["decisions"]
        members = {d["subject"]: d["why"].removeprefix("group ") for d in said if d["why"].startswith("group ")}
        return members, {d["subject"]: d["why"] for d in said if d["subject"] not in members}

    def test_layers_of_a_decoder_stay_together(self):
        members, lines = self.groups(DECODER, "{grouping: topology, group_size: 1}")
        names = sorted(members)
        self.assertTrue(names)
        self.assertIn("in a chain", lines["update groups"])
        count = len([subject for subject in lines if subject.startswith("group ")])
        self.assertEqual(sorted(set(members.values()), key=int), [str(g) for g in range(count)])
        for group in range(count):
            self.assertRegex(lines[f"group {group}"], r"^sync; \d+ parameters of \d+ bytes, [\d.]+ us backward in 1 block$")
        for name in names:  # a bias or norm is with its weight
            if name.endswith(".bias") and name[:-4] + "weight" in members:
                self.assertEqual(members[name], members[name[:-4] + "weight"], name)

    def test_a_number_of_groups(self):
        members, lines = self.groups(CNN, "{grouping: {count: 2}}")
        self.assertEqual(set(members.values()), {"0", "1"})
        self.assertTrue(lines["update groups"].startswith("2 of "))

    def test_groups_change_no_value(self):
        plain, _ = self.compile(DECODER, SPEC, "plain")
        grouped, _ = self.compile(DECODER, SPEC + "update: {grouping: topology, group_size: 2}\n", "grouped")
        tokens = self.npy("t", np.arange(64, dtype=np.int64).reshape(4, 16) % 13)
        data = ["--data", f"tokens=npy:{tokens}", "--data", f"labels=npy:{tokens}", "--no-shuffle", "--steps", 3, "--losses"]
        losses = [self.run_sluice("train", plan, *data)[0]["losses"] for plan in (plain, grouped)]
        self.assertEqual(*losses)
        self.assertLess(losses[0][-1], losses[0][0])

    def test_rules_take_each_parameter_once(self):
        members, _ = self.groups(CNN, '[{name: kernels, match: "*.weight"}, {match: "*.bias"}]'.join(["{grouping: ", "}"]))
        for name, group in members.items():
            self.assertEqual(group, "kernels" if name.endswith(".weight") else "*.bias")
        for rules, why in [
            ('[{match: "*.weight"}]', "no group takes parameter"),
            ('[{name: a, match: "*"}, {name: b, match: "*.bias"}]', "is in group 'a' and in group 'b'"),
            ('[{match: "*"}, {match: "nowhere"}]', "matches no trainable parameter"),
        ]:
            _, errors = self.compile(CNN, SPEC + f"update: {{grouping: {rules}}}\n", "bad", code=1)
            self.assertIn(why, errors)
            self.assertFalse((self.dir / "bad.plan").exists())

    def test_sizes_beyond_the_model_are_refused_with_both_numbers(self):
        _, errors = self.compile(CNN, SPEC + "update: {grouping: topology, group_size: 900}\n", "bad", code=1)
        self.assertRegex(errors, r"a group of 900 blocks is more than the \d+ blocks of the model; ask for \d+ at most")
        _, errors = self.compile(CNN, SPEC + "update: {grouping: {count: 900}}\n", "bad", code=1)
        self.assertRegex(errors, r"900 groups is more than the \d+ blocks")

    def test_what_clashes_in_the_spec_is_named(self):
        for update, why in [
            ("{group_size: 4}", "give that too"),
            ("{grouping: {count: 2}, group_size: 4}", "give one"),
            ("{grouping: toplogy}", "expected one of topology"),
            ("{grouping: {cont: 2}}", "did you mean 'count'"),
            ("{mode: {interleave: 4}}", "'update.grouping' makes none; give that too"),
            ("{mode: interleave}", "expected {interleave: N}"),
            ("{mode: {sync: 2}}", "unknown key 'update.mode.sync'"),
            ("{mode: {defer: 65}}", "is 65, expected at most 64"),
            ("{grouping: {count: 2}, mode: {interleave: 4}}", "'update.grouping' makes 2 that interleave"),
            ("{mode: {defer: 1}, compensation: {kind: momentum, lambda: 2}}", "is of 'kind: dc_asgd', not of 'momentum'"),
            ("{mode: {defer: 1}, flush: eval}", "'update.flush' is eval, expected a list"),
            ("{mode: {defer: 1}, flush: [start]}", "expected one of eval, save, stop"),
            ("{mode: sometimes}", "expected one of sync"),
        ]:
            _, errors = self.compile(CNN, SPEC + f"update: {update}\n", "bad", code=1)
            self.assertIn(why, errors)

    def test_without_groups(self):
        plan, _ = self.compile(CNN, SPEC)
        said = self.run_sluice("explain", plan, "--updates")[0]["decisions"]
        self.assertEqual([d["why"] for d in said], ["all parameters are updated together, at every update"])


if __name__ == "__main__":
    unittest.main()
