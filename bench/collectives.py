#!/usr/bin/env python3
"""All-reduce over threads and over MPI against MPI_Allreduce, as a table; with --out F one JSON object per line."""
import argparse
import os
import subprocess

from lines import ROOT, Lines


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--out")
    arguments = parser.parse_args()
    version = subprocess.run(["mpirun", "--version"], check=True, capture_output=True, text=True).stdout.splitlines()[0].split()[-1]
    lines = Lines(arguments.out, "collectives", 1)
    # Bound to one core, as the launcher does, the threads of a process would share it.
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(arguments.ranks), str(ROOT / "build/bench/bench_collectives")]
    if os.getuid() == 0:
        command.insert(1, "--allow-run-as-root")
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    times = {}
    for line in output.splitlines():
        size, what, *us = line.split()
        times.setdefault(int(size), {})[what] = [float(u) for u in us]
    print(f"{arguments.ranks} ranks, median us of 9 rounds; above 1: we are faster")
    print(f"{'bytes':>10} {'threads':>10} {'mpi':>10} {'MPI_Allreduce':>14} {'threads':>8} {'mpi':>6}")
    for size, of in times.items():
        local, mpi, peer = (of[what][0] for what in ("local", "mpi", "peer"))
        print(f"{size:>10} {local:>10.1f} {mpi:>10.1f} {peer:>14.1f} {peer / local:>8.2f} {peer / mpi:>6.2f}")
        for what in ("local", "mpi"):
            lines.add(f"all_reduce-{size}-{what}", "us", of[what][0], peer, peer_name="MPI_Allreduce", peer_version=version, ratio=peer / of[what][0],
                      spread=of[what][1:], ranks=arguments.ranks)


main()
