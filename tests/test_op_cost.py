"""Multiply-accumulates, elements and bytes, against PyTorch's counter and NumPy."""

from __future__ import annotations

import importlib.util
import io
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

import tvm_byoc_kit as byoc
from tvm_byoc_kit.op_cost import MAC_OPS, elements, macs, size_in_bytes, total

SCRIPTS = Path(__file__).parents[1] / "scripts"

few = settings(max_examples=40, deadline=None)


def tensor(*shape: Any, dtype: str = "float32") -> relax.Var:
    return relax.Var("x", relax.TensorType(shape, dtype))


def typed(call: Any) -> Any:
    """`call` with the type of its result."""
    return relax.BlockBuilder().normalize(call)


def counted_by_torch(function: Any, *shapes: tuple[int, ...]) -> int:
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    operands = [torch.empty(shape, device="meta") for shape in shapes]
    with FlopCounterMode(display=False) as counter:
        function(*operands)
    assert counter.get_total_flops() % 2 == 0
    return int(counter.get_total_flops()) // 2


# --- Convolutions -------------------------------------------------------------------------------


@st.composite
def convolutions(draw: Any) -> dict[str, Any]:
    """Of one, two or three dimensions, grouped and depthwise included."""
    axes = draw(st.integers(1, 3))
    groups = draw(st.integers(1, 3))
    window = draw(st.lists(st.integers(1, 3), min_size=axes, max_size=axes))
    return {
        "axes": axes,
        "groups": groups,
        "window": window,
        "channels": (groups * draw(st.integers(1, 3)), groups * draw(st.integers(1, 3))),
        "data": [size + draw(st.integers(2, 5)) for size in window],
        "batch": draw(st.integers(1, 2)),
        "strides": draw(st.lists(st.integers(1, 2), min_size=axes, max_size=axes)),
        "padding": draw(st.lists(st.integers(0, 1), min_size=axes, max_size=axes)),
        "channels_last": draw(st.booleans()),
    }


def permuted(shape: list[int], letters: str, layout: str) -> list[int]:
    return [shape[letters.index(letter)] for letter in layout]


def both_counts(case: dict[str, Any], transposed: bool) -> tuple[int | None, int]:
    """What `macs` says, and what PyTorch says."""
    torch = pytest.importorskip("torch")
    axes, groups, (inputs, outputs) = case["axes"], case["groups"], case["channels"]
    space = "DHW"[-axes:]
    data = [case["batch"], inputs, *case["data"]]
    first, second = ("I", "O") if transposed else ("O", "I")
    sizes = {"I": inputs, "O": outputs}
    weight = [sizes[first], sizes[second] // groups, *case["window"]]
    data_layout, kernel_layout = f"NC{space}", f"{first}{second}{space}"
    if case["channels_last"]:
        data_layout, kernel_layout = f"N{space}C", f"{space}{second}{first}"
    name = f"conv{axes}d" + ("_transpose" if transposed else "")
    call = getattr(relax.op.nn, name)(
        tensor(*permuted(data, f"NC{space}", data_layout)),
        tensor(*permuted(weight, f"{first}{second}{space}", kernel_layout)),
        strides=case["strides"],
        padding=[*case["padding"], *case["padding"]],
        groups=groups,
        data_layout=data_layout,
        kernel_layout=kernel_layout,
    )
    function = getattr(
        torch.nn.functional, f"conv_transpose{axes}d" if transposed else f"conv{axes}d"
    )
    reference = counted_by_torch(
        lambda x, w: function(x, w, stride=case["strides"], padding=case["padding"], groups=groups),
        tuple(data),
        tuple(weight),
    )
    return macs(typed(call)), reference


@few
@given(convolutions())
def test_a_convolution_counts_as_in_torch(case: dict[str, Any]) -> None:
    ours, reference = both_counts(case, transposed=False)
    assert ours == reference


@few
@given(convolutions())
def test_a_transposed_convolution_counts_as_in_torch(case: dict[str, Any]) -> None:
    ours, reference = both_counts(case, transposed=True)
    assert ours == reference


def test_a_blocked_layout_counts_as_the_plain_one() -> None:
    plain = relax.op.nn.conv2d(tensor(1, 8, 6, 6), tensor(16, 8, 3, 3))
    blocked = relax.op.nn.conv2d(
        tensor(1, 2, 6, 6, 4),
        tensor(4, 2, 3, 3, 4, 4),
        data_layout="NCHW4c",
        kernel_layout="OIHW4i4o",
    )
    assert macs(typed(blocked)) == macs(typed(plain)) == 16 * 4 * 4 * 8 * 3 * 3


# --- Matrix products ----------------------------------------------------------------------------


@st.composite
def matrix_products(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes that ``numpy.matmul`` takes: vectors, matrices, and stacks that broadcast."""
    rows, depth, columns = (draw(st.integers(1, 4)) for _ in range(3))
    if draw(st.booleans()):
        left: tuple[int, ...] = (depth,)
    else:
        left = (*draw(st.sampled_from([(), (1,), (3,), (2, 1), (2, 3)])), rows, depth)
    if draw(st.booleans()):
        right: tuple[int, ...] = (depth,)
    else:
        right = (*draw(st.sampled_from([(), (1,), (3,), (2, 3), (1, 3)])), depth, columns)
    return left, right


@few
@given(matrix_products())
def test_a_matrix_product_counts_its_multiplications(
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    left, right = shapes
    # Ones times ones: each element of the result is the number of products in it.
    reference = np.matmul(np.ones(left), np.ones(right)).sum()
    assert macs(typed(relax.op.matmul(tensor(*left), tensor(*right)))) == reference


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("bij,bjk->bik", [(5, 2, 3), (5, 3, 4)]),
        ("ij,ij->", [(2, 3), (2, 3)]),
        ("i,j->ij", [(4,), (7,)]),
        ("...ij,...jk->...ik", [(5, 2, 3), (5, 3, 4)]),
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ],
)
def test_einsum_of_two_counts_its_multiplications(
    subscripts: str, shapes: list[tuple[int, ...]]
) -> None:
    reference = np.einsum(subscripts, *(np.ones(shape) for shape in shapes)).sum()
    call = relax.op.einsum(relax.Tuple([tensor(*shape) for shape in shapes]), subscripts)
    assert macs(typed(call)) == reference


def test_einsum_of_one_multiplies_nothing_and_of_three_twice() -> None:
    one = relax.op.einsum(relax.Tuple([tensor(3, 4)]), "ij->ji")
    three = relax.op.einsum(relax.Tuple([tensor(2, 3), tensor(3, 4), tensor(4, 5)]), "ij,jk,kl->il")
    assert macs(typed(one)) == 0
    assert macs(typed(three)) == 2 * 2 * 3 * 4 * 5


def test_an_outer_product_counts_its_elements() -> None:
    assert (
        macs(typed(relax.op.outer(tensor(3), tensor(5)))) == np.outer(np.ones(3), np.ones(5)).sum()
    )


@few
@given(st.tuples(*[st.integers(1, 5)] * 6), st.booleans())
def test_attention_counts_as_in_torch(sizes: tuple[int, ...], biased: bool) -> None:
    torch = pytest.importorskip("torch")
    batch, heads, queries, keys, depth, width = sizes
    bias = tensor(1, 1, 1, keys) if biased else None
    call = relax.op.nn.attention(
        tensor(batch, queries, heads, depth),
        tensor(batch, keys, heads, depth),
        tensor(batch, keys, heads, width),
        bias,
    )
    reference = counted_by_torch(
        lambda q, k, v: torch.matmul(torch.softmax(torch.matmul(q, k.mT), -1), v),
        (batch, heads, queries, depth),
        (batch, heads, keys, depth),
        (batch, heads, keys, width),
    )
    assert macs(typed(call)) == reference


# --- What does not count, and what is not known -------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        relax.op.add(tensor(2, 3), tensor(2, 3)),
        relax.op.nn.max_pool2d(tensor(1, 2, 8, 8), (2, 2)),
        relax.op.nn.softmax(tensor(2, 3)),
        relax.op.sum(tensor(2, 3)),
    ],
    ids=lambda call: str(call.op.name),
)
def test_other_ops_count_as_none(call: Any) -> None:
    assert macs(typed(call)) == 0


def test_a_symbolic_dimension_leaves_the_count_open() -> None:
    n = tvm.tirx.Var("n", "int64")
    calls = [
        relax.op.matmul(tensor(n, 4), tensor(4, 5)),
        relax.op.matmul(tensor(3, n), tensor(n, 5)),
        relax.op.nn.conv2d(tensor(n, 3, 8, 8), tensor(4, 3, 3, 3)),
        relax.op.nn.conv1d_transpose(tensor(n, 3, 8), tensor(3, 4, 3)),
        relax.op.nn.attention(*[tensor(n, 4, 2, 3)] * 3),
        relax.op.outer(tensor(n), tensor(3)),
        relax.op.einsum(relax.Tuple([tensor(n, 3), tensor(3, 4)]), "ij,jk->ik"),
    ]
    assert [macs(typed(call)) for call in calls] == [None] * len(calls)
    assert macs(typed(relax.op.add(tensor(n, 4), tensor(n, 4)))) == 0


def test_sequences_of_any_length_leave_the_count_open() -> None:
    heads = [tensor(1, 10, 2, 4)] * 3
    starts = [tensor(3, dtype="int32")] * 2
    longest = [tensor(dtype="int32")] * 2
    assert macs(typed(relax.op.nn.attention_var_len(*heads, *starts, *longest))) is None


def test_every_counted_operator_exists() -> None:
    known = set(tvm.ir.Op.list_op_names())
    assert set(MAC_OPS) <= known
    products = {name for name in known if "conv" in name or "matmul" in name or "attention" in name}
    assert {name for name in products if name.startswith("relax.")} <= set(MAC_OPS)


# --- Elements and bytes -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "int8", "bool", "uint8"])
def test_bytes_are_those_of_numpy(dtype: str) -> None:
    ty = relax.TensorType((3, 5), dtype)
    assert size_in_bytes(ty) == np.empty((3, 5), dtype).nbytes
    assert elements(ty) == 15


def test_elements_of_less_than_a_byte_are_packed() -> None:
    assert size_in_bytes(relax.TensorType((3,), "int4")) == 2


def test_a_tuple_takes_the_bytes_of_its_tensors() -> None:
    fields = [relax.TensorType((2,), "float32"), relax.TensorType((3,), "int8")]
    assert size_in_bytes(relax.TupleType(fields)) == 11
    assert size_in_bytes(relax.TupleType([*fields, relax.TensorType(ndim=2, dtype="int8")])) is None


def test_what_is_no_tensor_takes_no_bytes() -> None:
    assert size_in_bytes(relax.ShapeType(ndim=2)) == 0


def test_a_scalar_is_one_element() -> None:
    assert (elements(relax.TensorType((), "float32")), math.prod(())) == (1, 1)


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    assert total([1, 2]) == 3
    assert total([]) == 0
    assert total([1, None]) is None


# --- Known figures ------------------------------------------------------------------------------


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(SCRIPTS))  # the scripts import each other
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(SCRIPTS))
    return module


def exported(network: Any, image: Any) -> bytes:
    import torch

    file = io.BytesIO()
    torch.onnx.export(network, (image,), file, dynamo=False)
    return file.getvalue()


@pytest.mark.parametrize("source", ["torch", "onnx"])
@pytest.mark.parametrize(
    # GFLOPS and parameters of the table at https://pytorch.org/vision/stable/models.html; the batch
    # normalizations, folded away, have no more than a hundredth of the parameters.
    ("module", "model", "gmacs", "millions"),
    [
        ("bench_simulator", "resnet18", 1.81, 11.7),
        ("bench_preparation", "mobilenet_v2", 0.30, 3.5),
    ],
)
def test_a_known_model_has_its_published_count(
    module: str, model: str, gmacs: float, millions: float, source: str
) -> None:
    torch = pytest.importorskip("torch")
    onnx = pytest.importorskip("onnx")
    network = getattr(script(module), model)()
    image = torch.rand(1, 3, 224, 224)
    if source == "torch":
        imported = byoc.load_model(network, (image,))
    else:
        imported = byoc.load_model(onnx.load_from_string(exported(network, image)))
    coverage = byoc.partition(imported, "tensorrt").coverage
    counts = [op.macs or 0 for op in coverage.ops]
    assert round(sum(counts) / 1e9, 2) == gmacs
    assert sum(counts) == counted_by_torch(network.to("meta"), image.shape)
    assert round(sum(op.parameters for op in coverage.ops) / 1e6, 1) == millions
