"""What the scripts here share: the lines of bench/results, and the peak bytes of a peer in a process of its own."""
import datetime
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def cpu_name():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return "unknown"


class Lines:
    """Appends one JSON object per line to a file; to none if there is no path."""

    def __init__(self, path, bench, threads):
        self.path = path
        self.commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
        # `load`: of the machine just before; what else ran makes times of both sides longer.
        self.origin = {"bench": bench, "threads": threads, "commit": self.commit, "date": datetime.date.today().isoformat(), "cpu": cpu_name(),
                       "load": round(os.getloadavg()[0], 2)}

    def add(self, case, metric, ours, peer, **more):
        if not self.path:
            return
        origin = dict(self.origin)
        line = {"bench": origin.pop("bench"), "case": case, "metric": metric, "ours": ours, "peer": peer, **more, **origin}
        with open(self.path, "a") as file:
            file.write(json.dumps(line) + "\n")


PEAK = """
import sys, threading, time
sys.path.insert(0, {folder!r})
import torch
{imports}
torch.set_num_threads({threads})
resident = lambda: int(open("/proc/self/statm").read().split()[1]) * 4096
base, peak, done = resident(), 0, False
def watch():
    global peak
    while not done:
        peak = max(peak, resident())
        time.sleep(0.0005)
watcher = threading.Thread(target=watch)
watcher.start()
peer = {peer}
for _ in range(3):
    peer.step()
done = True
watcher.join()
print(peak - base)
"""


def peak_bytes(imports, peer, threads):
    """Highest resident bytes (sampled) of three steps of `peer`, an expression, less those before it exists."""
    code = PEAK.format(folder=str(ROOT / "bench"), imports=imports, peer=peer, threads=threads)
    return int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
