"""examples/embed-c, built against the installed package as a service would, trains, evaluates and saves."""
import gzip
import os
import pathlib
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import ROOT, SluiceTest, newest_checkpoint  # noqa: E402

FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")
BUILD = pathlib.Path(os.environ["SLUICE"]).resolve().parent.parent


def head(source, target, count, header):
    """The first `count` records of a compressed IDX file, uncompressed."""
    raw = gzip.open(source).read()
    dims = struct.unpack(f">{(header - 4) // 4}I", raw[4:header])
    size = 1
    for d in dims[1:]:
        size *= d
    target.write_bytes(raw[:4] + struct.pack(">I", count) + raw[8:header] + raw[header : header + count * size])


class EmbedC(SluiceTest):
    def test_stays_an_example(self):
        self.assertLess(len((ROOT / "examples/embed-c/main.c").read_text().splitlines()), 100)

    @unittest.skipUnless(FASHION.exists(), "the package dataset-fashion-mnist is not installed")
    def test_trains_evaluates_and_saves(self):
        prefix = self.dir / "prefix"
        subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], check=True, capture_output=True)
        subprocess.run(["cmake", "-S", ROOT / "examples/embed-c", "-B", self.dir / "build", f"-DCMAKE_PREFIX_PATH={prefix}"],
                       check=True, capture_output=True)
        subprocess.run(["cmake", "--build", self.dir / "build"], check=True, capture_output=True)
        folder = ROOT / "examples" / "fashion-mnist"
        plan, report = self.compile(folder / "fashion-cnn.onnx", (folder / "train.yaml").read_text())
        files = []
        for part, count in [("train", 4096), ("t10k", 1000)]:
            for kind, header in [("images-idx3", 16), ("labels-idx1", 8)]:
                files.append(self.dir / f"{part}-{kind}")
                head(FASHION / f"{part}-{kind}-ubyte.gz", files[-1], count, header)
        command = [self.dir / "build" / "embed", plan, *files, self.dir / "run"]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"needs {report['state_bytes']} bytes of state and {report['step_bytes']} bytes for a step", done.stdout)
        loss = float(done.stdout.split("test loss ")[1].split()[0])
        self.assertLess(loss, 1.0)
        self.assertIn("after 64 updates", done.stdout)
        self.assertTrue(newest_checkpoint(self.dir / "run").exists())
        command[2] = self.dir / "gone"
        self.assertNotEqual(subprocess.run(command, capture_output=True).returncode, 0)
        command[1] = self.dir / "gone.plan"
        failed = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(failed.returncode, 1, failed.stderr)
        self.assertIn("gone.plan", failed.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
