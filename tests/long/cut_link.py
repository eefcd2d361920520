#!/usr/bin/env python3
"""Two network name spaces of this machine stand for hosts, joined by one link that is cut while ranks train over MPI: both name
the other within the timeout, the last checkpoint is whole, and the run that goes on from it over the mended link ends with
the bits of an undisturbed one.

    sudo python3 tests/long/cut_link.py [RUNS] [--seed S]

Not part of ctest: needs the right to make name spaces, `ip`, Open MPI's launcher and build/tools/sluice."""
import argparse
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from kill_ranks import SLUICE, Job  # noqa: E402

HOSTS = ["10.77.0.1", "10.77.0.2"]
TIMEOUT = 1.0  # of a collective, as kill_ranks.py has it


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


class Hosts:
    """Name spaces `sluice-ADDRESS` with an end of the link each; what starts processes in them for mpirun."""

    def __init__(self, folder):
        self.agent = pathlib.Path(folder) / "agent.sh"
        self.agent.write_text('#!/bin/sh\nhost=$1\nshift\nexec ip netns exec "sluice-$host" unshare --uts sh -c "hostname h${host##*.}; $*"\n')
        self.agent.chmod(0o755)

    def __enter__(self):
        self.remove()
        for host in HOSTS:
            ip("netns", "add", f"sluice-{host}")
        ip("link", "add", "link0", "netns", f"sluice-{HOSTS[0]}", "type", "veth", "peer", "name", "link1", "netns", f"sluice-{HOSTS[1]}")
        for i, host in enumerate(HOSTS):
            ip("-n", f"sluice-{host}", "addr", "add", f"{host}/24", "dev", f"link{i}")
            ip("-n", f"sluice-{host}", "link", "set", "lo", "up")
        self.link("up")
        return self

    def __exit__(self, *_):
        self.remove()

    def remove(self):
        for host in HOSTS:
            ip("netns", "del", f"sluice-{host}", check=False)

    def link(self, state):
        for i, host in enumerate(HOSTS):
            ip("-n", f"sluice-{host}", "link", "set", f"link{i}", state)


class HostJob(Job):
    """As Job, a rank a host; each rank's messages are in a file, since the launcher is cut off too."""

    def __init__(self, folder, hosts):
        super().__init__(folder, len(HOSTS))
        self.hosts = hosts

    def messages(self, checkpoint):
        return [path.read_text() if (path := self.folder / f"{checkpoint}.{rank}.err").exists() else "" for rank in range(self.ranks)]

    def start(self, checkpoint, *more):
        train = [SLUICE, "train", "model.plan", "--data", "images=npy:images.npy", "--data", "labels=npy:labels.npy", "--epochs", "400",
                 "--comm", "mpi", "--checkpoint", checkpoint, "--checkpoint-every", "40", *more]
        line = f"cd {self.folder}; exec {' '.join(map(str, train))} 2> {checkpoint}.$OMPI_COMM_WORLD_RANK.err"
        net = f"{HOSTS[0]}/24".replace(".1/", ".0/")
        command = ["mpirun", *(["--allow-run-as-root"] if os.getuid() == 0 else []), "--enable-recovery", "--mca", "plm_rsh_agent", self.hosts.agent,
                   "--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", net, "--mca", "oob_tcp_if_include", net,
                   "--host", ",".join(f"{host}:1" for host in HOSTS), "-n", "2", "sh", "-c", line]
        quoted = " ".join("'" + str(word).replace("'", "'\\''") + "'" for word in command)
        return subprocess.Popen([self.hosts.agent, HOSTS[0], quoted], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def cut(job, checkpoint, dice):
    """Whether the link was cut before the end; then how long it took until both ranks had said so."""
    launcher = job.start(checkpoint)
    while "/1200" not in job.messages(checkpoint)[0] and launcher.poll() is None:
        time.sleep(0.02)
    time.sleep(dice.uniform(0, 0.6))
    job.hosts.link("down")
    begin = time.monotonic()
    while not all("error: " in text for text in job.messages(checkpoint)) and time.monotonic() - begin < 20 and launcher.poll() is None:
        time.sleep(0.02)
    taken = time.monotonic() - begin
    job.hosts.link("up")
    output, _ = launcher.communicate(timeout=120)
    return output, taken


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=int, nargs="?", default=10)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    dice, cuts, slowest = random.Random(arguments.seed), 0, 0.0
    with tempfile.TemporaryDirectory() as folder, Hosts(folder) as hosts:
        job = HostJob(folder, hosts)
        output, _ = job.start("undisturbed").communicate(timeout=120)
        assert "trained" in output, output
        expected = job.state("undisturbed")
        for run in range(arguments.runs):
            checkpoint = f"run{run}"
            output, taken = cut(job, checkpoint, dice)
            messages = job.messages(checkpoint)
            if "trained" not in output:
                cuts, slowest = cuts + 1, max(slowest, taken)
                for rank, text in enumerate(messages):
                    assert f"rank {1 - rank} of 2" in text, (rank, messages)
                assert taken < 3 * TIMEOUT + 2, (taken, messages)
                resumed, _ = job.start(checkpoint, "--resume").communicate(timeout=120)
                assert "trained" in resumed, (resumed, job.messages(checkpoint))
            assert job.state(checkpoint) == expected, messages
            print(f"{run + 1} of {arguments.runs}: " + (f"cut, named in {taken:.1f} s" if "trained" not in output else "ended before"), flush=True)
    print(f"{cuts} of {arguments.runs} runs were cut; both ranks named the other after {slowest:.1f} s at most; all end with the same bits")


if __name__ == "__main__":
    main()
