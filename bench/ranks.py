#!/usr/bin/env python3
"""Two ranks of one process over links of given latency and rate (bench/shaped_link.cpp), a worker each: the step with messages
beside the backward part and with one message behind it (`comm.bucket` larger than the model), against the step of the same
plan over links that take no time.

  hidden   of what the one message adds to the step, what messages beside the backward part do not
  allowed  the same by the times that compile predicts for that link: what dependences and buckets let be hidden
  waits    share of the step in which launches wait for the other rank, beside the 38 % that the notes report at 200 us

With --modes: the step of each update mode (of groups by topology) over each link, beside the step of its own plan over links that take
no time, the compute-only bound, and beside `sync`."""
import argparse
import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

from lines import ROOT, Lines

sys.path.insert(0, str(ROOT / "tests/cli"))
import capi  # noqa: E402

SLUICE = os.environ["SLUICE"]
LINKS = [(200, 1e9), (200, 1e8), (2000, 1e9), (2000, 1e8)]  # us, bytes a second
SPEC = "optimizer: {{kind: adamw, lr: 1.0e-4}}\nloss: {loss}\nseed: 3\nthreads: 1\nparallel: {{data: 2}}\ncomm: {{bucket: {bucket}}}\n"
MODES = {  # of `update`, by name; `sync` has buckets by predicted times
    "sync": "",
    "overlap": "update: {grouping: topology, group_size: 2, mode: overlap}\n",
    "interleave-2": "update: {grouping: topology, group_size: 2, mode: {interleave: 2}}\n",
    "defer-1": "update: {grouping: topology, group_size: 2, mode: {defer: 1}}\n",
}
CLASSES = "{kind: cross_entropy, logits: logits, labels: labels}"
CASES = {
    "fashion-cnn": (ROOT / "examples/fashion-mnist/fashion-cnn.onnx", "shapes: {batch: 64}\n", lambda r: (r.random((64, 1, 28, 28), np.float32), r.integers(0, 10, 64))),
    "char-decoder": (ROOT / "examples/char-decoder/char-decoder.onnx", "shapes: {batch: 16}\n", lambda r: (r.integers(0, 65, (16, 64)), r.integers(0, 65, (16, 64)))),
}


class Transport(ctypes.Structure):
    _fields_ = [("user", ctypes.c_void_p), ("rank", ctypes.c_int), ("size", ctypes.c_int), *((name, ctypes.c_void_p) for name in (
        "post_send", "post_receive", "test", "cancel", "error_text"))]


def shaped_comms(latency_us, rate):
    library = ctypes.CDLL(str(ROOT / "build/bench/libbench_shaped_link.so"))
    library.shaped_links.restype = ctypes.c_void_p
    links = ctypes.c_void_p(library.shaped_links(2, ctypes.c_double(latency_us), ctypes.c_double(rate)))
    lib, comms = ctypes.CDLL(os.environ["SLUICE_LIB"]), []
    for rank in range(2):
        transport, comm = Transport(), ctypes.c_void_p()
        library.shaped_transport(links, rank, ctypes.byref(transport))
        if lib.sluice_comm_custom(ctypes.byref(transport), ctypes.c_double(60), ctypes.byref(comm)):
            raise RuntimeError(lib.sluice_last_error().decode())
        comms.append(comm)
    return comms


def compile_plan(case, folder, bucket, link, mode="sync"):
    """The plan for that link, and its predicted time on the link and waiting in a step."""
    model, more, _ = CASES[case]
    name = f"{case}-{mode}-{bucket}-{link[0]}-{link[1]:g}"
    profile = (ROOT / "frontend/devices/cpu.yaml").read_text().splitlines()
    device, spec, plan = (pathlib.Path(folder) / f"{name}{ending}" for ending in (".dev.yaml", ".yaml", ".plan"))
    own = next(line for line in profile if line.startswith("ranks:"))
    costs = "".join(f", {word} {own.split(word)[1].split(',')[0].split('}')[0].strip()}" for word in ("message_us:", "host_rate:") if word in own)
    ours = f"ranks: {{rate: {link[1]:g}, latency_us: {link[0]}, rounds: 3{costs}}}"
    device.write_text("\n".join(ours if line.startswith("ranks:") else line for line in profile) + "\n")
    spec.write_text(SPEC.format(loss=CLASSES, bucket=bucket) + more + MODES[mode])
    done = subprocess.run([SLUICE, "compile", model, "--spec", spec, "--device", device, "-o", plan, "--json"], check=True, capture_output=True, text=True)
    note = next(note for note in json.loads(done.stdout)["notes"] if note.startswith("comm: "))
    words = note.replace(";", "").replace(",", "").split()
    numbers = [float(word) for word in words if word.replace(".", "").isdigit()]  # bytes, messages, link, step, waits
    return plan, dict(zip(("bytes", "messages", "link_us", "step_us", "wait_us"), numbers))


def step_times(plan, arrays, link, steps):
    """Median and quartiles of microseconds, of rank 0."""
    comms, times, errors = shaped_comms(*link), [], []

    def work(rank):
        try:
            session = capi.Session(plan, comms[rank])
            session.agree()
            for _ in range(steps):
                begin = time.perf_counter()
                session.step(*arrays)
                if rank == 0:
                    times.append((time.perf_counter() - begin) * 1e6)
            session.close()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    for comm in comms:
        capi.destroy_comm(comm)
    return statistics.quantiles(times[len(times) // 5:], n=4)


def compare_modes(arguments, lines):
    print(f"{'case':14} {'link':>18} {'mode':>14} {'messages':>8} {'no link':>9} {'step':>9} {'to bound':>9} {'to sync':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for case in arguments.cases:
            arrays = CASES[case][2](np.random.default_rng(1))
            for link in LINKS:
                plans = {mode: compile_plan(case, folder, "auto", link, mode) for mode in arguments.modes}
                runs = {mode: [] for mode in plans}
                for _ in range(arguments.rounds):
                    for mode, (plan, _) in plans.items():
                        runs[mode].append([step_times(plan, arrays, l, arguments.steps)[1] for l in ((0, 0), link)])
                times = {mode: [statistics.median(column) for column in zip(*values)] for mode, values in runs.items()}
                for mode, (free, step) in times.items():
                    sync = times.get("sync", (None, None))[1]
                    print(f"{case:14} {link[0]:>7} us {link[1] / 1e9:>4g} GB/s {mode:>14} {plans[mode][1]['messages']:>8.0f} {free:>9.0f} {step:>9.0f} {step / free:>9.3f} "
                          f"{step / sync if sync else 0:>8.3f}")
                    lines.add(f"{case}-{mode}-{link[0]}us-{link[1] / 1e9:g}GBs", "step_us", step, sync, peer_name="update.mode: sync", no_link_us=free, to_bound=step / free,
                              planned=plans[mode][1], spread=[min(r[1] for r in runs[mode]), max(r[1] for r in runs[mode])], ranks=2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--modes", type=lambda text: text.split(","), help=f"of {', '.join(MODES)}, with commas: compare update modes instead")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    lines = Lines(arguments.out, "ranks", 1)
    if arguments.modes:
        return compare_modes(arguments, lines)
    print(f"{'case':14} {'link':>18} {'KB':>8} {'messages':>8} {'no link':>9} {'overlap':>9} {'behind':>9} {'hidden':>7} {'allowed':>8} {'waits':>6}")
    with tempfile.TemporaryDirectory() as folder:
        for case in arguments.cases:
            arrays = CASES[case][2](np.random.default_rng(1))
            for link in LINKS:
                plan, planned = compile_plan(case, folder, "auto", link)
                behind_plan, behind_planned = compile_plan(case, folder, "1GiB", link)
                # In turns, so that what else runs on the machine meets all three.
                runs = [[step_times(p, arrays, l, arguments.steps)[1] for p, l in ((plan, (0, 0)), (plan, link), (behind_plan, link))]
                        for _ in range(arguments.rounds)]
                free, overlap, behind = (statistics.median(column) for column in zip(*runs))
                # What the link takes in truth: all of the message that is sent behind the backward part shows.
                travel = max(behind - free, 1e-9)
                hidden = 1 - (overlap - free) / travel
                allowed = 1 - planned["wait_us"] / behind_planned["wait_us"]
                waits = max(0.0, overlap - free) / overlap
                print(f"{case:14} {link[0]:>7} us {link[1] / 1e9:>4g} GB/s {planned['bytes'] / 1e3:>8.0f} {planned['messages']:>8.0f} {free:>9.0f} {overlap:>9.0f} "
                      f"{behind:>9.0f} {100 * hidden:>6.0f}% {100 * allowed:>7.0f}% {100 * waits:>5.0f}%")
                lines.add(f"{case}-{link[0]}us-{link[1] / 1e9:g}GBs", "step_us", overlap, behind, peer_name="one message behind the backward part", no_link_us=free,
                          hidden=hidden, allowed=allowed, wait_share=waits, planned=planned, spread=[min(r[1] for r in runs), max(r[1] for r in runs)], ranks=2)


if __name__ == "__main__":
    main()
