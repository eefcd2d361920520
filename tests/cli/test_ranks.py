"""Several ranks as threads: the bits of one rank that plays them all, and clear ends when one of them fails."""
import json
import pathlib
import shutil
import subprocess
import sys
import threading
import unittest

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import capi  # noqa: E402
from budgets import BudgetTest  # noqa: E402
from harness import ROOT, SLUICE, newest_checkpoint, read_checkpoint, read_safetensors  # noqa: E402

MODELS = ROOT / "tests" / "models"
CNN = MODELS / "small-cnn.onnx"
DECODER = MODELS / "small-decoder.onnx"
FASHION = ROOT / "examples" / "fashion-mnist" / "fashion-cnn.onnx"
LOSS = "loss: {kind: cross_entropy, logits: logits, labels: labels}\n"
ADAM = "optimizer: {kind: adamw, lr: 1.0e-2}\nclip: {kind: global_norm, max: 1.0}\nseed: 3\nthreads: 1\n"


class RanksTest(BudgetTest):
    def state(self, folder):
        return {key: tensor.tobytes() for key, tensor in read_checkpoint(newest_checkpoint(folder)).items()}

    def run_epochs(self, plan, data, name, *more):
        folder = self.dir / f"run-{name}"
        out, _ = self.run_sluice("train", plan, *data, "--epochs", 2, "--losses", "--checkpoint", folder, *more)
        return out, self.state(folder)


class SameBits(RanksTest):
    def check(self, model, spec, data, ranks, per_rank):
        spec = LOSS + ADAM + spec
        many, report = self.compile(model, spec + f"accumulate: {per_rank}\nparallel: {{data: {ranks}}}\n", f"many{ranks}x{per_rank}")
        alone, _ = self.compile(model, spec + f"accumulate: {{count: {ranks * per_rank}, as_ranks: {ranks}}}\n", f"alone{ranks}x{per_rank}")
        out, state = self.run_epochs(many, data, f"many{ranks}x{per_rank}", "--comm", "local", "--measure")
        expected, expected_state = self.run_epochs(alone, data, f"alone{ranks}x{per_rank}")
        self.assertEqual(out["losses"], expected["losses"])
        self.assertEqual(state, expected_state)
        self.assertEqual(out["ranks"], ranks)
        self.assertEqual(out["allocations_in_steps"], 0)
        self.assertLessEqual(out["arena_bytes_measured"], report["arena_bytes"])
        return many

    def test_an_epoch_ends_in_the_middle_of_a_window(self):
        # 45 samples in batches of 8: five full ones and one of five.
        random = np.random.default_rng(5)
        data = self.data(images=random.random((45, 1, 28, 28), np.float32), labels=random.integers(0, 10, 45))
        for ranks, per_rank in ((2, 1), (4, 1), (2, 3), (4, 3)):
            self.check(CNN, "", data, ranks, per_rank)

    def test_dropout_and_batch_norm(self):
        self.check(FASHION, "shapes: {batch: 8}\n", self.images(), 2, 1)

    def test_one_operation_a_kernel(self):
        data = self.images()
        for per_rank in (1, 2):
            spec = LOSS + ADAM + f"accumulate: {per_rank}\nparallel: {{data: 2}}\n"
            fused, _ = self.compile(CNN, spec, f"fused{per_rank}")
            single, _ = self.compile(CNN, spec, f"single{per_rank}", "--no-fuse")
            states = [self.run_epochs(plan, data, plan.stem)[1] for plan in (fused, single)]
            self.assertEqual(states[0], states[1])

    def test_decoder_in_bf16(self):
        self.check(DECODER, "precision: {compute: amp_bf16}\n", self.tokens(), 4, 1)

    def test_a_budget_with_recompute(self):
        data = self.tokens()
        spec = LOSS + ADAM + "parallel: {data: 2}\n"
        free, before = self.compile(DECODER, spec, "free")
        tight, after = self.compile(DECODER, spec + "memory: {budget: %d}\n" % (0.85 * before["arena_bytes"]), "tight")
        self.assertLess(after["arena_bytes"], before["arena_bytes"])
        self.assertEqual(self.run_epochs(free, data, "free")[1], self.run_epochs(tight, data, "tight")[1])

    def test_buckets_change_no_bit(self):
        data = self.images()
        states = []
        for i, bucket in enumerate(("auto", "1", "8MiB")):
            plan, _ = self.compile(CNN, LOSS + ADAM + f"parallel: {{data: 2}}\ncomm: {{bucket: {bucket}, window_ms: {i}}}\n", f"bucket{i}")
            states.append(self.run_epochs(plan, data, f"bucket{i}")[1])
        self.assertEqual(states[0], states[1])
        self.assertEqual(states[0], states[2])

    def test_resume_and_evaluation(self):
        data = self.images()
        plan, _ = self.compile(CNN, LOSS + ADAM + "parallel: {data: 2}\n", "resumed")
        straight = self.run_epochs(plan, data, "straight")[1]
        folder = self.dir / "resumed"
        evaluation = [word if word != "--data" else "--eval-data" for word in data]
        out, _ = self.run_sluice("train", plan, *data, *evaluation, "--eval-every", 2, "--epochs", 1, "--checkpoint", folder)
        self.assertIn("loss", out["eval"])
        self.run_sluice("train", plan, *data, "--epochs", 2, "--checkpoint", folder, "--resume")
        self.assertEqual(self.state(folder), straight)
        # A checkpoint of two ranks goes on in a plan of one, and evaluates there.
        one, _ = self.compile(CNN, LOSS + ADAM, "one")
        self.run_sluice("eval", one, *data, "--checkpoint", folder)
        self.run_sluice("eval", plan, *data, "--checkpoint", folder)


class Zero(RanksTest):
    """Ranks that share out moments, masters and updates."""

    def compile_zero(self, zero, more="", name="", ranks=2):
        spec = LOSS + ADAM + f"parallel: {{data: {ranks}, zero: {zero}}}\n" + more
        return self.compile(CNN, spec, f"zero{zero}x{ranks}{name}")

    def test_the_bits_of_plain_ranks_in_fewer_bytes(self):
        data = self.images()
        plain, before = self.compile_zero(0)
        expected, state = self.run_epochs(plain, data, "plain", "--measure")
        for zero in (1, 2):
            plan, report = self.compile_zero(zero)
            out, shared = self.run_epochs(plan, data, f"zero{zero}", "--measure")
            self.assertEqual(out["losses"], expected["losses"])
            self.assertEqual(shared, state)
            self.assertEqual(out["allocations_in_steps"], 0)
            self.assertLessEqual(out["arena_bytes_measured"], report["arena_bytes"])
            self.assertTrue(any(note.startswith("zero: ") for note in report["notes"]), report["notes"])
            # Two moments of 4 bytes, of which a rank has half: 4 bytes a parameter less, but for lines and small tensors.
            parameters = sum(len(state[name]) // 4 for name in state if name.startswith("opt/") and name.endswith("/m"))
            saved = before["state_bytes"] - report["state_bytes"]
            self.assertGreater(saved, 0.95 * 4 * parameters)
            self.assertLess(saved, 1.01 * 4 * parameters)

    def test_goes_on_with_other_numbers_of_ranks(self):
        data = self.images()
        two, _ = self.compile_zero(1)
        straight = self.run_epochs(two, data, "straight")[1]
        folders = {}
        for ranks, zero in ((2, 1), (2, 0), (4, 2), (1, 0)):
            plan, _ = self.compile_zero(zero, name="goes-on", ranks=ranks)
            folder = folders[ranks, zero] = self.dir / f"goes-on-{ranks}-{zero}"
            self.run_sluice("train", two, *data, "--epochs", 1, "--checkpoint", folder)
            first = self.state(folder)
            out, _ = self.run_sluice("train", plan, *data, "--epochs", 2, "--checkpoint", folder, "--resume")
            self.assertGreater(out["steps"], 0)
            self.assertNotEqual(self.state(folder), first)
        self.assertEqual(self.state(folders[2, 1]), straight)
        self.assertEqual(self.state(folders[2, 0]), straight)
        # Back from a plain checkpoint.
        self.run_sluice("train", two, *data, "--epochs", 3, "--checkpoint", folders[2, 0], "--resume")
        self.run_sluice("train", two, *data, "--epochs", 3, "--checkpoint", folders[2, 1], "--resume")
        self.assertEqual(self.state(folders[2, 0]), self.state(folders[2, 1]))

    def test_masters_best_checkpoint_and_export(self):
        data = self.images()
        evaluation = [word if word != "--data" else "--eval-data" for word in data]
        exported = []
        for zero in (0, 1):
            plan, _ = self.compile_zero(zero, "precision: {compute: amp_bf16, master: split}\n", "amp")
            folder = self.dir / f"amp{zero}"
            self.run_sluice("train", plan, *data, *evaluation, "--eval-every", 2, "--epochs", 1, "--keep-best", "loss", "--checkpoint", folder)
            weights = self.dir / f"weights{zero}.safetensors"
            self.run_sluice("export", plan, "--checkpoint", folder / "best", "-o", weights)
            exported.append({name: tensor.tobytes() for name, tensor in read_safetensors(weights).items()})
            self.assertTrue(all(tensor.dtype == np.float32 for tensor in read_safetensors(weights).values()))
            self.run_sluice("eval", plan, *data, "--checkpoint", folder)
        self.assertEqual(exported[0], exported[1])


class Prediction(RanksTest):
    def test_slower_links_give_slower_steps(self):
        profile = (ROOT / "frontend" / "devices" / "cpu.yaml").read_text()
        times = []
        for rate in ("8e9", "1e8", "1e6"):
            path = self.dir / f"device-{rate}.yaml"
            path.write_text(profile.replace("ranks: {rate: 8e9", f"ranks: {{rate: {rate}"))
            (self.dir / "spec.yaml").write_text(LOSS + ADAM)
            fit, _ = self.run_sluice("fit", CNN, "--spec", self.dir / "spec.yaml", "--ranks", 2, "--device", path, "--no-search")
            plan, report = self.compile(CNN, LOSS + ADAM, f"link-{rate}", "--ranks", 2, "--device", path)
            self.assertEqual(fit["ranks"], 2)
            self.assertAlmostEqual(fit["curve"][-1]["step_us"], report["step_us"], delta=1e-6 * report["step_us"])
            self.assertTrue(any(note.startswith("comm: ") for note in report["notes"]), report["notes"])
            times.append(report["step_us"])
        self.assertLess(times[0], times[1])
        self.assertLess(times[1], times[2])
        # At 1 MB/s nothing but the link counts: the gradients' bytes, there and back in one round.
        self.assertGreater(times[2], 2 * 69832 / 1e6 * 1e6 * 0.4)

    def test_a_rank_without_samples_needs_no_state_for_its_zeros(self):
        for zero in (0, 1):
            _, report = self.compile(CNN, LOSS + ADAM, "zeros", "--ranks", 2, "--set", f"parallel.zero={zero}")
            self.assertLess(report["state"].get("constant", 0), 2048)


class CApi(RanksTest):
    """A service with threads of its own."""

    def saved(self, session, name):
        session.save(self.dir / f"saved-{name}")
        return self.state(self.dir / f"saved-{name}")

    def test_threads_share_updates(self):
        random = np.random.default_rng(5)
        batches = [(random.random((8, 1, 28, 28), np.float32), random.integers(0, 10, 8)) for _ in range(12)]
        many, _ = self.compile(FASHION, LOSS + ADAM + "shapes: {batch: 8}\naccumulate: 2\nparallel: {data: 2}\n", "many")
        alone, _ = self.compile(FASHION, LOSS + ADAM + "shapes: {batch: 8}\naccumulate: {count: 4, as_ranks: 2}\n", "alone")
        expected = capi.Session(alone)
        for batch in batches:
            last = expected.step(*batch)
        comms, found, errors = capi.local_comms(2), {}, []

        def work(rank):
            try:
                session = capi.Session(many, comms[rank])
                session.agree()
                for window in range(3):
                    for k in range(2):
                        result = session.step(*batches[4 * window + 2 * rank + k])
                found[rank] = (result.window_loss_sum, result.grad_norm, self.saved(session, rank))
                session.close()
            except Exception as error:  # shown by the test's thread
                errors.append(error)

        threads = [threading.Thread(target=work, args=(rank,)) for rank in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])
        for comm in comms:
            capi.destroy_comm(comm)
        for rank in (0, 1):
            self.assertEqual(found[rank][0], last.window_loss_sum)
            self.assertEqual(found[rank][1], last.grad_norm)
            self.assertEqual(found[rank][2], self.saved(expected, "alone"))

    def test_processes_may_meet_at_a_file(self):
        plan, _ = self.compile(CNN, LOSS + ADAM + "parallel: {data: 2}\n", "tcp")
        random = np.random.default_rng(5)
        batches = [(random.random((8, 1, 28, 28), np.float32), random.integers(0, 10, 8)) for _ in range(2)]

        def run(make):
            losses = {}

            def work(rank):
                comm = make(rank)
                session = capi.Session(plan, comm)
                losses[rank] = session.step(*batches[rank]).window_loss_sum
                session.close()
                capi.destroy_comm(comm)

            threads = [threading.Thread(target=work, args=(rank,)) for rank in (0, 1)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return losses

        local = capi.local_comms(2)
        expected = run(lambda rank: local[rank])
        self.assertEqual(len(expected), 2)
        self.assertEqual(run(lambda rank: capi.tcp_comm(f"file:{self.dir / 'meeting'}", rank, 2)), expected)
        with self.assertRaisesRegex(RuntimeError, "no place to meet"):
            capi.tcp_comm("nowhere", 0, 2)

    def test_wrong_groups(self):
        plan, _ = self.compile(CNN, LOSS + ADAM + "parallel: {data: 2}\n", "two")
        with self.assertRaisesRegex(RuntimeError, "for 2 ranks, the communicator has 1"):
            capi.Session(plan, capi.local_comms(1)[0])
        with self.assertRaisesRegex(RuntimeError, "timeout"):
            capi.local_comms(2, -1.0)
        with self.assertRaisesRegex(RuntimeError, "rank"):
            capi.local_comms(0)
        session = capi.Session(plan)
        with self.assertRaisesRegex(RuntimeError, "has no communicator"):
            session.step(np.zeros((8, 1, 28, 28), np.float32), np.zeros(8, np.int64))
        session.close()


@unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun")
class Mpi(RanksTest):
    def mpirun(self, ranks, *arguments, code=0):
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks), SLUICE, *map(str, arguments), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if "MPI is not available" in done.stderr:
            self.skipTest("built without MPI")
        self.assertEqual(done.returncode, code, done.stderr[-4000:])
        return done

    def test_processes_give_the_bits_of_threads(self):
        data = self.images()
        plan, _ = self.compile(CNN, LOSS + ADAM + "accumulate: 2\nparallel: {data: 2}\n", "mpi")
        expected, state = self.run_epochs(plan, data, "threads")
        folder = self.dir / "processes"
        done = self.mpirun(2, "train", plan, *data, "--epochs", 2, "--losses", "--checkpoint", folder, "--comm", "mpi")
        self.assertEqual(json.loads(done.stdout)["losses"], expected["losses"])
        self.assertEqual(self.state(folder), state)

    def test_too_many_ranks(self):
        plan, _ = self.compile(CNN, LOSS + ADAM + "parallel: {data: 2}\n", "mpi")
        done = self.mpirun(3, "train", plan, *self.images(), "--steps", 1, "--comm", "mpi", code=2)
        self.assertIn("the plan is for 2 ranks, the communicator has 3", done.stderr)


class Refusals(RanksTest):
    def test_what_is_not_there_yet_is_named(self):
        for spec, message in (("parallel: {data: 2, zero: 3}\n", "'parallel.zero: 3' is not yet supported"),
                              ("parallel: {data: 2, tensor: 2}\n", "'parallel.tensor: 2' is not yet supported"),
                              ("parallel: {data: 2, schedule: 1f1b}\n", "parallel.schedule"),
                              ("parallel: {data: 2}\nmemory: {offload: host}\n", "'memory.offload: host' is not yet supported"),
                              ("parallel: {data: 2}\nmemory: {ladder: [1.0, 0.9]}\n", "'memory.ladder' is not yet supported"),
                              ("parallel: {data: 2}\naccumulate: {count: 2, as_ranks: 2}\n", "'accumulate.as_ranks'"),
                              ("comm: {bucket: big}\n", "'comm.bucket' is 'big'")):
            self.assertIn(message, self.compile(CNN, LOSS + ADAM + spec, "refused", code=1)[1])

    def test_another_communicator(self):
        plan, _ = self.compile(CNN, LOSS + ADAM, "one", "--ranks", 2)
        _, errors = self.run_sluice("train", plan, *self.images(), "--steps", 1, "--comm", "nccl", code=2)
        self.assertIn("--comm nccl is not yet supported", errors)
        self.assertIn("--ranks 0: expected 1 to 4096", self.compile(CNN, LOSS + ADAM, "none", "--ranks", 0, code=2)[1])

    def test_bad_data_ends_the_run_and_leaves_the_checkpoint(self):
        random = np.random.default_rng(5)
        images = random.random((40, 1, 28, 28), np.float32)
        good = self.data(images=images, labels=random.integers(0, 10, 40))
        plan, _ = self.compile(CNN, LOSS + ADAM + "parallel: {data: 2}\ncomm: {timeout_s: 20}\n", "bad")
        folder = self.dir / "run"
        self.run_sluice("train", plan, *good, "--no-shuffle", "--steps", 1, "--checkpoint", folder)
        before = self.state(folder)
        images[24:, 0, 3, 3] = np.nan  # the second micro-batch of the second update: rank 1's
        bad = self.data(images=images, labels=random.integers(0, 10, 40))
        _, errors = self.run_sluice("train", plan, *bad, "--no-shuffle", "--steps", 9, "--checkpoint", folder, "--resume", code=6)
        self.assertIn("rank 1 of 2 gave up", errors)
        self.assertIn("images", errors)
        self.assertEqual(self.state(folder), before)


if __name__ == "__main__":
    unittest.main()
