"""The transcripts of docs/memory-planning.md: every command runs, and prints lines like those shown (numbers may differ)."""
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

PAGE = ROOT / "docs" / "memory-planning.md"


def shape(line):
    """The line without its numbers, sizes and the spaces between columns."""
    line = re.sub(r"\b[\d.]+ ?(B|KiB|MiB|us|ms|s)\b", "#", line)
    return re.sub(r"\s+", " ", re.sub(r"[\d.]*\d", "#", line)).strip()


class MemoryPlanningPage(SluiceTest):

    def test_commands_print_what_the_page_shows(self):
        text = PAGE.read_text()
        shutil.copy(ROOT / "tests" / "models" / "small-decoder.onnx", self.dir / "decoder.onnx")
        (self.dir / "train.yaml").write_text(re.search(r"```yaml\n(.*?)```", text, re.S)[1])
        blocks = re.findall(r"```console\n(.*?)```", text, re.S)
        commands = [part for block in blocks for part in re.split(r"^\$ ", block, flags=re.M)[1:]]
        self.assertGreater(len(commands), 6)
        for part in commands:
            command, *shown = part.rstrip("\n").split("\n")
            words = shlex.split(command)
            self.assertEqual(words[0], "sluice")
            done = subprocess.run([SLUICE, *words[1:]], capture_output=True, text=True, cwd=self.dir, env=dict(os.environ))
            printed = {shape(line) for line in (done.stdout + done.stderr).splitlines()}
            shown = [line for line in shown if not line.startswith("can run here")]  # the processor's level
            for line in shown:
                begin = shape(line.removesuffix("...").split(" (")[0] if line.endswith("...") else line)
                self.assertTrue(any(other.startswith(begin) for other in printed), f"{command}\nshows: {begin}\nprints: {sorted(printed)}")


if __name__ == "__main__":
    unittest.main()
