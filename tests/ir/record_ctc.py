"""Records ctc-values.inc: losses of torch.nn.functional.ctc_loss in double precision and their gradients in the logits,
for the logits, targets and lengths of CtcTest.cpp. Run with torch 1.13.1: python3 tests/ir/record_ctc.py"""
import math
import pathlib

import torch

SAMPLES, FRAMES, CLASSES, BLANK = 4, 6, 5, 2
TARGETS = [[0, 1, 1], [3, 4, -100], [0, -100, -100], [4, 4, 4]]
INPUT_LENGTHS, TARGET_LENGTHS = [6, 5, 6, 4], [3, 2, 1, 3]


def logits():
    values = [math.sin(1.7 * i) * 2 + math.cos(0.3 * i * i) for i in range(SAMPLES * FRAMES * CLASSES)]
    return torch.tensor(values, dtype=torch.float64).reshape(SAMPLES, FRAMES, CLASSES).requires_grad_()


def record(reduction, zero_infinity):
    x = logits()
    log_probs = x.log_softmax(2).transpose(0, 1)
    targets = torch.tensor(TARGETS).clamp(min=0)
    loss = torch.nn.functional.ctc_loss(log_probs, targets, torch.tensor(INPUT_LENGTHS), torch.tensor(TARGET_LENGTHS),
                                        BLANK, reduction, zero_infinity)
    loss.sum().backward()
    return loss.reshape(-1).tolist(), x.grad.reshape(-1).tolist()


lines = []
# The last sample has no alignment: 3 equal labels need 5 frames.
for name, reduction in (("each", "none"), ("mean", "mean")):
    loss, gradient = record(reduction, True)
    for what, values in ((name + "_loss", loss), (name + "_gradient", gradient)):
        lines.append('{"%s", {%s}},' % (what, ", ".join(repr(v) for v in values)))
pathlib.Path(__file__).with_name("ctc-values.inc").write_text("\n".join(lines) + "\n")
