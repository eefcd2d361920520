#!/usr/bin/env python3
"""Checks what docs/exporting-from-pytorch.md says about PyTorch's exporters; run by hand.

    python3 tests/models/export_claims.py      # with torch and onnx installed

Last run with torch 1.13 (TorchScript exporter) and 2.15 (both exporters).
"""
import os
import tempfile
import unittest
import warnings

import onnx
import torch
from torch import nn

DYNAMO = int(torch.__version__.split(".")[0]) >= 2
TRAINING = torch.onnx.TrainingMode.TRAINING
warnings.filterwarnings("ignore")


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.drop, self.fc = nn.Dropout(0.3), nn.Linear(4 * 8 * 8, 5)

    def forward(self, x):
        return self.fc(self.drop(torch.relu(self.bn(self.conv(x)))).flatten(1))


class Token(nn.Module):
    def __init__(self):
        super().__init__()
        self.cls, self.dense = nn.Parameter(torch.randn(1, 1, 8)), nn.Linear(8, 8)

    def forward(self, x):
        return self.dense(torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(11, 8), nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(self.embed(tokens))


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2, self.dense = nn.LayerNorm(8), nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x):
        return self.n2(self.dense(self.n1(x)))


class Exported:
    def __init__(self, model, sample, dynamo=False, **options):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            if DYNAMO:
                options["dynamo"] = dynamo
            torch.onnx.export(model, (sample,), path, **options)
            self.graph = onnx.load(path).graph
        self.ops = [node.op_type for node in self.graph.node]
        self.weights = {tensor.name: list(tensor.dims) for tensor in self.graph.initializer
                        if tensor.data_type == onnx.TensorProto.FLOAT and tensor.dims}

    def node(self, op):
        return next(node for node in self.graph.node if node.op_type == op)

    def attributes(self, op):
        return {a.name: onnx.helper.get_attribute_value(a) for a in self.node(op).attribute}


IMAGES, ROWS, TOKENS = torch.randn(2, 3, 8, 8), torch.randn(3, 2, 8), torch.randint(0, 11, (2, 4))


class TorchScriptExporter(unittest.TestCase):
    def test_evaluation_folds_batch_norm_and_drops_dropout(self):
        model = Exported(Cnn(), IMAGES)
        self.assertNotIn("BatchNormalization", model.ops)
        self.assertNotIn("Dropout", model.ops)
        self.assertEqual(sum(name.startswith("onnx::Conv_") for name in model.weights), 2)

    def test_training_keeps_both_and_all_names(self):
        model = Exported(Cnn().train(), IMAGES, training=TRAINING, do_constant_folding=False)
        self.assertEqual(model.attributes("BatchNormalization")["training_mode"], 1)
        self.assertIn("Dropout", model.ops)
        self.assertEqual(set(model.weights), {"conv.weight", "bn.weight", "bn.bias", "bn.running_mean",
                                              "bn.running_var", "fc.weight", "fc.bias"})

    def test_preserve_merges_fresh_statistics_with_weights(self):
        model = Exported(Cnn().eval(), IMAGES, training=torch.onnx.TrainingMode.PRESERVE)
        self.assertEqual({(n.input[0], n.output[0]) for n in model.graph.node if n.op_type == "Identity"},
                         {("bn.weight", "bn.running_var"), ("bn.bias", "bn.running_mean")})

    def test_folding_transposes_linear_weights_and_loses_their_names(self):
        self.assertTrue(any(name.startswith("onnx::MatMul_") for name in Exported(Token(), ROWS).weights))
        kept = Exported(Token(), ROWS, do_constant_folding=False, training=TRAINING)
        self.assertIn("dense.weight", kept.weights)

    def test_tied_head_becomes_a_transposed_copy(self):
        shapes = sorted(Exported(Tied(), TOKENS).weights.values())
        self.assertEqual(shapes, [[8, 11], [11, 8]])
        kept = Exported(Tied(), TOKENS, do_constant_folding=False, training=TRAINING)
        self.assertEqual(list(kept.weights.values()), [[11, 8]])

    def test_equal_norms_are_merged_in_evaluation_only(self):
        merged = Exported(Norms(), torch.randn(2, 8))
        self.assertIn(("n1.weight", "n2.weight"),
                      {(n.input[0], n.output[0]) for n in merged.graph.node if n.op_type == "Identity"})
        self.assertIn("n2.weight", Exported(Norms(), torch.randn(2, 8), training=TRAINING,
                                            do_constant_folding=False).weights)

    def test_fixed_batch_is_written_into_the_file(self):
        fixed = Exported(Cnn(), IMAGES).graph.input[0].type.tensor_type.shape.dim[0]
        self.assertEqual(fixed.dim_value, 2)
        free = Exported(Cnn(), IMAGES, input_names=["x"], dynamic_axes={"x": {0: "batch"}})
        self.assertEqual(free.graph.input[0].type.tensor_type.shape.dim[0].dim_param, "batch")


@unittest.skipUnless(DYNAMO, "PyTorch 1 has no other exporter")
class DynamoExporter(unittest.TestCase):
    def export(self, model, sample, **options):
        return Exported(model, sample, dynamo=True, verbose=False, **options)

    def test_batch_norm_is_folded_even_in_training(self):
        model = self.export(Cnn().train(), IMAGES)
        self.assertNotIn("BatchNormalization", model.ops)
        self.assertIn("Dropout", model.ops)
        self.assertIn("conv.weight", model.weights)  # the name stays, the values do not

    def test_without_optimisation_batch_norm_is_in_evaluation_form(self):
        model = self.export(Cnn().train(), IMAGES, optimize=False)
        self.assertEqual(model.attributes("BatchNormalization").get("training_mode", 0), 0)

    def test_token_is_expanded_to_a_fixed_batch(self):
        self.assertIn([3, 1, 8], self.export(Token(), ROWS).weights.values())
        free = self.export(Token(), ROWS, dynamic_shapes=({0: torch.export.Dim("batch")},))
        self.assertIn([1, 1, 8], free.weights.values())

    def test_equal_norms_are_merged_without_a_trace(self):
        model = self.export(Norms(), torch.randn(2, 8))
        self.assertNotIn("n2.weight", model.weights)
        self.assertNotIn("Identity", model.ops)
        self.assertEqual([node.input[1] for node in model.graph.node if node.op_type == "LayerNormalization"],
                         ["n1.weight", "n1.weight"])

    def test_tied_head_becomes_a_transposed_copy(self):
        self.assertEqual(sorted(self.export(Tied(), TOKENS).weights.values()), [[8, 11], [11, 8]])


if __name__ == "__main__":
    unittest.main()
