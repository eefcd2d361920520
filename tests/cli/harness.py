"""Runs the sluice command in tests: unittest cases with a folder of their own."""
import json
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SLUICE = os.environ["SLUICE"]
SHARED = pathlib.Path(os.environ["SLUICE_SHARED"])


def needs_shared(*parts):
    """Skips, with the reason, where the shared models and data are absent."""
    path = SHARED.joinpath(*parts)
    return unittest.skipUnless(path.exists(), f"{'/'.join(parts)} of the shared models and data is not here")


class SluiceTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)

    def run_sluice(self, *arguments, code=0, cwd=None):
        """Runs a command with --json; returns its object (or None) and standard error."""
        command = [SLUICE, *map(str, arguments), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=600)
        self.assertEqual(done.returncode, code, f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        return (json.loads(done.stdout) if done.stdout.strip() else None), done.stderr

    def compile(self, model, spec="", name="model", *options, code=0):
        """Compiles with the YAML text `spec`; returns the plan's path and the report."""
        spec_path = self.dir / f"{name}.yaml"
        spec_path.write_text(spec)
        plan = self.dir / f"{name}.plan"
        report, errors = self.run_sluice("compile", model, "--spec", spec_path, *options, "-o", plan, code=code)
        return plan, report if code == 0 else errors

    def npy(self, name, array):
        path = self.dir / f"{name}.npy"
        np.save(path, array)
        return path


def read_safetensors(path):
    raw = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    types = {"F32": np.float32, "F64": np.float64, "F16": np.float16, "I64": np.int64, "I32": np.int32, "I16": np.int16,
             "I8": np.int8, "BOOL": np.bool_, "U8": np.uint8}
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        data = raw[8 + length + begin : 8 + length + end]
        if entry["dtype"] == "BF16":  # as the float32 with the same value
            words = np.frombuffer(data, np.uint16).astype(np.uint32) << 16
            tensors[name] = words.view(np.float32).reshape(entry["shape"])
            continue
        tensors[name] = np.frombuffer(data, types[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def metadata_of(path):
    raw = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    return json.loads(raw[8 : 8 + length]).get("__metadata__", {})


def read_checkpoint(path):
    """All tensors of a checkpoint, those that ranks have written as parts and slices put together."""
    path = pathlib.Path(path)
    tensors, slices, shapes = read_safetensors(path), {}, {}
    for rank in range(int(metadata_of(path).get("shards", 0))):
        part = path.parent / metadata_of(path)[f"shard/{rank}"].split()[0]
        metadata = metadata_of(part)
        for name, tensor in read_safetensors(part).items():
            if f"slice/{name}" in metadata:
                begin, shapes[name] = metadata[f"slice/{name}"].split()
                slices.setdefault(name, []).append((int(begin), tensor))
            else:
                tensors[name] = tensor
    for name, parts in slices.items():
        whole = np.concatenate([tensor for _, tensor in sorted(parts, key=lambda part: part[0])])
        tensors[name] = whole.reshape([int(size) for size in shapes[name].split("x")])
    return tensors


def newest_checkpoint(folder):
    return sorted(path for path in pathlib.Path(folder).glob("step-*.safetensors") if ".rank-" not in path.name)[-1]


def pseudo_random(count):
    """The generator of the shared cases: s = fmod(s * 1103515245 + 12345, 2^31), x = s / 2^31 - 0.5, in double."""
    s, values = 1.0, np.empty(count)
    for i in range(count):
        s = (s * 1103515245 + 12345) % 2.0**31
        values[i] = s / 2.0**31 - 0.5
    return values.astype(np.float32)
