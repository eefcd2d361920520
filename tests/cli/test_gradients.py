"""Gradient health on the command line: clips, spikes and outliers, what train writes of gradients, and traces with plans beside them."""
import json
import unittest

import numpy as np

from harness import ROOT, SluiceTest, newest_checkpoint, read_safetensors

MLP = ROOT / "tests" / "models" / "mlp.onnx"  # 6 inputs, 4 outputs, batches of 32
SPEC = "loss: {kind: mse, logits: logits, labels: labels}\noptimizer: {kind: sgd, lr: 0.05}\nthreads: 1\n"


class Gradients(SluiceTest):
    def data(self, batches, spikes=(), size=1000):
        generator = np.random.default_rng(5)
        x = generator.normal(size=(batches, 32, 6)).astype(np.float32)
        y = np.tanh(x[:, :, :4]).astype(np.float32)
        y[list(spikes)] *= size
        x, y = self.npy("x", x.reshape(-1, 6)), self.npy("y", y.reshape(-1, 4))
        return ["--no-shuffle", "--data", f"x=npy:{x}", "--data", f"labels=npy:{y}"]

    def train(self, plan, data, steps, *more, code=0):
        return self.run_sluice("train", plan, *data, "--steps", steps, *more, code=code)

    def test_lines_and_a_picture_by_layer(self):
        plan, _ = self.compile(MLP, SPEC + "clip: {kind: group_norm, max: 0.05, share: none}\nparameter_groups: [{match: 'b*', lr: 0.1}]\n", "m")
        lines, picture = self.dir / "g.jsonl", self.dir / "g.svg"
        done, _ = self.train(plan, self.data(6), 6, "--gradients", lines, "--gradients", picture)
        rows = [json.loads(line) for line in lines.read_text().splitlines()]
        self.assertEqual([row["update"] for row in rows], [1, 2, 3, 4, 5, 6])
        for row in rows:
            squares = sum(layer["norm"] ** 2 for layer in row["layers"].values())
            self.assertAlmostEqual(row["grad_norm"] ** 2 / squares, 1, 9)
            self.assertAlmostEqual(sum(group["norm"] ** 2 for group in row["groups"].values()) / squares, 1, 9)
            for group in row["groups"].values():
                self.assertAlmostEqual(group["factor"], min(1, 0.05 / (group["norm"] + 1e-6)), 6)
            self.assertAlmostEqual(row["effective_rate"], row["rate"] * row["clip_factor"], 12)
            rms = [layer["rms"] for layer in row["layers"].values()]
            self.assertAlmostEqual(row["dispersion"], max(rms) / min(rms), 9)
        self.assertEqual(set(rows[0]["groups"]), {"default", "group1"})
        summary = done["gradients"]
        self.assertAlmostEqual(summary["rate_factor_mean"], sum(row["clip_factor"] for row in rows) / 6, 9)
        self.assertGreater(summary["clipped_share"], 0)
        text = picture.read_text()
        for layer in summary["layers"]:
            self.assertIn(f"<title>{layer['layer']}: ", text)

    def test_a_plan_without_norms_is_refused(self):
        plan, _ = self.compile(MLP, SPEC, "m")
        _, error = self.train(plan, self.data(2), 2, "--gradients", self.dir / "g.jsonl", code=2)
        self.assertIn("measures no norms", error)

    def test_an_outlier_runs_again_and_is_skipped(self):
        spec = SPEC + "spikes: {fluctuation: 0, outliers: {action: rerun, factor: 10, warmup: 3}}\n"
        plan, _ = self.compile(MLP, spec, "m")
        data, run = self.data(8, spikes=[5]), self.dir / "run"
        done, messages = self.train(plan, data, 8, "--checkpoint", run)
        self.assertIn("update 6 has an unusual gradient, the same again: it was skipped", messages)
        self.assertEqual(done["skipped"], 1)
        kept = read_safetensors(newest_checkpoint(run))
        plain, _ = self.compile(MLP, spec.replace("rerun", "skip"), "n")
        self.train(plain, data, 8, "--checkpoint", self.dir / "plain")
        for name, value in read_safetensors(newest_checkpoint(self.dir / "plain")).items():
            np.testing.assert_array_equal(kept[name], value, name)

    def test_rates_are_cut_where_the_loss_fluctuates_and_resume(self):
        plan, _ = self.compile(MLP, SPEC + "spikes: {window: 4, max_times: 2, cooldown: 2}\n", "m")
        data = self.data(24, spikes=range(0, 24, 2), size=2)
        whole, _ = self.train(plan, data, 24, "--checkpoint", self.dir / "whole")
        self.assertEqual([cut["update"] for cut in whole["rate_cuts"]], [8, 18])
        self.assertEqual([cut["factor"] for cut in whole["rate_cuts"]], [0.5, 0.25])
        for steps, more in ((11, []), (24, ["--resume"])):
            self.train(plan, data, steps, "--checkpoint", self.dir / "parts", *more)
        for name, value in read_safetensors(newest_checkpoint(self.dir / "whole")).items():
            np.testing.assert_array_equal(read_safetensors(newest_checkpoint(self.dir / "parts"))[name], value, name)

    def test_a_raised_rate_and_a_delay_are_warned_about(self):
        _, report = self.compile(MLP, SPEC + "schedule: {kind: constant, lr_scale: 1.3}\n", "m")
        done, _ = self.run_sluice("explain", self.dir / "m.plan")
        self.assertIn("every rate is multiplied by 1.3", json.dumps(done))
        _, late = self.compile(MLP, SPEC + "schedule: {kind: constant, lr_scale: 1.3}\nupdate: {grouping: {count: 2}, mode: {defer: 1}}\n", "late")
        self.assertEqual(len(late["warnings"]), 1)
        self.assertIn("'schedule.lr_scale' is 1.3, but gradients that are 1 steps late ask for at most 0.5", late["warnings"][0])

    def test_traces_have_the_plan_beside_the_measurement(self):
        plan, _ = self.compile(MLP, SPEC + "parallel: {data: 2}\n", "m")
        trace = self.dir / "t.json"
        self.train(plan, self.data(8), 3, "--trace", trace)
        text = json.loads(trace.read_text())
        for side in ("measured", "planned"):
            self.assertGreaterEqual(text["overlap"][side]["collectives"], 0)
            self.assertLessEqual(text["overlap"][side]["collectives"], 1)
        spans = [event for event in text["traceEvents"] if event["ph"] == "X"]
        launches = [event for event in spans if "launch" in event["args"]]
        planned = [event for event in launches if event["pid"] == 2]
        # As many of each launch as ran, at least: three updates.
        self.assertEqual(sum(event["args"]["launch"] == 0 for event in planned), 3)
        self.assertTrue(all(abs(event["dur"] - event["args"]["predicted_us"]) < 1e-2 for event in planned))
        self.run_sluice("show", plan, "--trace", self.dir / "p.json")
        alone = json.loads((self.dir / "p.json").read_text())
        self.assertEqual(list(alone["overlap"]), ["planned"])

    def test_the_coupling_of_groups_is_measured(self):
        groups = "update: {grouping: [{name: first, match: '*1'}, {name: rest, match: '*2'}]}\nentries: [step, eval, infer, probe]\n"
        plan, _ = self.compile(MLP, SPEC + groups, "m")
        probed, _ = self.run_sluice("probe", plan, *self.data(2), "--samples", 32, "-o", self.dir / "p.safetensors")
        coupling = probed["coupling"]
        self.assertEqual(coupling["samples"], 32)
        self.assertEqual([(pair["first"], pair["second"]) for pair in coupling["neighbours"]], [("first", "rest")])
        # Layers of one network are not independent, nor one.
        self.assertGreater(coupling["kappa"], 0)
        self.assertGreater(1, coupling["neighbours"][0]["coupling"])

    def test_groups_are_coloured(self):
        plan, _ = self.compile(MLP, SPEC + "update: {grouping: [{name: first, match: '*1'}, {name: rest, match: '*2'}]}\n", "m")
        self.run_sluice("show", plan, "--graph", self.dir / "g.dot")
        text = (self.dir / "g.dot").read_text()
        self.assertIn("updated with\\nfirst", text)
        self.assertIn("updated with\\nrest", text)
        self.assertGreater(text.count("penwidth=3"), 4)


if __name__ == "__main__":
    unittest.main()
