"""The example NPU's decisions against numbers worked out by hand from its documented cost model."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_byoc_kit import native
from tvm_byoc_kit.backends import example_npu_schedule as npu
from tvm_byoc_kit.backends.example_npu import ExampleNPUOptions
from tvm_byoc_kit.errors import PluginError

numpy = pytest.importorskip("numpy")
tvm_ffi = pytest.importorskip("tvm_ffi")

DOCUMENT = Path(__file__).parents[2] / "docs" / "example_npu_cost_model.md"
ITEM_BYTES = {"float32": 4, "float16": 2, "int8": 1, "int32": 4}
KIB = 1024


@pytest.fixture(scope="module", autouse=True)
def plugin() -> None:
    status = native.load("example_npu")
    if not status:
        pytest.skip(f"{status.detail}; {status.remedy}")


# Region graphs, written by hand -------------------------------------------------------------------


class Region:
    """Builds the JSON graph of a region, node by node."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []

    def _add(self, node: dict[str, Any]) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def tensor(
        self, name: str, shape: list[int], dtype: str = "float32", kind: str = "input"
    ) -> int:
        return self._add({"op": kind, "name": name, "attrs": {"shape": [shape], "dtype": [dtype]}})

    def shape(self, node: int) -> list[int]:
        return self.nodes[node]["attrs"]["shape"][0]

    def kernel(self, name: str, inputs: list[int], ops: list[dict[str, Any]]) -> int:
        attrs = {
            "num_inputs": len(inputs),
            "num_outputs": 1,
            "shape": [ops[-1]["shape"][0]],
            "dtype": [ops[-1]["dtype"][0]],
            "ops": ops,
            "results": [[len(inputs) + len(ops) - 1, 0]],
        }
        node = {
            "op": "kernel",
            "name": f"example_npu.{name}",
            "inputs": [[node, 0, 0] for node in inputs],
            "attrs": attrs,
        }
        return self._add(node)

    def relu(self, source: int) -> int:
        return self.kernel("relu", [source], [op("nn.relu", [0], self.shape(source))])

    def resize(self, source: int, elements: int) -> int:
        """Average a vector and add it to a parameter of another length."""
        parameter = self.tensor(f"p{len(self.nodes)}", [elements])
        ops = [
            op("mean", [0], [1], axis=[0], keepdims=True),
            op("add", [2, 1], [elements]),
        ]
        return self.kernel("resize", [source, parameter], ops)

    def json(self, heads: list[int], options: dict[str, Any]) -> str:
        arguments = [i for i, node in enumerate(self.nodes) if node["op"] != "kernel"]
        graph = {
            "nodes": self.nodes,
            "arg_nodes": arguments,
            "heads": [[head, 0, 0] for head in heads],
            "node_row_ptr": list(range(len(self.nodes) + 1)),
            "options": options,
        }
        return json.dumps(graph)

    def plan(self, *heads: int, **options: Any) -> npu.Schedule:
        """Schedule the region with these outputs: the last node unless given."""
        create = tvm_ffi.get_global_func("runtime.ExampleNPUJSONRuntimeCreate")
        text = self.json(list(heads) or [len(self.nodes) - 1], options)
        names = [node["name"] for node in self.nodes if node["op"] == "const"]
        (schedule,) = npu.schedules(create("region", text, names))
        return schedule


def op(
    name: str, args: list[Any], shape: list[int], dtype: str = "float32", **attrs: Any
) -> dict[str, Any]:
    """Describe an inner op; arguments are numbers of values, or objects as in graph.h."""
    return {
        "op": f"relax.{name}",
        "args": [[arg, 0] if isinstance(arg, int) else arg for arg in args],
        "attrs": attrs,
        "shape": [shape],
        "dtype": [dtype],
    }


def conv_op(
    out: list[int],
    *,
    strides: int = 1,
    padding: int = 0,
    groups: int = 1,
    layouts: tuple[str, str] = ("NCHW", "OIHW"),
    dtype: str = "float32",
    args: tuple[int, int] = (0, 1),
) -> dict[str, Any]:
    return op(
        "nn.conv2d",
        list(args),
        out,
        dtype,
        strides=[strides, strides],
        padding=[padding] * 4,
        dilation=[1, 1],
        groups=groups,
        data_layout=layouts[0],
        kernel_layout=layouts[1],
        out_layout=layouts[0],
        out_dtype=dtype,
    )


def one_conv(
    x: list[int], w: list[int], out: list[int], relu: bool = False, **attrs: Any
) -> Region:
    region = Region()
    inputs = [region.tensor("x", x), region.tensor("w", w)]
    ops = [conv_op(out, **attrs)] + ([op("nn.relu", [2], out)] if relu else [])
    region.kernel("conv2d_relu_fused" if relu else "conv2d", inputs, ops)
    return region


def one_matmul(
    a: list[int], b: list[int], out: list[int], dtype: str = "float32", out_dtype: str = ""
) -> Region:
    region = Region()
    inputs = [region.tensor("a", a, dtype), region.tensor("b", b, dtype)]
    region.kernel("matmul", inputs, [op("matmul", [0, 1], out, out_dtype or dtype)])
    return region


def one_op(shapes: list[list[int]], body: dict[str, Any]) -> npu.ScheduledOp:
    region = Region()
    inputs = [region.tensor(f"p{i}", shape) for i, shape in enumerate(shapes)]
    region.kernel("one", inputs, [body])
    return region.plan().ops[0]


def pool_op(kind: str, out: list[int], *, window: int, stride: int, padding: int = 0) -> Any:
    attrs = {
        "pool_size": [window, window],
        "strides": [stride, stride],
        "dilation": [1, 1],
        "padding": [padding] * 4,
        "layout": "NCHW",
        "out_layout": "NCHW",
    }
    return op(f"nn.{kind}_pool2d", [0], out, **attrs)


def vectors(lengths_and_ages: list[tuple[int, int]]) -> Region:
    """Vectors of these lengths, each made from an earlier one (the last where the age is 1)."""
    region = Region()
    made = [region.tensor("x", [1])]
    for length, age in lengths_and_ages:
        made.append(region.resize(made[-min(age, len(made))], length))
    region.resize(made[-1], 1)
    return region


def dram_bytes(schedule: npu.Schedule) -> int:
    return sum(scheduled.moved_bytes[3] for scheduled in schedule.ops)


# Work ---------------------------------------------------------------------------------------------


def test_convolution_in_one_tile_by_hand() -> None:
    # x 3*16*16*4 = 3072 bytes, w 16*27*4 = 1728, y 16*14*14*4 = 12544: together under 64 KiB.
    scheduled = one_conv([1, 3, 16, 16], [16, 3, 3, 3], [1, 16, 14, 14]).plan().ops[0]
    assert scheduled.engine == "conv"
    assert not scheduled.fused
    assert scheduled.macs == 16 * 14 * 14 * 27
    assert [operand.bytes for operand in scheduled.operands] == [3072, 1728, 12544]
    assert [operand.role for operand in scheduled.operands] == ["input", "weight", "output"]
    assert [operand.tier for operand in scheduled.operands] == ["L3"] * 3
    assert scheduled.tiling.tiles == 1
    assert scheduled.tiling.tile == scheduled.tiling.extents == (1, 1, 14, 14, 16, 3)
    assert scheduled.tiling.tile_bytes == 3072 + 1728 + 12544
    assert scheduled.moved_bytes == (0, 17344, 0, 17344)
    assert scheduled.transfers == (0, 3, 0, 3)
    assert scheduled.compute_cycles == math.ceil(84672 / 256)
    # DRAM: 16000 MB/s at 800 MHz are 20 bytes per cycle.
    assert scheduled.memory_cycles == math.ceil(17344 / 256 + 17344 / 20) + 3 * 1 + 3 * 100
    assert scheduled.cycles == 1238
    assert scheduled.bound == "memory"


def test_worked_example_of_the_document() -> None:
    region = one_conv([1, 3, 32, 32], [16, 3, 3, 3], [1, 16, 30, 30], relu=True)
    schedule = region.plan()
    scheduled = schedule.ops[0]
    # y alone is 57,600 bytes; with x (12,288) and w (1,728) too much for 65,536: two tiles of 15
    # rows, for which 17 rows of x are needed: 34 of them in all instead of 32.
    assert scheduled.macs == 16 * 30 * 30 * 27 == 388_800
    assert scheduled.fused
    assert scheduled.tiling.tile == (1, 1, 15, 30, 16, 3)
    assert scheduled.tiling.tiles == 2
    assert scheduled.tiling.tile_bytes == 17 * 32 * 3 * 4 + 1728 + 57600 // 2 == 37_056
    moved = [operand.moved_bytes for operand in scheduled.operands]
    assert moved == [34 * 32 * 3 * 4, 1728, 57600] == [13_056, 1_728, 57_600]
    assert scheduled.moved_bytes == (115_200, 72_384, 0, 72_384)
    assert scheduled.transfers == (0, 5, 0, 5)
    assert scheduled.compute_cycles == 1519
    assert scheduled.memory_cycles == math.ceil(112.5 + 282.75 + 3619.2) + 5 * 1 + 5 * 100
    assert schedule.cycles == 4520
    assert schedule.microseconds == pytest.approx(5.65)
    text = DOCUMENT.read_text(encoding="utf-8")
    for number in ("388,800", "37,056", "13,056", "115,200", "72,384", "1,519", "4,520", "5.65 µs"):
        assert number in text


def test_document_and_python_have_every_option_with_its_default() -> None:
    header = Path(__file__).parents[2] / "tvm_byoc_kit/csrc/example_npu/options.h"
    text = DOCUMENT.read_text(encoding="utf-8")
    options = re.findall(r"int64_t (\w+) = ([\d* ]+);", header.read_text(encoding="utf-8"))
    assert len(options) >= 15
    for name, default in options:
        value = math.prod(int(factor) for factor in default.split("*"))
        assert f"| `{name}` | {value} |" in text
        assert getattr(ExampleNPUOptions(), name) == value


def test_layout_does_not_change_the_work() -> None:
    nchw = one_conv([2, 8, 20, 20], [32, 8, 5, 5], [2, 32, 10, 10], strides=2, padding=2)
    nhwc = one_conv(
        [2, 20, 20, 8],
        [5, 5, 8, 32],
        [2, 10, 10, 32],
        strides=2,
        padding=2,
        layouts=("NHWC", "HWIO"),
    )
    first, second = nchw.plan().ops[0], nhwc.plan().ops[0]
    assert first.macs == second.macs == 2 * 32 * 10 * 10 * 8 * 25
    assert first.tiling == second.tiling
    assert first.cycles == second.cycles


def test_depthwise_uses_one_column_of_the_array() -> None:
    region = one_conv([1, 32, 16, 16], [32, 1, 3, 3], [1, 32, 16, 16], padding=1, groups=32)
    scheduled = region.plan().ops[0]
    assert scheduled.engine == "conv"
    assert scheduled.macs == 32 * 16 * 16 * 9
    assert scheduled.compute_cycles == 32 * 16 * 16 * 9 // (256 // 16)


def test_grouped_convolution_counts_the_channels_of_its_group() -> None:
    region = one_conv([1, 32, 8, 8], [64, 16, 1, 1], [1, 64, 8, 8], groups=2)
    assert region.plan().ops[0].macs == 64 * 8 * 8 * 16


def test_conv1d() -> None:
    region = Region()
    inputs = [region.tensor("x", [1, 8, 100]), region.tensor("w", [16, 8, 5])]
    attrs = {"strides": [2], "padding": [0, 0], "dilation": [1], "groups": 1}
    region.kernel("conv1d", inputs, [op("nn.conv1d", [0, 1], [1, 16, 48], **attrs)])
    scheduled = region.plan().ops[0]
    assert scheduled.engine == "conv"
    assert scheduled.macs == 16 * 48 * 8 * 5


@pytest.mark.parametrize(
    ("a", "b", "out", "macs"),
    [
        ([8, 32], [32, 16], [8, 16], 8 * 16 * 32),
        ([4, 8, 32], [4, 32, 16], [4, 8, 16], 4 * 8 * 16 * 32),
        ([4, 8, 32], [32, 16], [4, 8, 16], 4 * 8 * 16 * 32),
        ([32], [32, 16], [16], 16 * 32),
        ([8, 32], [32], [8], 8 * 32),
        ([2, 1, 8, 32], [3, 32, 16], [2, 3, 8, 16], 6 * 8 * 16 * 32),
    ],
)
def test_matmul_shapes(a: list[int], b: list[int], out: list[int], macs: int) -> None:
    scheduled = one_matmul(a, b, out).plan().ops[0]
    assert scheduled.engine == "matrix"
    assert scheduled.macs == macs
    columns = min(b[-1] if len(b) > 1 else 1, 16)
    assert scheduled.compute_cycles == math.ceil(macs / (256 * columns / 16))


def test_wider_operand_sets_the_mac_rate() -> None:
    region = Region()
    inputs = [region.tensor("a", [64, 64], "float16"), region.tensor("b", [64, 64])]
    region.kernel("matmul", inputs, [op("matmul", [0, 1], [64, 64])])
    assert region.plan().ops[0].compute_cycles == 64**3 // 256


@pytest.mark.parametrize(("dtype", "factor"), [("float32", 1), ("float16", 2), ("int8", 4)])
def test_narrow_types_multiply_the_mac_rate(dtype: str, factor: int) -> None:
    out_dtype = "int32" if dtype == "int8" else dtype
    scheduled = one_matmul([64, 64], [64, 64], [64, 64], dtype, out_dtype).plan().ops[0]
    assert scheduled.compute_cycles == 64**3 // (256 * factor)
    size = 64 * 64
    expected = [size * ITEM_BYTES[dtype]] * 2 + [size * ITEM_BYTES[out_dtype]]
    assert [operand.bytes for operand in scheduled.operands] == expected


X = [1, 16, 8, 8]
N = 16 * 8 * 8


@pytest.mark.parametrize(
    ("shapes", "body", "engine", "element_ops"),
    [
        ([X], op("nn.relu", [0], X), "activation", N),
        ([X], op("sigmoid", [0], X), "activation", N),
        ([X], op("tanh", [0], X), "activation", N),
        ([X], op("nn.gelu", [0], X), "activation", N),
        ([X], op("nn.silu", [0], X), "activation", N),
        ([X], op("clip", [0, {"value": 0.0}, {"value": 6.0}], X), "activation", 2 * N),
        ([X, X], op("add", [0, 1], X), "vector", N),
        ([X, [1]], op("multiply", [0, 1], X), "vector", N),
        ([X], op("nn.softmax", [0], X, axis=-1), "vector", 5 * N),
        (
            [X, [8], [8]],
            op("nn.layer_norm", [0, 1, 2], X, axes=[-1], epsilon=1e-5),
            "vector",
            7 * N,
        ),
        ([X], op("mean", [0], [1, 16], axis=[2, 3], keepdims=False), "vector", N),
        ([X], op("permute_dims", [0], [1, 8, 8, 16], axes=[0, 2, 3, 1]), "vector", N),
        ([X], op("reshape", [0, {"shape": [1, N]}], [1, N]), "vector", N),
        (
            [X, X],
            op("concat", [{"tuple": [[0, 0], [1, 0]]}], [1, 32, 8, 8], axis=1),
            "vector",
            2 * N,
        ),
        ([X], pool_op("max", [1, 16, 4, 4], window=2, stride=2), "pooling", 16 * 16 * 4),
        ([X], pool_op("avg", [1, 16, 6, 6], window=3, stride=1), "pooling", 16 * 36 * 9),
    ],
    ids=lambda value: value["op"] if isinstance(value, dict) else "",
)
def test_element_ops(
    shapes: list[list[int]], body: dict[str, Any], engine: str, element_ops: int
) -> None:
    scheduled = one_op(shapes, body)
    assert scheduled.engine == engine
    assert scheduled.macs == 0
    assert scheduled.element_ops == element_ops
    assert scheduled.compute_cycles == math.ceil(element_ops / 64)
    assert not scheduled.fused
    assert {operand.role for operand in scheduled.operands[1:-1]} <= {"weight", "input"}


def test_quantize_and_dequantize() -> None:
    region = Region()
    x, scale = region.tensor("x", X), region.tensor("scale", [1])
    zero = region.tensor("zero", [1], "int8")
    attrs = {"axis": -1, "out_dtype": "int8"}
    quantized = region.kernel(
        "quantize", [x, scale, zero], [op("quantize", [0, 1, 2], X, "int8", **attrs)]
    )
    attrs["out_dtype"] = "float32"
    region.kernel("dequantize", [quantized, scale, zero], [op("dequantize", [0, 1, 2], X, **attrs)])
    there, back = region.plan().ops
    assert there.engine == back.engine == "vector"
    assert (there.element_ops, back.element_ops) == (4 * N, 2 * N)
    assert [operand.bytes for operand in there.operands] == [4 * N, 4, 1, N]
    assert [operand.role for operand in there.operands] == ["input", "weight", "weight", "output"]


def test_parameters_of_norms_and_broadcast_operands_are_weights() -> None:
    norm = one_op([X, [8], [8]], op("nn.layer_norm", [0, 1, 2], X, axes=[-1], epsilon=1e-5))
    assert [operand.role for operand in norm.operands] == ["input", "weight", "weight", "output"]
    bias = one_op([X, [1, 16, 1, 1]], op("add", [0, 1], X))
    assert [operand.role for operand in bias.operands] == ["input", "weight", "output"]
    residual = one_op([X, X], op("add", [0, 1], X))
    assert [operand.role for operand in residual.operands] == ["input", "input", "output"]
    parts = one_op([X, X], op("concat", [{"tuple": [[0, 0], [1, 0]]}], [1, 32, 8, 8], axis=1))
    assert [operand.role for operand in parts.operands] == ["input", "input", "output"]


def test_bound_constants_are_weights() -> None:
    region = Region()
    inputs = [region.tensor("x", X), region.tensor("c", X, kind="const")]
    region.kernel("add", inputs, [op("add", [0, 1], X)])
    assert [operand.role for operand in region.plan().ops[0].operands] == [
        "input",
        "weight",
        "output",
    ]


def test_fused_stages_work_side_by_side_and_pass_values_in_registers() -> None:
    region = Region()
    out = [1, 16, 8, 8]
    inputs = [
        region.tensor("x", [1, 16, 8, 8]),
        region.tensor("w", [16, 16, 1, 1]),
        region.tensor("bias", [16]),
    ]
    ops = [
        conv_op(out),
        op("reshape", [2, {"shape": [1, 16, 1, 1]}], [1, 16, 1, 1]),
        op("add", [3, 4], out),
        op("nn.relu", [5], out),
    ]
    region.kernel("conv2d_bias_relu", inputs, ops)
    scheduled = region.plan().ops[0]
    assert scheduled.engine == "conv"
    assert scheduled.fused
    assert scheduled.operands[2].role == "weight"
    assert scheduled.macs == 16 * 64 * 16
    assert scheduled.element_ops == 2 * 1024  # add and relu; the reshape is free here
    assert scheduled.compute_cycles == 16 * 64 * 16 // 256  # more than 1024 / 64 of either stage
    # The convolution's and the addition's results: 4096 bytes each, written and read.
    assert scheduled.moved_bytes[0] == 2 * 2 * 4096


def test_view_in_front_of_one_op_does_not_make_it_fused() -> None:
    region = Region()
    x = region.tensor("x", [4, 4])
    region.kernel("k", [x], [op("reshape", [0, {"shape": [16]}], [16]), op("nn.relu", [1], [16])])
    scheduled = region.plan().ops[0]
    assert scheduled.engine == "activation"
    assert not scheduled.fused
    assert scheduled.element_ops == 16


# Memory -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "preferred", "tier"),
    [
        (2 * KIB, "L0", "L0"),  # half of the registers
        (2 * KIB + 4, "L1", "L1"),
        (128 * KIB, "L1", "L1"),  # half of the SRAM
        (128 * KIB + 4, "L1", "L2"),
        (512 * KIB, "L1", "L2"),
        (512 * KIB + 4, "L1", "L3"),
    ],
)
def test_intermediate_lives_in_the_nearest_tier_with_room(
    size: int, preferred: str, tier: str
) -> None:
    region = Region()
    first = region.relu(region.tensor("x", [size // 4]))
    region.relu(first)
    schedule = region.plan()
    written, read = schedule.ops[0].operands[1], schedule.ops[1].operands[0]
    for operand in (written, read):
        assert operand.bytes == size
        assert (operand.preferred_tier, operand.tier) == (preferred, tier)
        assert operand.spilled == (preferred != tier)
    index = npu.TIERS.index(tier)
    assert schedule.tiers[index].peak_bytes == size
    # DRAM: the region's input and output, and the intermediate when it spilled so far.
    assert dram_bytes(schedule) == 2 * size + (2 * size if tier == "L3" else 0)
    # Everything but the registers' content passes through L1.
    assert schedule.tiers[1].moved_bytes == (2 if tier == "L0" else 4) * size
    if tier in ("L0", "L2"):
        assert schedule.tiers[index].moved_bytes == 2 * size


def test_room_is_used_again_when_a_tensor_is_dead() -> None:
    # 100 KiB each, of 128: of two neighbours, which live at the same time, one must go to L2.
    region = Region()
    last = region.tensor("x", [100 * KIB // 4])
    for _ in range(5):
        last = region.relu(last)
    region.relu(last)
    tiers = [scheduled.operands[0].tier for scheduled in region.plan().ops[1:]]
    assert tiers == ["L1", "L2", "L1", "L2", "L1"]


def test_large_tensor_leaves_room_to_smaller_ones() -> None:
    region = Region()
    x = region.tensor("x", [200 * KIB // 4])
    big = region.relu(x)
    region.resize(region.resize(big, 25 * KIB), 1)
    ops = region.plan().ops
    assert ops[1].operands[0].tier == "L2"  # 200 KiB
    assert ops[2].operands[0].tier == "L1"  # 100 KiB


def test_region_output_that_is_also_read_inside_lives_in_dram() -> None:
    region = Region()
    first = region.relu(region.tensor("x", [64]))
    last = region.relu(first)
    schedule = region.plan(first, last)
    assert {operand.tier for scheduled in schedule.ops for operand in scheduled.operands} == {"L3"}


def test_statistics_of_a_batch_norm_are_not_written() -> None:
    region = Region()
    inputs = [region.tensor(f"p{i}", shape) for i, shape in enumerate([X] + [[16]] * 4)]
    kernel = region.kernel(
        "batch_norm", inputs, [op("nn.batch_norm", [0, 1, 2, 3, 4], X, axis=1, epsilon=1e-5)]
    )
    attrs = region.nodes[kernel]["attrs"]
    attrs["num_outputs"] = 3
    attrs["results"] = [[5, 0], [5, 1], [5, 2]]
    for tensors in (attrs, attrs["ops"][0]):
        tensors["shape"] = [X, [16], [16]]
        tensors["dtype"] = ["float32"] * 3
    scheduled = region.plan().ops[0]
    assert [operand.role for operand in scheduled.operands] == [
        "input",
        *["weight"] * 4,
        "output",
    ]
    assert scheduled.element_ops == 2 * N
    assert scheduled.engine == "vector"


def test_large_matmul_reads_operands_again_for_every_tile() -> None:
    # No block of 512 x 512 float32 fits; the chosen tile is judged by what it says of itself.
    scheduled = one_matmul([512, 512], [512, 512], [512, 512]).plan().ops[0]
    batch, m, n, k = scheduled.tiling.tile
    assert scheduled.tiling.dims == ("batch", "m", "n", "k")
    assert batch == 1
    assert scheduled.tiling.tile_bytes == 4 * (m * k + k * n + m * n) <= 64 * KIB
    assert scheduled.tiling.tiles == (512 // m) * (512 // n) * (512 // k)
    assert k < 512  # so that neither operand can stay in place
    a, b, y = scheduled.operands
    assert a.moved_bytes == a.bytes * 512 // n
    assert b.moved_bytes == b.bytes * 512 // m
    assert y.moved_bytes == y.bytes
    blocks = (512 // m) * (512 // n)
    assert a.transfers == b.transfers == blocks * (512 // k)
    assert y.transfers == blocks  # partial sums stay in L1
    # No tile of powers of two within the room needs fewer bytes.
    sizes = [16, 32, 64, 128, 256, 512]
    fitting = [
        (m, n)
        for m in [1, 2, 4, 8, *sizes]
        for n in sizes
        for k in sizes[:-1]
        if 4 * (m * k + k * n + m * n) <= 64 * KIB
    ]
    whole = [
        512 // n + 1
        for m in [1, 2, 4, 8, *sizes]
        for n in sizes
        if 4 * (m * 512 + 512 * n + m * n) <= 64 * KIB
    ]
    fewest = min([512 // n + 512 // m for m, n in fitting] + whole)
    assert a.moved_bytes + b.moved_bytes == fewest * a.bytes


def test_weights_stay_in_place_when_they_fit() -> None:
    # w is 16 KiB, x and y are 1 MiB each: many tiles of rows, each weight read once.
    scheduled = one_matmul([4096, 64], [64, 64], [4096, 64]).plan().ops[0]
    x, w, y = scheduled.operands
    assert scheduled.tiling.tiles > 1
    assert (x.moved_bytes, w.moved_bytes, y.moved_bytes) == (x.bytes, w.bytes, y.bytes)
    assert w.transfers == 1


def test_tile_larger_than_the_sram_is_placed_further_out() -> None:
    scheduled = (
        one_conv([1, 64, 16, 16], [64, 64, 3, 3], [1, 64, 14, 14]).plan(l1_bytes=4 * KIB).ops[0]
    )
    # 16 x 16 channels of a 3 x 3 window are 9 KiB already; a tile may take 1 KiB of L1.
    assert scheduled.tiling.tile_bytes > 9 * KIB
    assert scheduled.tiling.tier == "L2"


SHAPES = st.tuples(
    st.integers(1, 3),  # batch
    st.integers(1, 80),  # input channels of a group
    st.integers(3, 60),  # rows and columns
    st.integers(1, 80),  # output channels of a group
    st.sampled_from([1, 2, 4]),  # groups
    st.sampled_from([1, 3]),  # window
    st.integers(1, 2),  # stride
)


@settings(deadline=None, max_examples=60)
@given(SHAPES, st.integers(12, 20))
def test_tile_fits_and_covers_the_convolution(
    sizes: tuple[int, int, int, int, int, int, int], log2_l1: int
) -> None:
    n, c, hw, o, g, k, s = sizes
    out = (hw - k) // s + 1
    region = one_conv(
        [n, c * g, hw, hw], [o * g, c, k, k], [n, o * g, out, out], strides=s, groups=g
    )
    scheduled = region.plan(l1_bytes=2**log2_l1).ops[0]
    tiling = scheduled.tiling
    assert scheduled.macs == n * o * g * out * out * c * k * k
    assert tiling.extents == (n, g, out, out, o, c)
    counts = [math.ceil(e / t) for e, t in zip(tiling.extents, tiling.tile, strict=True)]
    assert tiling.tiles == math.prod(counts)
    room = {"L1": 2**log2_l1 // 4, "L2": 512 * KIB, "L3": math.inf}[tiling.tier]
    tb, tg, th, tw, to, tc = tiling.tile
    rows, columns = (min(hw, (t - 1) * s + k) for t in (th, tw))
    tile_bytes = 4 * (tb * tg * tc * rows * columns + tg * to * tc * k * k + tb * tg * to * th * tw)
    assert tiling.tile_bytes == tile_bytes <= room
    # Nothing is moved less than once, and everything that is moved is in the totals.
    assert all(operand.moved_bytes >= operand.bytes for operand in scheduled.operands)
    assert scheduled.moved_bytes[3] == sum(operand.moved_bytes for operand in scheduled.operands)
    assert scheduled.cycles == max(scheduled.compute_cycles, scheduled.memory_cycles)


@settings(deadline=None, max_examples=40)
@given(SHAPES, st.integers(4 * KIB, 1024 * KIB), st.integers(4 * KIB, 1024 * KIB))
def test_smaller_sram_never_moves_fewer_bytes_from_dram_convolution(
    sizes: tuple[int, int, int, int, int, int, int], one: int, other: int
) -> None:
    n, c, hw, o, g, k, s = sizes
    out = (hw - k) // s + 1
    region = one_conv(
        [n, c * g, hw, hw], [o * g, c, k, k], [n, o * g, out, out], strides=s, groups=g
    )
    small, large = sorted((one, other))
    assert dram_bytes(region.plan(l1_bytes=small)) >= dram_bytes(region.plan(l1_bytes=large))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 64 * KIB), st.integers(1, 6)), min_size=1, max_size=12),
    st.sampled_from(["l0_bytes", "l1_bytes", "l2_bytes"]),
    st.integers(64, 1024 * KIB),
    st.integers(64, 1024 * KIB),
)
def test_smaller_tier_never_moves_fewer_bytes_from_dram_intermediates(
    lengths_and_ages: list[tuple[int, int]], tier: str, one: int, other: int
) -> None:
    region = vectors(lengths_and_ages)
    small, large = sorted((one, other))
    less: dict[str, Any] = {tier: small}
    more: dict[str, Any] = {tier: large}
    assert dram_bytes(region.plan(**less)) >= dram_bytes(region.plan(**more))


# Time ---------------------------------------------------------------------------------------------


def test_power_mode_scales_the_clock_and_the_units() -> None:
    # An L1 of 16 MiB reads everything once, which leaves the MACs as what takes time.
    region = one_conv([1, 256, 14, 14], [256, 256, 3, 3], [1, 256, 12, 12])
    options: dict[str, Any] = {"l1_bytes": 16 * KIB * KIB}
    fast, normal, slow = (
        region.plan(power_mode=mode, **options)
        for mode in ("high_performance", "balanced", "low_power")
    )
    assert [plan.frequency_mhz for plan in (fast, normal, slow)] == [1000, 800, 400]
    assert {plan.ops[0].bound for plan in (fast, normal, slow)} == {"compute"}
    macs = 256 * 12 * 12 * 256 * 9
    assert fast.microseconds == pytest.approx(macs / 256 / 1000)
    assert normal.microseconds == pytest.approx(macs / 256 / 800)
    assert slow.microseconds == pytest.approx(macs / 128 / 400)


def test_dram_keeps_its_bandwidth_in_every_power_mode() -> None:
    region = Region()
    region.relu(region.tensor("x", [16 * KIB]))
    for mode, mhz in (("high_performance", 1000), ("balanced", 800), ("low_power", 400)):
        scheduled = region.plan(power_mode=mode).ops[0]
        moved = 2 * 64 * KIB
        # 131,072 bytes do not fit a tile of 65,536: 2 tiles of each operand.
        expected = math.ceil(moved / 256 + moved * mhz / 16000) + 4 + 400
        assert scheduled.memory_cycles == expected


def test_rates_are_options() -> None:
    region = one_matmul([64, 64], [64, 64], [64, 64])
    plan = region.plan(matrix_macs_per_cycle=64, frequency_mhz=500, power_mode="high_performance")
    assert plan.ops[0].compute_cycles == 64**3 // 64
    assert plan.frequency_mhz == 500
    free = region.plan(l1_access_cycles=0, l3_access_cycles=0).ops[0]
    assert free.memory_cycles == math.ceil(3 * 16384 / 256 + 3 * 16384 / 20)


def test_unknown_or_bad_option_is_refused_by_name() -> None:
    region = one_matmul([4, 4], [4, 4], [4, 4])
    with pytest.raises(ValueError, match=r"vector_ops_per_second.*vector_ops_per_cycle"):
        region.plan(vector_ops_per_second=1)
    with pytest.raises(ValueError, match=r"conv_macs_per_cycle.*0.*at least 1"):
        region.plan(conv_macs_per_cycle=0)
    with pytest.raises(ValueError, match=r"l3_access_cycles.*2147483648.*at most 2147483647"):
        region.plan(l3_access_cycles=2**31)


def test_cycles_do_not_overflow_with_the_greatest_options() -> None:
    most = 2**31 - 1
    region = one_matmul([512, 512], [512, 512], [512, 512])
    slow = region.plan(
        l1_bytes=8192, l1_access_cycles=most, l3_access_cycles=most, frequency_mhz=most,
        l3_mbytes_per_second=1,
    )  # fmt: skip
    assert slow.ops[0].memory_cycles > most
    assert slow.cycles >= slow.ops[0].memory_cycles


def branches() -> Region:
    """A convolution with a pooling branch beside it, added and passed through a relu."""
    region = Region()
    x = region.tensor("x", [1, 16, 16, 16])
    w = region.tensor("w", [16, 16, 3, 3])
    shape = [1, 16, 16, 16]
    conv = region.kernel("conv2d", [x, w], [conv_op(shape, padding=1)])
    pool = region.kernel("max_pool2d", [x], [pool_op("max", shape, window=3, stride=1, padding=1)])
    total = region.kernel("add", [conv, pool], [op("add", [0, 1], shape)])
    second = region.kernel("conv2d", [x, w], [conv_op(shape, padding=1)])
    last = region.kernel("add", [total, second], [op("add", [0, 1], shape)])
    region.relu(last)
    return region


def test_timeline_respects_dependencies_and_engines() -> None:
    region = branches()
    schedule = region.plan()
    by_node = {scheduled.node: scheduled for scheduled in schedule.ops}
    for scheduled in schedule.ops:
        for source, _, _ in region.nodes[scheduled.node]["inputs"]:
            if source in by_node:
                assert by_node[source].end_cycle <= scheduled.start_cycle
    for engine in npu.ENGINES:
        spans = sorted((o.start_cycle, o.end_cycle) for o in schedule.ops if o.engine == engine)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    conv, pool, _, second, _, _ = schedule.ops
    assert conv.start_cycle == pool.start_cycle == 0  # on different engines
    assert second.start_cycle == conv.end_cycle  # as soon as its engine is free
    assert schedule.cycles == max(scheduled.end_cycle for scheduled in schedule.ops)
    assert schedule.cycles < sum(scheduled.cycles for scheduled in schedule.ops)


# Symbolic dimensions ------------------------------------------------------------------------------


def test_symbolic_region_is_scheduled_for_the_last_call() -> None:
    region = one_conv([-1, 3, 8, 8], [16, 3, 3, 3], [-1, 16, 6, 6], relu=True)
    create = tvm_ffi.get_global_func("runtime.ExampleNPUJSONRuntimeCreate")
    module = create("region", region.json([2], {}), [])
    for batch in (1, 5):
        tensors = [
            tvm_ffi.from_dlpack(numpy.ones(shape, "float32"))
            for shape in ([batch, 3, 8, 8], [16, 3, 3, 3], [batch, 16, 6, 6])
        ]
        module["region"](*tensors)
        (schedule,) = npu.schedules(module)
        assert schedule.ops[0].macs == batch * 16 * 36 * 27
        assert schedule.ops[0].operands[2].shape == (batch, 16, 6, 6)


# Python side --------------------------------------------------------------------------------------


class FakeModule:
    """As much of a runtime module as `schedules` uses."""

    def __init__(self, kind: str, imports: list[FakeModule], schedule: str = "") -> None:
        self.kind = kind
        self._imports = imports
        self._schedule = schedule

    @property
    def imports(self) -> list[FakeModule]:
        return self._imports

    def get_function(self, name: str) -> Any:
        return {"get_schedule": lambda: self._schedule, "get_symbol": lambda: "region"}[name]


def plan_json(region: Region) -> str:
    create = tvm_ffi.get_global_func("runtime.ExampleNPUJSONRuntimeCreate")
    text = region.json([len(region.nodes) - 1], {})
    return str(create("region", text, [])["get_schedule"]())


def test_schedules_are_found_anywhere_in_the_import_tree() -> None:
    text = plan_json(branches())
    npu_modules = [FakeModule("example_npu_json", [], text) for _ in range(2)]
    root = FakeModule("relax.VMExecutable", [npu_modules[0], FakeModule("llvm", [npu_modules[1]])])

    class Built:
        module = root

    class Outer:
        mod = Built()

    assert len(npu.schedules(root)) == len(npu.schedules(Built())) == 2
    assert npu.schedules(Outer()) == npu.schedules(root)
    assert npu.schedules(FakeModule("llvm", [])) == ()
    with pytest.raises(TypeError, match="expected a built model"):
        npu.schedules(3)


def test_schedule_of_another_version_is_refused() -> None:
    text = plan_json(branches())
    assert npu.Schedule.from_json(text, "r").symbol == "r"
    newer = json.dumps(json.loads(text) | {"version": 99})
    for broken in (
        newer,
        "{}",
        "[]",
        "nonsense",
        json.dumps({"version": 1, "ops": [], "tiers": []}),
    ):
        with pytest.raises(PluginError, match="reinstall tvm-byoc-kit"):
            npu.Schedule.from_json(broken)


def test_summary_shows_ops_and_totals() -> None:
    schedule = branches().plan()
    text = npu.summary_text([schedule, replace(schedule, symbol="second")])
    for part in (
        "balanced, 800 MHz",
        "conv2d",
        "max_pool2d",
        "region 1",
        "region 2",
        "all regions",
    ):
        assert part in text
    rows = [line for line in text.splitlines() if "conv2d" in line and "conv" in line]
    assert len(rows) == 4  # two convolutions in each of two regions
    assert f"{schedule.ops[0].macs:,}" in rows[0]
    assert f"{2 * schedule.microseconds:,.2f}" in text
    assert "max_pool2d" in str(schedule)
    assert "no region" in npu.summary_text([])


def test_chrome_trace_has_a_lane_for_each_engine_and_regions_in_sequence(tmp_path: Path) -> None:
    schedule = branches().plan()
    path = npu.write_chrome_trace(tmp_path / "trace.json", [schedule, schedule])
    assert [entry.name for entry in tmp_path.iterdir()] == ["trace.json"]
    trace = json.loads(path.read_text(encoding="utf-8"))
    events = trace["traceEvents"]
    assert all({"ph", "name", "pid", "tid", "ts"} <= event.keys() for event in events)
    lanes = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert sorted(lanes.values()) == sorted([f"{name} engine" for name in npu.ENGINES] + ["region"])
    spans = [event for event in events if event["ph"] == "X"]
    ops = [span for span in spans if span["cat"] != "region"]
    assert len(ops) == 2 * len(schedule.ops)
    for span, scheduled in zip(ops, schedule.ops * 2, strict=True):
        assert span["dur"] == pytest.approx(scheduled.cycles / 800)
        assert lanes[span["tid"]] == f"{scheduled.engine} engine"
        assert span["args"]["macs"] == scheduled.macs
    first, second = (span for span in spans if span["cat"] == "region")
    assert second["ts"] == pytest.approx(first["ts"] + first["dur"])
    half = len(schedule.ops)
    assert min(span["ts"] for span in ops[half:]) >= max(s["ts"] + s["dur"] for s in ops[:half])


def test_counters_of_the_trace_integrate_to_the_moved_bytes() -> None:
    schedule = branches().plan()
    events = npu.chrome_trace(schedule)["traceEvents"]
    for index, tier in enumerate(npu.TIERS):
        points = [event for event in events if event["name"] == f"{tier} traffic"]
        assert points[-1]["args"]["GB/s"] == 0
        total = sum(
            a["args"]["GB/s"] * (b["ts"] - a["ts"]) for a, b in itertools.pairwise(points)
        )  # GB/s times µs: thousands of bytes
        moved = sum(scheduled.moved_bytes[index] for scheduled in schedule.ops)
        assert total * 1000 == pytest.approx(moved, rel=1e-3, abs=1)


def test_importing_the_module_does_not_import_tvm() -> None:
    source = importlib.util.find_spec("tvm_byoc_kit.backends.example_npu_schedule")
    assert source is not None
    assert source.origin is not None
    text = Path(source.origin).read_text(encoding="utf-8")
    assert not re.search(r"^(import|from) (tvm|tvm_ffi|rich|torch|onnx)\b", text, re.MULTILINE)
