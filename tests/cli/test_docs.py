"""The transcripts of the documents: every command runs, and prints lines like those shown."""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import ROOT, SLUICE, SluiceTest  # noqa: E402

MODELS = {"small-decoder": "decoder", "bucket-decoder": "lengths"}  # of tests/models, and what the pages call them
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "us": 1, "ms": 1e3, "s": 1e6}


def shape(line):
    """The line without its numbers, sizes and the spaces between columns."""
    line = re.sub(r"\b[\d.]+ ?(B|KiB|MiB|us|ms|s)\b", "#", line)
    return re.sub(r"\s+", " ", re.sub(r"[\d.]*\d", "#", line)).strip()


def quantities(line):
    """Its sizes and times, in bytes and microseconds."""
    return [float(number) * UNITS[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?) ?(B|KiB|MiB|GiB|us|ms|s)\b", line)]


def are_near(shown, printed, tolerance):
    return tolerance is None or all(abs(a - b) <= tolerance * max(a, b) for a, b in zip(quantities(shown), quantities(printed)))


class Transcripts(SluiceTest):

    def check(self, page, least, tolerance=None):
        """`tolerance`: of sizes and times; without one they may be others."""
        for model, name in MODELS.items():
            shutil.copy(ROOT / "tests" / "models" / f"{model}.onnx", self.dir / f"{name}.onnx")
        (self.dir / "examples").symlink_to(ROOT / "examples")
        planning = (ROOT / "docs" / "memory-planning.md").read_text()
        (self.dir / "train.yaml").write_text(re.search(r"```yaml\n(.*?)```", planning, re.S)[1])
        blocks = re.findall(r"```console\n(.*?)```", (ROOT / "docs" / page).read_text(), re.S)
        commands = [part for block in blocks for part in re.split(r"^\$ ", block, flags=re.M)[1:]]
        self.assertGreaterEqual(len(commands), least)
        for part in commands:
            self.check_command(*part.rstrip("\n").split("\n"), tolerance=tolerance)

    def check_command(self, command, *shown, tolerance):
        words = shlex.split(command)
        self.assertEqual(words[0], "sluice")
        done = subprocess.run([SLUICE, *words[1:]], capture_output=True, text=True, cwd=self.dir, env=dict(os.environ))
        printed = (done.stdout + done.stderr).splitlines()
        for line in shown:
            if line.startswith("can run here"):  # the processor's level
                continue
            begin = shape(line.removesuffix("...").split(" (")[0] if line.endswith("...") else line)
            near = any(shape(other).startswith(begin) and are_near(line, other, tolerance) for other in printed)
            self.assertTrue(near, f"{command}\nshows: {line}\nprints:\n" + "\n".join(printed))

    def test_memory_planning(self):
        self.check("memory-planning.md", 9)

    def test_fit(self):
        self.check("fit.md", 5, tolerance=0.25)


if __name__ == "__main__":
    unittest.main()
