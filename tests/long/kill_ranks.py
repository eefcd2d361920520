#!/usr/bin/env python3
"""Ranks over MPI that are killed, stopped or slowed at random: the others name the rank within the timeout, the last
checkpoint is whole, and the run that goes on from it ends with the bits of an undisturbed one.

    python3 tests/long/kill_ranks.py [RUNS] [--ranks N] [--seed S]

Not part of ctest: it takes about three seconds a run. Needs Open MPI's launcher and build/tools/sluice."""
import argparse
import os
import pathlib
import random
import re
import signal
import subprocess
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SLUICE = os.environ.get("SLUICE", str(ROOT / "build/tools/sluice"))
SPEC = """loss: {kind: cross_entropy, logits: logits, labels: labels}
optimizer: {kind: adamw, lr: 1.0e-3}
seed: 3
threads: 1
parallel: {data: RANKS}
comm: {timeout_s: 1}
"""


class Job:
    """A plan and its data in a folder, and runs of it."""

    def __init__(self, folder, ranks):
        self.folder, self.ranks = pathlib.Path(folder), ranks
        numbers = np.random.default_rng(5)
        np.save(self.folder / "images.npy", numbers.random((40, 1, 28, 28), np.float32))
        np.save(self.folder / "labels.npy", numbers.integers(0, 10, 40))
        (self.folder / "spec.yaml").write_text(SPEC.replace("RANKS", str(ranks)))
        model = ROOT / "tests/models/small-cnn.onnx"
        subprocess.run([SLUICE, "compile", model, "--spec", "spec.yaml", "-o", "model.plan"], cwd=folder, check=True, capture_output=True)

    def start(self, checkpoint, *more):
        root = ["--allow-run-as-root"] if os.getuid() == 0 else []
        command = ["mpirun", *root, "--oversubscribe", "--bind-to", "none", "--enable-recovery", "-n", str(self.ranks), SLUICE, "train",
                   "model.plan", "--data", "images=npy:images.npy", "--data", "labels=npy:labels.npy", "--epochs", "400", "--comm", "mpi",
                   "--checkpoint", checkpoint, "--checkpoint-every", "40", *more]
        return subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def state(self, checkpoint):
        """The bytes of the newest checkpoint, its parts included."""
        files = sorted((self.folder / checkpoint).glob("step-*.safetensors"))
        step = files[-1].name.split(".")[0]
        return {re.sub(r"\.\d+\.safetensors$", "", file.name): file.read_bytes() for file in files
                if file.name.startswith(step) and ".rank-" in file.name} or files[-1].read_bytes()


def rank_processes(launcher):
    """By rank: the launcher's children."""
    found = {}
    try:
        for task in pathlib.Path(f"/proc/{launcher.pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                words = pathlib.Path(f"/proc/{child}/environ").read_bytes().decode().split("\0")
                for word in words:
                    if word.startswith("OMPI_COMM_WORLD_RANK="):
                        found[int(word.split("=")[1])] = int(child)
    except (FileNotFoundError, ProcessLookupError):  # ended meanwhile
        pass
    return found


def disturb(job, checkpoint, dice, options):
    """Gives what was done to which rank, and what the ranks wrote."""
    launcher = job.start(checkpoint, *options)
    time.sleep(dice.uniform(0.5, 1.5))
    victim, deed = dice.randrange(job.ranks), dice.choice(["killed", "stopped", "slowed"])
    process = rank_processes(launcher).get(victim)
    if process is None:
        deed = "missed"
    elif deed == "killed":
        os.kill(process, signal.SIGKILL)
    else:
        os.kill(process, signal.SIGSTOP)
        time.sleep(0.3 if deed == "slowed" else 2.5)
        os.kill(process, signal.SIGCONT if deed == "slowed" else signal.SIGKILL)
    output, _ = launcher.communicate(timeout=120)
    return victim, deed, output


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=int, nargs="?", default=200)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    dice, counts = random.Random(arguments.seed), {}
    with tempfile.TemporaryDirectory() as folder:
        job = Job(folder, arguments.ranks)
        expected = {}
        for options in ((), ("--checkpoint-shards",)):
            name = "undisturbed" + "".join(options)
            output, _ = job.start(name, *options).communicate(timeout=120)
            assert "checkpoint:" in output, output
            expected[options] = job.state(name)
        for run in range(arguments.runs):
            options = dice.choice(list(expected))
            checkpoint = f"run{run}"
            victim, deed, output = disturb(job, checkpoint, dice, options)
            # A rank that is killed behind the last update of all has left nothing undone, and no one misses it.
            ended = "trained" in output or ("error: " not in output and job.state(checkpoint) == expected[options])
            if deed in ("killed", "stopped") and not ended:
                named = rf"error: .*rank(s [\d, and]*| ){victim}\b.* of {arguments.ranks}\b|MPI did not start"
                assert re.search(named, output), (victim, deed, output)
            elif deed == "slowed":
                assert ended, (victim, deed, output)
            if not ended:
                resumed, _ = job.start(checkpoint, "--resume", *options).communicate(timeout=120)
                assert "trained" in resumed, resumed
            assert job.state(checkpoint) == expected[options], (victim, deed, output)
            what = "ended before" if ended and deed != "slowed" else deed
            counts[what] = counts.get(what, 0) + 1
            print(f"{run + 1} of {arguments.runs}: rank {victim} {what}", flush=True)
    print(f"{arguments.runs} runs of {arguments.ranks} ranks end with the same bits: " +
          ", ".join(f"{count} {what}" for what, count in sorted(counts.items())))


if __name__ == "__main__":
    main()
