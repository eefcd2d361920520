"""Jobs of ranks side by side on one machine, and what is left when they have ended: nothing."""
import os
import pathlib
import shutil
import subprocess
import sys
import time
import unittest

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from budgets import BudgetTest  # noqa: E402
from harness import ROOT, SLUICE, newest_checkpoint  # noqa: E402

CNN = ROOT / "tests" / "models" / "small-cnn.onnx"
SPEC = """loss: {kind: cross_entropy, logits: logits, labels: labels}
optimizer: {kind: adamw, lr: 1.0e-2}
seed: %d
threads: 1
parallel: {data: 2}
comm: {timeout_s: 60}
"""


def lost_segments():
    """Segments of System V whose creator is gone."""
    table = pathlib.Path("/proc/sysvipc/shm")
    rows = [line.split() for line in table.read_text().splitlines()[1:]] if table.exists() else []
    return sorted(row[1] for row in rows if not os.path.exists(f"/proc/{row[4]}"))


def processes_with(word):
    """Processes whose environment has the word, but this one."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and int(entry) != os.getpid() and word.encode() in pathlib.Path(f"/proc/{entry}/environ").read_bytes():
                found.append(int(entry))
        except OSError:
            pass
    return found


class Jobs(BudgetTest):
    def setUp(self):
        super().setUp()
        self.temporary = self.dir / "temporary"
        self.temporary.mkdir()
        self.mark = f"SLUICE_TEST_JOB={self.dir}"
        random = np.random.default_rng(5)
        self.options = self.data(images=random.random((40, 1, 28, 28), np.float32), labels=random.integers(0, 10, 40))

    def start(self, kind, plan, name, *more):
        command = [SLUICE, "train", plan, *self.options, "--epochs", 4, "--checkpoint", self.dir / name, "--comm", kind, *more]
        if kind == "mpi":
            root = ["--allow-run-as-root"] if os.getuid() == 0 else []
            command = ["mpirun", *root, "--oversubscribe", "--bind-to", "none", "-n", 2, *command]
        # Open MPI's own files, shared memory included, where they can be told from those of other jobs.
        environment = dict(os.environ, TMPDIR=str(self.temporary), OMPI_MCA_btl_vader_backing_directory=str(self.temporary))
        environment.update([self.mark.split("=", 1)])
        return subprocess.Popen(list(map(str, command)), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def test_ranks_that_meet_at_a_file(self):
        plan, _ = self.compile(CNN, SPEC % 1, "plan")
        self.ended(self.start("local", plan, "threads"))
        place = f"file:{self.dir / 'meeting'}"
        jobs = [self.start(place, plan, "processes", "--rank", rank) for rank in (0, 1)]
        for job in jobs:
            self.ended(job)
        self.assertEqual(*[newest_checkpoint(self.dir / name).read_bytes() for name in ("threads", "processes")])
        self.assertFalse((self.dir / "meeting").exists())
        jobs = [self.start(place, plan, "ends", "--rank", rank, "--steps", 1 + rank) for rank in (0, 1)]
        for job in jobs:
            self.assertIn("rank 1 of 2 has another number of steps or epochs than rank 0", self.ended(job, 1))
        # Folders that are not one, before the first step; only where ranks write together.
        jobs = [self.start(place, plan, f"own{rank}", "--rank", rank, "--checkpoint-shards") for rank in (0, 1)]
        for rank, job in enumerate(jobs):
            self.assertIn(f"rank 1 of 2 does not see the folder '{self.dir / f'own{rank}'}'", self.ended(job, 1))
            self.assertEqual(list((self.dir / f"own{rank}").glob("*")), [])
        for options, message in ((("--comm", place), "needs --rank R"), (("--rank", 1), "--rank is for processes that meet"),
                                 (("--comm", place, "--rank", 2), "rank 2 of 2, expected 0 to"),
                                 (("--comm", "tcp:here", "--rank", 0), "'tcp:here' is no address, expected tcp:HOST:PORT")):
            self.assertIn(message, self.run_sluice("train", plan, *self.options, "--steps", 1, *options, code=2)[1])

    def ended(self, job, code=0):
        output, _ = job.communicate(timeout=300)
        if "MPI is not available" in output:
            self.skipTest("built without MPI")
        self.assertEqual(job.returncode, code, output)
        return output

    def check(self, kind):
        before = lost_segments()
        plans = [self.compile(CNN, SPEC % seed, f"seed{seed}")[0] for seed in (1, 2)]
        expected = []
        for i, plan in enumerate(plans):
            self.ended(self.start(kind, plan, f"alone{i}"))
            expected.append(newest_checkpoint(self.dir / f"alone{i}").read_bytes())
        self.assertNotEqual(*expected)
        for i, job in enumerate([self.start(kind, plan, f"beside{i}") for i, plan in enumerate(plans)]):
            self.ended(job)
        for i in range(2):
            self.assertEqual(newest_checkpoint(self.dir / f"beside{i}").read_bytes(), expected[i])
        # An end in order and one by bad input alike.
        self.options = self.data(images=np.full((40, 1, 28, 28), np.nan, np.float32), labels=np.zeros(40, np.int64))
        self.assertIn("images", self.ended(self.start(kind, plans[0], "bad"), code=self.BAD[kind]))
        for _ in range(600):  # what ends may still be ending
            if not processes_with(self.mark):
                break
            time.sleep(0.1)
        self.assertEqual(processes_with(self.mark), [])
        self.assertEqual(lost_segments(), before)
        self.assertEqual([name for name in os.listdir("/dev/shm") if "sluice" in name] if os.path.isdir("/dev/shm") else [], [])
        self.assertEqual([path for path in self.temporary.rglob("*") if not path.is_dir()], [])
        self.assertEqual(sorted(path.name for path in (self.dir / "bad").glob("*")) if (self.dir / "bad").exists() else [], [])

    # Bad data are an error of the input; which rank's code the launcher passes on is open, both have the same data.
    BAD = {"local": 5, "mpi": 5}

    def test_threads(self):
        self.check("local")

    @unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun")
    def test_processes(self):
        self.check("mpi")


if __name__ == "__main__":
    unittest.main()
