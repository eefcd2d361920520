"""What tests of budgets share: data, a run's bits, and the smallest budget of a refusal."""
import re

import numpy as np

from harness import SluiceTest, newest_checkpoint, read_safetensors


class BudgetTest(SluiceTest):
    def data(self, **arrays):
        """Options that give a command its data."""
        return [word for name, array in arrays.items() for word in ("--data", f"{name}=npy:{self.npy(name, array)}")]

    def images(self):
        random = np.random.default_rng(5)
        return self.data(images=random.random((40, 1, 28, 28), np.float32), labels=random.integers(0, 10, 40))

    def tokens(self, words=8, length=16):
        tokens = np.random.default_rng(6).integers(0, words, (24, length))
        return self.data(tokens=tokens, labels=tokens)

    def train(self, plan, data, name, steps=5):
        """Losses, the bytes of the last checkpoint's tensors, and the command's object."""
        folder = self.dir / f"run-{name}"
        out, _ = self.run_sluice("train", plan, *data, "--steps", steps, "--losses", "--checkpoint", folder, "--measure")
        state = {key: tensor.tobytes() for key, tensor in read_safetensors(newest_checkpoint(folder)).items()}
        return out["losses"], state, out

    def smallest(self, model, spec):
        errors = self.compile(model, spec, "refused", "--memory", 1, code=3)[1]
        self.assertFalse((self.dir / "refused.plan").exists())
        return int(re.search(r"smallest that can be met is (\d+) bytes", errors)[1])
