"""Which models' rows are proved independent, and which are refused for which op."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import tvm
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from tvm import relax
from tvm.relax import op as R  # noqa: N812 - as TVM calls it
from tvm.script import ir as I  # noqa: N812
from tvm.script import relax as RS  # noqa: N812
from tvm.script import tirx as T  # noqa: N812

import tvm_byoc_kit as byoc
from tvm_byoc_kit.errors import OptionError
from tvm_byoc_kit.row_independence import why_dependent

Body = Callable[..., Any]

X = (("n", 3, 4), "float32")
MATRIX = (("n", 4), "float32")
IMAGE = (("n", 4, 6, 6), "float32")
SECOND = ((3, "n", 4), "float32")  # rows on the second axis
WEIGHTS = ((4, 5), "float32")  # an input without rows


def constant(*shape: int, dtype: str = "float32") -> Any:
    return relax.const(np.ones(shape, dtype), dtype)


def symbol(x: Any) -> Any:
    return x.ty.shape[0]


def parts(call: Any, count: int) -> list[Any]:
    return [call[index] for index in range(count)]


# ------------------------------------------------------------------ ops


PROVED: dict[str, tuple[dict[str, Any], Body]] = {
    "elementwise": ({"x": X}, lambda x: R.nn.gelu(R.clip(R.astype(x, "float16"), 0, 6))),
    "two inputs": ({"x": X, "y": X}, R.add),
    "broadcast over other axes": ({"x": X, "y": (("n", 1, 4), "float32")}, R.multiply),
    "a constant beside": ({"x": X}, lambda x: R.maximum(x, constant(3, 1))),
    "a row of size 1 beside": ({"x": X}, lambda x: R.add(constant(1, 3, 4), x)),
    "where": ({"x": X}, lambda x: R.where(R.less(x, constant(4)), x, R.negative(x))),
    "zeros of the batch": ({"x": X}, lambda x: R.add(x, R.zeros((symbol(x), 3, 4), "float32"))),
    "full_like": ({"x": X}, lambda x: R.full_like(x, relax.const(2.0))),
    "a constant broadcast to the batch": (
        {"x": X},
        lambda x: R.concat([x, R.broadcast_to(constant(1, 1, 4), (symbol(x), 1, 4))], 1),
    ),
    "a new axis before the rows": (
        {"x": X},
        lambda x: R.broadcast_to(x, (2, symbol(x), 3, 4)),
    ),
    "rows times weights": ({"x": X}, lambda x: R.matmul(x, constant(4, 5))),
    "rows times an input without rows": ({"x": MATRIX, "w": WEIGHTS}, R.matmul),
    "weights times columns": ({"x": SECOND}, lambda x: R.matmul(x, constant(4, 2))),
    "columns on the right": (
        {"x": MATRIX},
        lambda x: R.matmul(constant(5, 4), R.permute_dims(x)),
    ),
    "batched on both sides": (
        {"x": X},
        lambda x: R.matmul(x, R.permute_dims(x, [0, 2, 1])),
    ),
    "a vector on the right": ({"x": X}, lambda x: R.matmul(x, constant(4))),
    "einsum": ({"x": X, "y": X}, lambda x, y: R.einsum([x, y], "bij,bkj->bik")),
    "outer": ({"x": (("n",), "float32")}, lambda x: R.outer(x, constant(4))),
    "attention": (
        {"x": (("n", 5, 2, 8), "float32")},
        lambda x: R.nn.attention(x, x, x),
    ),
    "attention with a bias of the batch": (
        {"x": (("n", 5, 2, 8), "float32"), "bias": (("n", 2, 5, 5), "float32")},
        lambda x, bias: R.nn.attention_bias(x, x, x, bias),
    ),
    "convolution": ({"x": IMAGE}, lambda x: R.nn.conv2d(x, constant(2, 4, 3, 3))),
    "convolution NHWC": (
        {"x": IMAGE},
        lambda x: R.nn.conv2d(x, constant(2, 3, 3, 6), data_layout="NHWC", kernel_layout="OHWI"),
    ),
    "pooling": ({"x": IMAGE}, lambda x: R.nn.adaptive_avg_pool2d(R.nn.max_pool2d(x, [2, 2]))),
    "pooling one image of channels": (
        {"x": ((4, "n", 6, 6), "float32")},
        lambda x: R.nn.avg_pool2d(x, [2, 2]),
    ),
    "batch_norm": (
        {"x": IMAGE},
        lambda x: R.nn.batch_norm(x, *[constant(4)] * 4, axis=1, training=False)[0],
    ),
    "group_norm": (
        {"x": IMAGE},
        lambda x: R.nn.group_norm(x, constant(4), constant(4), 2, 1, [2, 3]),
    ),
    "layer_norm": ({"x": X}, lambda x: R.nn.layer_norm(x, constant(4), constant(4), [-1])),
    "rms_norm": ({"x": X}, lambda x: R.nn.rms_norm(x, constant(4), [-1])),
    "softmax": ({"x": X}, lambda x: R.nn.softmax(x, -1)),
    "reductions": ({"x": X}, lambda x: R.sum(R.mean(x, [2], keepdims=True), [1, 2])),
    "a reduction before the rows": ({"x": SECOND}, lambda x: R.max(x, [0])),
    "argmax": ({"x": X}, lambda x: R.argmax(x, 1)),
    "cumsum along another axis": ({"x": X}, lambda x: R.cumsum(x, 1)),
    "topk": ({"x": X}, lambda x: R.topk(x, 2, -1)[1]),
    "split and concat": ({"x": X}, lambda x: R.concat(parts(R.split(x, 2, 2), 2)[::-1], 1)),
    "stack": ({"x": X}, lambda x: R.stack([x, x], 0)),
    "slice": ({"x": X}, lambda x: R.strided_slice(x, [1], [0], [3], [2])),
    "a slice of all rows": (
        {"x": X},
        lambda x: R.strided_slice(x, [0, 1], [0, 1], [2**62, 2]),
    ),
    "an index on another axis": ({"x": X}, lambda x: R.take(x, constant(dtype="int64"), 1)),
    "an index from the end": (  # as TVM's ONNX importer writes it
        {"x": X},
        lambda x: R.take(
            x,
            R.subtract(
                R.take(R.shape_to_tensor(R.shape_of(x)), constant(dtype="int64"), 0),
                constant(dtype="int64"),
            ),
            1,
        ),
    ),
    "an embedding": (
        {"ids": (("n", 7), "int64")},
        lambda ids: R.take(constant(9, 4), ids, 0),
    ),
    "gather in each row": (
        {"x": MATRIX, "ids": (("n", 4), "int64")},
        lambda x, ids: R.gather_elements(x, ids, 1),
    ),
    "scatter in each row": (
        {"x": MATRIX, "ids": (("n", 4), "int64")},
        lambda x, ids: R.scatter_elements(x, ids, x, 1),
    ),
    "one_hot": (
        {"ids": (("n",), "int64")},
        lambda ids: R.one_hot(ids, relax.prim_value(1), relax.prim_value(0), 5, -1),
    ),
    "reshape within a row": ({"x": X}, lambda x: R.reshape(x, (symbol(x), 12))),
    "rows and tokens together, and back": (
        {"x": X},
        lambda x: R.reshape(R.exp(R.reshape(x, (symbol(x) * 3, 4))), (symbol(x), 3, 4)),
    ),
    "heads and rows together, and back": (
        {"x": X},
        lambda x: R.reshape(
            R.nn.softmax(R.reshape(R.permute_dims(x, [1, 0, 2]), (3 * symbol(x), 4)), -1),
            (3, symbol(x), 4),
        ),
    ),
    "flatten all of each row": ({"x": X}, R.flatten),
    "axes of size 1": ({"x": X}, lambda x: R.squeeze(R.expand_dims(x, [0, 3]), [3])),
    "steps in a loop": (
        {"x": SECOND},
        lambda x: R.reshape(
            R.concat([R.squeeze(step, [0]) for step in parts(R.split(x, 3, 0), 3)], 0),
            (3, x.ty.shape[1], 4),
        ),
    ),
    "pad": ({"x": IMAGE}, lambda x: R.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1])),
    "resize": ({"x": IMAGE}, lambda x: R.image.resize2d(x, (12, 12))),
    "repeat and tile": ({"x": X}, lambda x: R.tile(R.repeat(x, 2, 1), (1, 1, 2))),
    "pixel_shuffle": ({"x": IMAGE}, lambda x: R.nn.pixel_shuffle(x, 2)),
    "triangle": ({"x": X}, R.tril),
    "quantize and dequantize": (
        {"x": IMAGE},
        lambda x: R.dequantize(
            R.quantize(x, constant(4), constant(4, dtype="int8"), 1, "int8"),
            relax.const(0.5),
            relax.const(0, "int8"),
        ),
    ),
    "what mixes rows but is not read": (
        {"x": X},
        lambda x: (R.shape_of(R.cumsum(x, 0)), R.exp(x))[1],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROVED)
def test_rows_are_proved_independent(make_module: Any, name: str) -> None:
    model = byoc.load_model(make_module(*PROVED[name]))
    assert why_dependent(model, "n") is None


REFUSED: dict[str, tuple[dict[str, Any], Body, str]] = {
    "a reduction over all rows": ({"x": X}, R.sum, "sum .* along axis 0 of"),
    "the mean taken off": (
        {"x": MATRIX},
        lambda x: R.subtract(x, R.mean(x, [0])),
        r"relax.mean \(`\w+`\) combines .* along axis 0 of float32\[n, 4\], where the rows of `n`",
    ),
    "batch statistics": (
        {"x": IMAGE},
        lambda x: R.nn.batch_norm(x, *[constant(4)] * 4, axis=1, training=True)[0],
        "batch_norm .* along axis 0 of",
    ),
    "softmax over the batch": ({"x": X}, lambda x: R.nn.softmax(x, 0), "softmax .* axis 0"),
    "log_softmax over rows that moved": (
        {"x": X},
        lambda x: R.nn.log_softmax(R.permute_dims(x, [2, 1, 0]), -1),
        r"log_softmax .* along axis 2 of float32\[4, 3, n\]",
    ),
    "cumsum": ({"x": X}, lambda x: R.cumsum(x, 0), "cumsum .* axis 0"),
    "cumsum of all": ({"x": X}, R.cumsum, "cumsum .* axis 0"),
    "flip": ({"x": X}, lambda x: R.flip(x, 0), "flip .* axis 0"),
    "sort": ({"x": X}, lambda x: R.sort(x, 0), "sort .* axis 0"),
    "topk": ({"x": X}, lambda x: R.topk(x, 1, 0)[0], "topk .* axis 0"),
    "argmax": ({"x": X}, lambda x: R.argmax(x, 0), "argmax .* axis 0"),
    "the rows contracted": (
        {"x": MATRIX},
        lambda x: R.matmul(R.permute_dims(x), x),
        r"matmul .* along axis 1 of float32\[4, n\]",
    ),
    "each row with each": (
        {"x": MATRIX},
        lambda x: R.matmul(x, R.permute_dims(x)),
        "matmul .* combines rows on axis 0 .* with those on axis 1 of",
    ),
    "rows added to columns": (
        {"x": (("n", 1), "float32"), "y": (("n",), "float32")},
        R.add,
        r"add .* combines rows on axis 0 of float32\[n, 1\] with those on axis 0 of float32\[n\]",
    ),
    "reshape into other rows": (
        {"x": (("n", 4), "float32")},
        lambda x: R.reshape(x, (2, symbol(x) * 2)),
        r"reshape .* makes float32\[2, n \* 2\] of float32\[n, 4\]",
    ),
    "columns reshaped into rows": (
        {"x": ((4, "n"), "float32")},
        lambda x: R.reshape(x, (x.ty.shape[1], 4)),
        "reshape",
    ),
    "attention over the batch": (
        {"x": (("n", 5, 8), "float32")},
        lambda x: R.nn.attention(*[R.reshape(x, (1, symbol(x) * 5, 1, 8))] * 3),
        "attention .* along axis 1",
    ),
    "attention over the tokens": (
        {"x": ((2, "n", 1, 8), "float32")},
        lambda x: R.nn.attention(x, x, x),
        "attention",
    ),
    "convolution over a spatial axis": (
        {"x": ((1, 4, "n", 6), "float32")},
        lambda x: R.nn.conv2d(x, constant(2, 4, 3, 3)),
        "conv2d .* along axis 2",
    ),
    "rows as channels": (
        {"x": ((4, "n", 6, 6), "float32")},
        lambda x: R.nn.conv2d(x, constant(2, 4, 1, 1)),
        "conv2d .* along axis 1",
    ),
    "the first row": ({"x": X}, lambda x: R.strided_slice(x, [0], [0], [1]), "strided_slice"),
    "rows backwards": (
        {"x": X},
        lambda x: R.strided_slice(x, [0], [-1], [-(2**62)], [-1]),
        "strided_slice",
    ),
    "every row but one": (
        {"x": X},
        lambda x: R.strided_slice(x, [0], [1], [2**62]),
        "strided_slice",
    ),
    "a slice as long as the batch": (
        {"x": MATRIX},
        lambda x: R.add(
            R.strided_slice(constant(1, 9), [1], [symbol(x)], [symbol(x) + 1]), x
        ),
        "strided_slice .* computes with the size of `n`",
    ),
    "rows by index": ({"x": X}, lambda x: R.take(x, constant(2, dtype="int64"), 0), "take"),
    "a table with rows": (
        {"x": X, "ids": (("n",), "int64")},
        lambda x, ids: R.take(x, ids, 0),
        "take .* along axis 0",
    ),
    "gather across rows": (
        {"x": MATRIX, "ids": (("n", 4), "int64")},
        lambda x, ids: R.gather_elements(x, ids, 0),
        "gather_elements",
    ),
    "a table by the row's number": (
        {"ids": (("n", 4), "int64")},
        lambda ids: R.gather_elements(constant(64, 4), ids, 1),
        r"reads float32\[64, 4\], which has no rows of `n`",
    ),
    "scatter into the first row": (
        {"x": MATRIX},
        lambda x: R.scatter_elements(x, constant(1, 4, dtype="int64"), constant(1, 4), 1),
        "scatter_elements",
    ),
    "numbers of rows": (
        {"x": MATRIX},
        lambda x: R.add(
            R.expand_dims(R.astype(R.arange(0, symbol(x), 1), "float32"), [1]), x
        ),
        "arange .* computes with the size of `n`",
    ),
    "the number of rows": (
        {"x": (("n", 2), "float32")},
        lambda x: R.divide(x, R.astype(R.shape_to_tensor(R.shape_of(x)), "float32")),
        "computes with the size of `n`",
    ),
    "how many elements": (
        {"x": MATRIX},
        lambda x: R.divide(x, R.astype(R.size(x), "float32")),
        "size",
    ),
    "a limit that is the number of rows": (
        {"x": MATRIX},
        lambda x: relax.Call(tvm.ir.Op.get("relax.clip"), [x, relax.prim_value(0), symbol(x)]),
        "clip .* computes with the size",
    ),
    "rows in turn beside rows in pairs": (
        {"x": MATRIX, "y": (("n", 2, 4), "float32")},
        lambda x, y: R.add(R.concat([x, x], 0), R.reshape(y, (symbol(x) * 2, 4))),
        "add .* combines rows on axis 0 of",
    ),
    "repeated rows in turn": (
        {"x": MATRIX},
        lambda x: R.concat([x, x], 0),
        "output `output`, .* repeats the rows on axis 0",
    ),
    "a constant row before the rows": (
        {"x": MATRIX},
        lambda x: R.concat([constant(1, 4), x], 0),
        "concat",
    ),
    "rows repeated": ({"x": X}, lambda x: R.repeat(x, 2, 0), "repeat"),
    "rows tiled": ({"x": X}, lambda x: R.tile(x, (2, 1, 1)), "tile"),
    "padding of the batch": ({"x": X}, lambda x: R.nn.pad(x, [0, 1, 0, 0, 0, 0]), "pad"),
    "a triangle over the batch": ({"x": MATRIX}, R.tril, "tril"),
    "a causal mask over rows": (
        {"x": ((2, "n", 1, 8), "float32")},
        lambda x: R.nn.attention(x, *[constant(2, 5, 1, 8)] * 2, causal_mask="TopLeft"),
        "attention",
    ),
    "an op without a rule": ({"x": (("n",), "float32")}, R.nonzero, "the kit does not know"),
    "two axes of rows": (
        {"x": (("n", "n"), "float32")},
        R.exp,
        r"input `x` has shape float32\[n, n\]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_rows_that_may_depend_on_each_other_are_refused_with_the_op(
    make_module: Any, name: str
) -> None:
    params, body, message = REFUSED[name]
    reason = why_dependent(byoc.load_model(make_module(params, body)), "n")
    assert reason is not None
    assert re.search(message, reason), reason


def test_a_function_that_importers_generate_is_refused_by_its_name() -> None:
    """TVM's ONNX importer makes a TIR function of an Einsum of three."""
    node = helper.make_node("Einsum", ["x", "w", "w"], ["y"], equation="nc,c,c->nc")
    weight = numpy_helper.from_array(np.ones(4, "float32"), "w")
    model = byoc.load_model(onnx_model([node], [weight]), {"x": ("n", 4)})
    assert "einsum keeps rows apart" in str(why_dependent(model, "n"))


@I.ir_module
class Branching:
    @RS.function
    def main(x: RS.Tensor(("n", 4), "float32"), c: RS.Tensor((), "bool")):  # noqa: ANN201, N805
        if c:  # noqa: SIM108 - TVMScript has no conditional expression
            y = RS.exp(x)
        else:
            y = RS.nn.softmax(x, axis=0)
        return y


@I.ir_module
class Calling:
    @RS.function
    def helper(x: RS.Tensor(("m", 4), "float32")) -> RS.Tensor(("m", 4), "float32"):  # noqa: N805
        return RS.exp(x)

    @RS.function
    def main(x: RS.Tensor(("n", 4), "float32")):  # noqa: ANN201, N805
        return Calling.helper(x)


@I.ir_module
class Renaming:
    @RS.function
    def main(x: RS.Tensor(("n", 4), "float32")) -> RS.Tensor((1,), "float32"):  # noqa: N805
        m = T.int64()
        _ = RS.match_cast(x, RS.Tensor((m, 4), "float32"))
        ones = RS.ones(RS.shape([m]), "float32")
        return RS.sum(ones, axis=[0], keepdims=True)


def test_another_name_for_the_number_of_rows_is_followed() -> None:
    """Nothing of the rows is in the result, but how many they are."""
    assert "ones" in str(why_dependent(byoc.load_model(Renaming), "n"))


@pytest.mark.parametrize(("module", "what"), [(Branching, "If"), (Calling, "helper")])
def test_branches_and_other_functions_are_refused(module: tvm.IRModule, what: str) -> None:
    reason = why_dependent(byoc.load_model(module, entry="main"), "n")
    assert f"does not know whether {what} keeps rows apart" in str(reason)


def test_each_output_and_each_dimension_counts(make_module: Any) -> None:
    module = make_module(
        {"x": (("n", "m"), "float32")}, lambda x: (R.exp(x), R.nn.softmax(x, 1), R.sum(x, [1]))
    )
    model = byoc.load_model(module)
    assert why_dependent(model, "n") is None
    assert "softmax" in str(why_dependent(model, "m"))


def test_two_dimensions_of_one_name_are_one_size(make_module: Any) -> None:
    """TVM allows it; the sizes of a call are told by name."""
    other = tvm.tirx.Var("n", "int64")
    module = make_module(
        {"x": MATRIX, "y": ((other, 4), "float32")}, lambda x, y: (R.exp(x), R.sum(y, [0]))
    )
    assert "input `y`" in str(why_dependent(byoc.load_model(module), "n"))


def test_an_unknown_dimension_is_refused_with_those_there_are(make_module: Any) -> None:
    model = byoc.load_model(make_module({"x": X}, R.exp))
    with pytest.raises(OptionError, match=r"'batch' is no symbolic dimension .* there are: n"):
        why_dependent(model, "batch")


# ------------------------------------------------------------------ models


def onnx_model(nodes: list[Any], constants: list[Any]) -> onnx.ModelProto:
    """From ``x`` to ``y``."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
        [onnx.ValueInfoProto(name="y")],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


class Residual(nn.Module):
    """As in ResNet: a stem, a block with a shortcut, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        return self.head(self.body(x) + x).softmax(-1)


class Mobile(nn.Module):
    """As in MobileNet: an inverted bottleneck with depthwise convolution and hard swish."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 12, 1, bias=False),
            nn.BatchNorm2d(12),
            nn.ReLU6(),
            nn.Conv2d(12, 12, 3, 2, 1, groups=12),
            nn.Hardswish(),
            nn.Conv2d(12, 4, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.flatten(self.body(x).mean([2, 3]), 1)


class Encoder(nn.Module):
    """As BERT: embeddings, a layer with a mask of the padding, the first token pooled."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 16), nn.Embedding(6, 16)
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, activation="gelu", batch_first=True)
        self.pool = nn.Linear(16, 16)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.places(torch.arange(6))
        x = self.layer(x, src_key_padding_mask=mask == 0)
        return self.pool(x[:, 0]).tanh()


class Recurrent(nn.Module):
    """Two directions, one step classified."""

    def __init__(self, *, batch_first: bool) -> None:
        super().__init__()
        self.steps = 1 if batch_first else 0
        self.lstm = nn.LSTM(4, 8, batch_first=batch_first, bidirectional=True)
        self.head = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0].select(self.steps, 2))


class OverTheBatch(nn.Module):
    """Normalized by the batch at hand."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(0, keepdim=True)


BATCH = torch.export.Dim("rows", min=2, max=64)
TOKENS = torch.ones(3, 6, dtype=torch.int64)
IMAGES = torch.zeros(3, 3, 8, 8)
SERIES = torch.zeros(3, 5, 4)
# What makes it, its inputs, the axis of the batch, and the op that mixes it.
Model = tuple[Callable[[], nn.Module], tuple[torch.Tensor, ...], int, "str | None"]
TORCH: dict[str, Model] = {
    "residual": (Residual, (IMAGES,), 0, None),
    "mobile": (Mobile, (IMAGES,), 0, None),
    "encoder": (Encoder, (TOKENS, TOKENS), 0, None),
    "recurrent": (lambda: Recurrent(batch_first=True), (SERIES,), 0, None),
    "recurrent, steps first": (lambda: Recurrent(batch_first=False), (SERIES,), 1, None),
    "over the batch": (OverTheBatch, (IMAGES,), 0, "relax.mean"),
}


@pytest.mark.parametrize("name", TORCH)
def test_torch_models_imported_and_prepared(name: str) -> None:
    make, inputs, axis, op = TORCH[name]
    model = byoc.load_model(make().eval(), inputs, ({axis: BATCH},) * len(inputs))
    symbol = str(model.inputs[0].shape[axis])
    for stage in (model, byoc.prepare(model, "openvino")):
        reason = why_dependent(stage, symbol)
        assert reason is None if op is None else op in str(reason)


def node(op: str, *inputs: str, to: str = "y", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), to.split(), **attributes)


# Nodes, the shape of their input, the shapes of their constants, and the op that mixes rows.
ONNX: dict[str, tuple[list[Any], tuple[Any, ...], dict[str, tuple[int, ...]], str | None]] = {
    "LSTM": (
        [node("LSTM", "x", "w", "r", hidden_size=6, direction="bidirectional")],
        (5, "n", 4),
        {"w": (2, 24, 4), "r": (2, 24, 6)},
        None,
    ),
    "GRU": (
        [node("GRU", "x", "w", "r", hidden_size=6)],
        (5, "n", 4),
        {"w": (1, 18, 4), "r": (1, 18, 6)},
        None,
    ),
    "convolution": (
        [
            node("Conv", "x", "w", to="c", pads=[1, 1, 1, 1]),
            node("InstanceNormalization", "c", "g", "g", to="i"),
            node("Flatten", "i"),
        ],
        ("n", 3, 8, 8),
        {"w": (4, 3, 3, 3), "g": (4,)},
        None,
    ),
    "softmax over the batch": ([node("Softmax", "x", axis=0)], ("n", 4), {}, "softmax"),
    "quantized by the range of all": (
        [
            node("DynamicQuantizeLinear", "x", to="q s z"),
            node("DequantizeLinear", "q", "s", "z"),
        ],
        ("n", 4),
        {},
        "relax.max",
    ),
}


@pytest.mark.parametrize("name", ONNX)
def test_onnx_models(name: str) -> None:
    nodes, shape, constants, op = ONNX[name]
    rng = np.random.default_rng(0)
    arrays = [
        numpy_helper.from_array(rng.standard_normal(sizes, dtype=np.float32), key)
        for key, sizes in constants.items()
    ]
    model = byoc.load_model(onnx_model(nodes, arrays), {"x": shape})
    reason = why_dependent(model, "n")
    assert reason is None if op is None else op in str(reason)


def test_the_digits_model() -> None:
    """With the batch left open, which the file fixes to 1."""
    proto = onnx.load(Path(byoc.__file__).parent / "data" / "digits.onnx")
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    (image,) = proto.graph.input
    sizes = [dim.dim_value for dim in image.type.tensor_type.shape.dim]
    model = byoc.load_model(proto, {image.name: ("batch", *sizes[1:])})
    assert why_dependent(model, "batch") is None


@pytest.mark.parametrize(
    ("module", "op"),
    [
        (nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8)), None),
        (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), "relax.matmul"),
    ],
    ids=["position by position", "attention"],
)
def test_along_a_sequence(module: nn.Module, op: str | None) -> None:
    tokens = torch.export.Dim("tokens", min=2, max=64)
    model = byoc.load_model(module.eval(), (torch.zeros(2, 5, 8),), ({1: tokens},))
    reason = why_dependent(model, str(model.inputs[0].shape[1]))
    assert reason is None if op is None else op in str(reason)
