"""`sluice fit` and device profiles: what it says is what compile then does; models without weights are planned."""
import pathlib
import re
import resource
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import ROOT, SLUICE, SluiceTest, needs_shared  # noqa: E402

DECODER = ROOT / "tests" / "models" / "small-decoder.onnx"
FASHION = ROOT / "examples" / "fashion-mnist" / "fashion-cnn.onnx"
LOSS = "loss: {kind: cross_entropy, logits: logits, labels: labels}\n"
DEVICES = ["a100-40", "a100-80", "v100-32", "rtx3090", "h100", "h200", "b200"]


class FitTest(SluiceTest):
    def fit(self, model, *options, spec=LOSS, code=0):
        path = self.dir / "fit.yaml"
        path.write_text(spec)
        return self.run_sluice("fit", model, "--spec", path, *options, code=code)

    def check_curve(self, out):
        sizes, times = [point["budget_bytes"] for point in out["curve"]], [point["step_us"] for point in out["curve"]]
        self.assertEqual(sizes, sorted(set(sizes)))
        self.assertEqual(times, sorted(set(times), reverse=True))
        self.assertEqual(sizes[0], out["smallest_budget_bytes"])
        self.assertEqual(sizes[-1], out["unconstrained_arena_bytes"])


class Answers(FitTest):
    def test_smallest_budget_is_what_compile_meets(self):
        out, _ = self.fit(DECODER, "--memory", "1GiB", "--no-search")
        self.check_curve(out)
        self.assertGreater(len(out["curve"]), 2)
        self.assertTrue(out["fits"])
        smallest = out["smallest_budget_bytes"]
        self.compile(DECODER, LOSS, "least", "--memory", smallest)
        errors = self.compile(DECODER, LOSS, "below", "--memory", smallest - 1, code=3)[1]
        self.assertIn(f"smallest that can be met is {smallest} bytes", errors)
        for i, point in enumerate(out["curve"][1:-1:4]):
            _, report = self.compile(DECODER, LOSS, f"point{i}", "--memory", point["budget_bytes"])
            self.assertLessEqual(report["arena_bytes"], point["budget_bytes"])
            self.assertLessEqual(report["step_us"], point["step_us"] * (1 + 1e-9))
        refused, _ = self.fit(DECODER, "--memory", smallest - 1, "--no-search", code=3)
        self.assertFalse(refused["fits"])
        exact, _ = self.fit(DECODER, "--memory", smallest, "--no-search")
        self.assertTrue(exact["fits"])
        self.assertEqual(exact["arena_bytes"], smallest)

    def test_largest_batch_is_what_compile_meets(self):
        spec = LOSS + "shapes: {batch: 8}\n"
        at8, _ = self.fit(FASHION, "--memory", "1GiB", "--no-search", spec=spec)
        budget = 3 * at8["smallest_budget_bytes"]
        out, _ = self.fit(FASHION, "--memory", budget, spec=spec)
        batch = out["largest_batch"]
        self.assertTrue(out["largest_batch_proved"])
        self.assertGreater(batch, 8)
        self.assertIsNone(out["longest_sequence"])
        self.compile(FASHION, LOSS + f"shapes: {{batch: {batch}}}\n", "fits", "--memory", budget)
        self.compile(FASHION, LOSS + f"shapes: {{batch: {batch + 1}}}\n", "more", "--memory", budget, code=3)

    def test_budget_below_the_state_names_what_fills_it(self):
        out, _ = self.fit(DECODER, "--memory", 1000, "--no-search", code=3)
        self.assertGreater(out["state_bytes"], 1000)
        errors = self.compile(DECODER, LOSS, "below", "--memory", 1000, code=3)[1]
        self.assertRegex(errors, r"filled by .*parameters \d+")

    def test_what_is_wrong_is_said(self):
        _, errors = self.fit(DECODER, "--memory", "much", code=2)
        self.assertIn("expected bytes or a size such as 8GiB", errors)
        _, errors = self.fit(DECODER, "--device", "a100", code=1)
        self.assertIn("expected one of cpu, a100-40", errors)
        _, errors = self.fit(DECODER, "--ranks", -2, code=2)
        self.assertIn("expected 1 to 4096", errors)

    def test_picture(self):
        path = self.dir / "curve.svg"
        out, _ = self.fit(DECODER, "--memory", "1GiB", "--no-search", "--svg", path)
        text = path.read_text()
        self.assertEqual(text.count("<circle"), len(out["curve"]))
        for point in out["curve"]:
            self.assertIn(f"{point['budget_bytes']} bytes", text)


class Ranks(FitTest):
    SLOW = "name: slow\nranks: {rate: 1e6, latency_us: 0.1}\n"
    CNN = ROOT / "tests" / "models" / "small-cnn.onnx"

    def test_a_table_of_ranks_budgets_and_devices(self):
        slow = self.dir / "slow.yaml"
        slow.write_text(self.SLOW)
        spec = LOSS + "optimizer: {kind: adamw}\n"
        picture = self.dir / "ranks.svg"
        out, _ = self.fit(self.CNN, "--ranks", "1,2,4", "--memory", "1GiB,100KiB", "--device", f"a100-80,{slow}", "--points", 0, "--svg", picture, spec=spec)
        rows = {(row["device"], row["ranks"], row["budget_bytes"]): row for row in out["table"]}
        self.assertEqual(len(rows), 12)
        large, small = 1 << 30, 100 << 10
        for (device, ranks, budget), row in rows.items():
            self.assertEqual(row["fits"], budget == large)
            self.assertAlmostEqual(sum(row["bound_shares"].values()), 1, places=6)
            self.assertEqual(row["enough_link"] is None, ranks == 1)
            self.assertEqual("link" in row["bound_shares"], row["wait_share"] > 0)
            self.assertGreater(row["bound_shares"]["optimizer"], 0)
        # What a row says is what fit says of it alone, and compile.
        alone, _ = self.fit(self.CNN, "--ranks", 2, "--memory", "1GiB", "--device", slow, "--points", 0, "--no-search", spec=spec)
        row = rows["slow", 2, large]
        self.assertAlmostEqual(row["step_us"], alone["step_us"], delta=1e-6 * row["step_us"])
        self.assertEqual(row["arena_bytes"], alone["arena_bytes"])
        self.assertEqual(row["enough_link"], alone["enough_link"])
        _, report = self.compile(self.CNN, spec, "two", "--ranks", 2, "--device", slow)
        self.assertAlmostEqual(row["step_us"], report["step_us"], delta=1e-6 * row["step_us"])
        # Ranks see as many samples each; a slow link eats what they bring.
        self.assertEqual(row["bound_by"], "link")
        self.assertLess(rows["slow", 4, large]["samples_per_second"], rows["slow", 1, large]["samples_per_second"])
        self.assertGreater(rows["a100-80", 4, large]["samples_per_second"], rows["a100-80", 1, large]["samples_per_second"])
        # The link that is said to be enough is.
        enough = row["enough_link"]
        self.assertFalse(enough["is_there"] or enough["needs_latency"])
        slow.write_text(self.SLOW.replace("1e6", f"{enough['bytes_per_second']:.0f}"))
        again, _ = self.fit(self.CNN, "--ranks", 2, "--device", slow, "--points", 0, "--no-search", spec=spec)
        self.assertLess(again["bound_shares"].get("link", 0), 0.06)
        text = picture.read_text()
        self.assertEqual((text.count("<circle"), text.count("<polyline")), (12, 4))

    def test_shards_take_less(self):
        spec = LOSS + "optimizer: {kind: adamw}\n"
        out, _ = self.fit(self.CNN, "--ranks", "1,2", "--zero", "0,1", "--points", 0, "--threads", 1, spec=spec)
        self.assertEqual([(row["ranks"], row["zero"]) for row in out["table"]], [(1, None), (2, "0"), (2, "1")])
        whole, shards = out["table"][1:]
        self.assertLess(shards["arena_bytes"], whole["arena_bytes"])
        _, report = self.compile(self.CNN, spec + "threads: 1\nparallel: {data: 2, zero: 1}\n", "shards")
        self.assertEqual(shards["arena_bytes"], report["arena_bytes"])
        self.assertAlmostEqual(shards["step_us"], report["step_us"], delta=0.01 * report["step_us"])

    def test_nodes_are_joined_by_their_own_link(self):
        spec = LOSS + "optimizer: {kind: adamw}\n"
        out, _ = self.fit(self.CNN, "--ranks", "8,16", "--device", "a100-80", "--points", 0, spec=spec)
        inside, across = out["table"]
        self.assertEqual([row["enough_link"]["between_nodes"] for row in out["table"]], [False, True])
        self.assertGreater(across["step_us"], inside["step_us"])

    def test_wrong_lists_are_refused(self):
        for options, message in ((("--ranks", "1,two"), "--ranks two: expected 1 to 4096"), (("--ranks", "1,,2"), "--ranks"),
                                 (("--memory", "1GiB,lots"), "--memory 'lots'"), (("--ranks", "0,1"), "--ranks 0: expected 1 to 4096")):
            self.assertIn(message, self.fit(self.CNN, *options, code=2)[1])
        self.assertIn("unknown device 'a99'", self.fit(self.CNN, "--device", "cpu,a99", code=1)[1])
        for options in (("--ranks", ""), ("--zero", ""), ("--points", -4)):
            self.assertIn(options[0], self.fit(self.CNN, *options, code=2)[1])

    def test_what_is_given_twice_is_a_row_once(self):
        out, _ = self.fit(self.CNN, "--ranks", "1,2,1", "--zero", "0,1,0", "--memory", "1GiB,1024MiB", "--points", 0)
        self.assertEqual([(row["ranks"], row["zero"]) for row in out["table"]], [(1, None), (2, "0"), (2, "1")])


class Offload(FitTest):
    SPEC = LOSS + "memory: {offload: auto}\n"

    def test_smallest_budget_is_what_compile_meets(self):
        out, _ = self.fit(DECODER, "--memory", "300KiB", "--no-search", "--points", 3, spec=self.SPEC)
        self.check_curve(out)
        smallest = out["smallest_budget_bytes"]
        self.assertLess(smallest, out["state_bytes"], "without offload the state alone is more")
        errors = self.compile(DECODER, self.SPEC, "below", "--memory", smallest - 1, code=3)[1]
        self.assertIn(f"smallest that can be met is {smallest} bytes", errors)
        for point in out["curve"][:2]:
            _, report = self.compile(DECODER, self.SPEC, "point", "--memory", point["budget_bytes"])
            self.assertLessEqual(report["step_us"], point["step_us"] * (1 + 1e-9))

    def test_the_link_is_a_resource_and_the_hosts_memory_counts(self):
        slow = self.dir / "slow-link.yaml"
        slow.write_text("name: slow-link\nlink: {rate: 1e8}\n")
        bounds = {}
        for name, device in (("cpu", "cpu"), ("slow", slow)):
            out, _ = self.fit(DECODER, "--memory", "250KiB", "--no-search", "--points", 0, "--device", device, spec=self.SPEC)
            self.assertTrue(out["fits"])
            self.assertAlmostEqual(sum(out["bound_shares"].values()), 1, places=6)
            self.assertGreater(out["link_busy"], 0)
            moved = next(item["bytes"] for item in out["host"] if item["name"] == "tensors that leave the device")
            self.assertGreaterEqual(moved + out["arena_bytes"], out["state_bytes"])
            self.assertGreaterEqual(out["host_bytes"], moved)
            bounds[name] = out["bound_shares"]["link"]
        self.assertEqual(out["bound_by"], "link")
        self.assertGreater(bounds["slow"], bounds["cpu"])
        kept, _ = self.fit(DECODER, "--memory", "1GiB", "--no-search", "--points", 0, spec=self.SPEC)
        self.assertNotIn("link", kept["bound_shares"])
        self.assertEqual((kept["link_busy"], len(kept["host"])), (0, 1))

    def test_moments_that_always_leave(self):
        spec = LOSS + "memory: {offload: host}\n"
        out, _ = self.fit(DECODER, "--no-search", "--points", 0, spec=spec)
        _, report = self.compile(DECODER, spec, "host")
        self.assertTrue(all(point["host_bytes"] >= report["arena"]["host"] for point in out["curve"]))
        self.assertLessEqual(out["curve"][-1]["step_us"], report["step_us"] * (1 + 1e-9))


class Variants(FitTest):
    def check_rows(self, out, report):
        keys = ("name", "budget_bytes", "arena_bytes", "step_us")
        self.assertEqual([{key: row[key] for key in keys} for row in out["variants"]], [{key: row[key] for key in keys} for row in report["variants"]])

    def test_rungs_of_the_ladder_are_those_of_compile(self):
        for memory in ("ladder: [1.0, 0.8]", "offload: auto, ladder: [1.0, 0.5]"):
            spec = LOSS + f"memory: {{{memory}}}\n"
            out, _ = self.fit(DECODER, "--no-search", "--points", 0, spec=spec)
            self.assertTrue(out["fits"])
            self.check_rows(out, self.compile(DECODER, spec, "shares")[1])
        smallest = out["smallest_budget_bytes"]
        least, _ = self.fit(DECODER, "--memory", smallest, "--no-search", "--points", 0, spec=spec)
        self.check_rows(least, self.compile(DECODER, spec, "least", "--memory", smallest)[1])
        refused, _ = self.fit(DECODER, "--memory", smallest - 1, "--no-search", "--points", 0, spec=spec, code=3)
        self.assertEqual([row["fits"] for row in refused["variants"]], [True, False])

    def test_every_shape_is_planned_and_the_largest_decides(self):
        model = ROOT / "tests" / "models" / "bucket-decoder.onnx"
        spec = "loss: {kind: cross_entropy, logits: logits}\nshapes: [{batch: 4, T: 64}, {batch: 4, T: 128}]\n"
        out, _ = self.fit(model, "--no-search", "--points", 2, spec=spec)
        small, large = out["shapes"]
        self.assertEqual([small["name"], large["name"]], ["T=64", "T=128"])
        self.assertLess(small["smallest_budget_bytes"], large["smallest_budget_bytes"])
        self.assertEqual(out["smallest_budget_bytes"], large["smallest_budget_bytes"])
        self.assertEqual(out["curve"], large["curve"])
        smallest = out["smallest_budget_bytes"]
        fitted, _ = self.fit(model, "--memory", smallest, "--points", 0, spec=spec)
        self.check_rows(fitted, self.compile(model, spec, "least", "--memory", smallest)[1])
        self.compile(model, spec, "below", "--memory", smallest - 1, code=3)
        # At the smallest budget of the larger shape, that has no room to grow, and the smaller one has.
        self.assertEqual(fitted["shapes"][1]["largest_batch"], 4)
        self.assertEqual(fitted["shapes"][1]["longest_sequence"], 128)
        batch = fitted["shapes"][0]["largest_batch"]
        self.assertGreater(batch, 4)
        for size, code in ((batch, 0), (batch + 1, 3)):
            wider = spec.replace("batch: 4, T: 64", f"batch: {size}, T: 64")
            self.compile(model, wider, "wider", "--memory", smallest, code=code)

    def test_a_budget_of_the_spec_is_the_one_asked_for(self):
        out, _ = self.fit(DECODER, "--no-search", "--points", 0, spec=LOSS + "memory: {budget: 1000}\n", code=3)
        self.assertEqual((out["budget_bytes"], out["fits"]), (1000, False))


class Devices(FitTest):
    def test_each_gpu_is_planned_for_and_refused_by_compile(self):
        totals = {}
        for device in DEVICES:
            out, _ = self.fit(FASHION, "--device", device, "--no-search", "--points", 0, spec=LOSS + "shapes: {batch: 8}\n")
            self.assertTrue(out["fits"], device)
            context = sum(item["bytes"] for item in out["device"]["context"])
            self.assertGreaterEqual(len(out["device"]["context"]), 3)
            self.assertEqual(out["device_total_bytes"], out["arena_bytes"] + context)
            self.assertEqual(out["budget_bytes"], out["device"]["memory_bytes"] - context)
            self.assertAlmostEqual(sum(out["bound_shares"].values()), 1, places=6)
            self.assertIn(out["bound_by"], out["bound_shares"])
            totals[device] = out["step_us"]
        self.assertLess(totals["b200"], totals["v100-32"])
        errors = self.compile(DECODER, LOSS, "gpu", "--device", "a100-80", code=1)[1]
        self.assertIn("not yet supported", errors)
        self.assertFalse((self.dir / "gpu.plan").exists())

    def test_a_profile_is_an_input_and_changes_predictions_only(self):
        slow = self.dir / "device.yaml"
        slow.write_text("name: slow\nproduct: {flops: 1e9}\n")
        plan, report = self.compile(DECODER, LOSS, "usual")
        other, slower = self.compile(DECODER, LOSS, "slow", "--device", slow)
        self.assertGreater(slower["step_us"], 2 * report["step_us"])
        self.assertEqual(slower["arena_bytes"], report["arena_bytes"])
        again, _ = self.compile(DECODER, LOSS, "again", "--device", slow)
        self.assertEqual(other.read_bytes(), again.read_bytes())
        slow.write_text("bandwith: []\n")
        errors = self.compile(DECODER, LOSS, "wrong", "--device", slow, code=1)[1]
        self.assertIn("device.yaml:1:1: unknown key 'bandwith'", errors)

    def test_calibrate_writes_a_profile_that_compile_takes(self):
        profile = self.dir / "device.yaml"
        out, _ = self.run_sluice("calibrate", "--threads", 1, "--seconds", 0.01, "-o", profile)
        self.assertGreaterEqual(len(out["networks"]), 6)
        self.assertEqual(out["profile"], profile.read_text())
        self.assertRegex(profile.read_text(), r"# Measured by sluice calibrate on ")
        _, report = self.compile(DECODER, LOSS, "here", "--device", profile)
        self.assertGreater(report["step_us"], 0)


class WithoutWeights(FitTest):
    """Billions of parameters in little memory: no value of a weight is ever in it."""

    LIMIT = 1 << 31  # bytes of data; a 7B decoder's weights alone have 27e9

    def make(self, name, *options):
        script = ROOT / "examples" / "large-models" / "make.py"
        subprocess.run([sys.executable, script, name, "-o", self.dir, *map(str, options)], check=True, capture_output=True)
        return self.dir / f"{name}.onnx"

    def fit_limited(self, model, *options):
        spec = ROOT / "examples" / "large-models" / "train.yaml"
        command = [SLUICE, "fit", model, "--spec", spec, *map(str, options), "--json"]
        limit = lambda: resource.setrlimit(resource.RLIMIT_DATA, (self.LIMIT, self.LIMIT))
        return subprocess.run(command, capture_output=True, text=True, preexec_fn=limit, timeout=600)

    def test_a_few_layers_of_65_billion(self):
        import json
        model = self.make("llama-65b", "--layers", 2)
        done = self.fit_limited(model, "--device", "b200", "--no-search", "--points", 1, "--shape", "sequence=256")
        self.assertEqual(done.returncode, 0, done.stderr)
        out = json.loads(done.stdout)
        width, inner, vocabulary = 8192, 22016, 32000
        elements = 2 * vocabulary * width + width + 2 * (4 * width * width + 3 * width * inner + 2 * width)
        self.assertEqual(out["arena"]["optimizer"], 2 * 4 * elements)
        self.assertTrue(out["fits"])
        self.check_curve(out)
        self.assertTrue(any("absent" in note for note in out["notes"]), out["notes"])

    def test_bert_large_at_512_and_1024(self):
        """A few of its layers: what running again saves of the step's bytes; bench/lengths.py has all."""
        model = self.make("bert-large", "--layers", 4)
        spec = (ROOT / "examples" / "large-models" / "train.yaml").read_text()
        for length in (512, 1024):
            out, _ = self.fit(model, "--shape", "batch=8", "--shape", f"sequence={length}", "--memory", "1TiB", "--no-search", "--points", 0, spec=spec)
            kept, least = (out[key] - out["state_bytes"] for key in ("unconstrained_arena_bytes", "smallest_budget_bytes"))
            self.assertLess(least, 0.6 * kept, length)
            self.assertGreater(least, 0, length)

    def test_compile_still_needs_the_weights(self):
        model = self.make("llama-7b", "--layers", 1)
        spec = (ROOT / "examples" / "large-models" / "train.yaml").read_text()
        errors = self.compile(model, spec, "absent", "--shape", "sequence=16", code=1)[1]
        self.assertIn("'weights.bin' is missing beside the model", errors)


if __name__ == "__main__":
    unittest.main()
