"""Writes tensors of PyTorch as safetensors, with the version that made them: what the recording scripts leave."""
import json
import struct

import torch


def save(path, tensors):
    header, offset = {"__metadata__": {"recorded_with": "PyTorch " + torch.__version__}}, 0
    names = {torch.float32: "F32", torch.int64: "I64"}
    blobs = []
    for name, tensor in tensors.items():
        blob = tensor.detach().contiguous().numpy().tobytes()
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, offset + len(blob)]}
        offset += len(blob)
        blobs.append(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))
