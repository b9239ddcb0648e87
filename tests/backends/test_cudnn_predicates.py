"""cuDNN: each reason on a module that isolates it, with a near miss, and upstream's checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

import tvm_byoc_kit as byoc
from tvm_byoc_kit.backends import cudnn_predicates
from tvm_byoc_kit.region_names import name_regions

from .predicate_tools import (
    Case,
    calls,
    check,
    isolated,
    kit_composites,
    module,
    normal,
    reasons,
    told,
    unshaped,
    upstream_composites,
)

HALF, FLOAT = "float16", "float32"
NHWC = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
CONV, BIAS = ("conv2d.nhwc_ohwi",), ("conv2d.nhwc_ohwi_bias",)


def conv(
    dtypes: tuple[str, str] = (HALF, HALF),
    data: tuple[Any, ...] = (1, 8, 8, 4),
    weight: tuple[Any, ...] = (6, 3, 3, 4),
    bias: tuple[Any, ...] | None = None,
    **attrs: Any,
) -> tvm.IRModule:
    settings = {"out_dtype": dtypes[0], **NHWC, **attrs}

    def body(x: Any, w: Any, b: Any = None) -> Any:
        product = op.nn.conv2d(x, w, **settings)
        return product if b is None else op.add(product, b)

    tensors = [(data, dtypes[0]), (weight, dtypes[1])]
    if bias is not None:
        tensors.append((bias, settings["out_dtype"]))
    return module(tensors, body)


def nchw(**attrs: Any) -> tvm.IRModule:
    layouts = {"data_layout": "NCHW", "kernel_layout": "OIHW"}
    return conv(data=(1, 4, 8, 8), weight=(6, 4, 3, 3), **layouts, **attrs)


def unknown() -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(ndim=4, dtype=HALF))
    w = relax.Var("w", relax.TensorType((6, 3, 3, 4), HALF))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            result = builder.emit_output(op.nn.conv2d(x, w, **NHWC))
        builder.emit_func_output(result)
    return builder.finalize()


CASES = {
    "unknown shape": Case(
        unknown(),
        "relax.nn.conv2d: the shape of operand 0 is unknown",
        conv(),
        CONV,
        stricter=True,
    ),
    "operands": Case(
        conv(("float64", "float64")),
        "relax.nn.conv2d: float64 x float64; cuDNN has two of float16 or float32",
        conv((FLOAT, FLOAT)),
        CONV,
    ),
    "result": Case(
        conv(out_dtype=FLOAT),
        "relax.nn.conv2d: float16 to float32; expected one dtype",
        conv(out_dtype=HALF),
        CONV,
        stricter=True,
    ),
    "layout": Case(
        conv(weight=(3, 3, 4, 6), kernel_layout="HWIO"),
        "relax.nn.conv2d: layouts are NHWC with HWIO; expected NHWC with OHWI or NCHW with OIHW",
        nchw(),
        CONV,
    ),
    "layout of the result": Case(
        conv(out_layout="NCHW"),
        "relax.nn.conv2d: from NHWC to NCHW; expected one layout",
        conv(out_layout="NHWC"),
        CONV,
        stricter=True,
    ),
    "symbolic shape": Case(
        conv(data=("n", 8, 8, 4)),
        "relax.nn.conv2d: the data is nx8x8x4; expected fixed sizes",
        conv(data=(5, 8, 8, 4)),
        CONV,
        stricter=True,
    ),
    "padding": Case(
        conv(padding=(0, 1, 1, 1)),
        "relax.nn.conv2d: padding is [0, 1, 1, 1]; cuDNN pads both ends alike",
        conv(padding=(0, 1, 0, 1), strides=(2, 1), dilation=(1, 2)),
        CONV,
        stricter=True,
    ),
    "residual for a bias": Case(
        conv(bias=(1, 6, 6, 6)),
        "relax.add: operand 1 is 1x6x6x6 for a result of 1x6x6x6; cuDNN adds one value per channel",
        conv(bias=(1, 1, 1, 6)),
        BIAS,
        rest=CONV,
        stricter=True,
    ),
    "bias of columns": Case(
        nchw(bias=(6,)),
        "relax.add: operand 1 is 6 for a result of 1x6x6x6; cuDNN adds one value per channel",
        nchw(bias=(6, 1, 1)),
        BIAS,
        rest=CONV,
        stricter=True,
    ),
    "bias of one": Case(
        conv(bias=(1,)),
        "relax.add: operand 1 is 1 for a result of 1x6x6x6; cuDNN adds one value per channel",
        conv(bias=(6,)),
        BIAS,
        rest=CONV,
        stricter=True,
    ),
    "integers, by groups": Case(
        conv(("int8", "int8"), weight=(4, 3, 3, 1), groups=4),
        "relax.nn.conv2d: int8 x int8; cuDNN has two of float16 or float32",
        conv(weight=(4, 3, 3, 1), groups=4),
        CONV,
    ),
}


def attention(dtype: str = HALF, **attrs: Any) -> tvm.IRModule:
    """Upstream's BS3NH: query, key and value side by side in one tensor."""
    builder = relax.BlockBuilder()
    qkv = relax.Var("qkv", relax.TensorType((2, 8, 192), dtype))
    with builder.function("main", [qkv]):
        with builder.dataflow():
            parts = builder.emit(op.split(qkv, 3, axis=2))
            heads = [
                builder.emit(op.reshape(builder.emit(relax.TupleGetItem(parts, i)), (2, 8, 4, 16)))
                for i in range(3)
            ]
            result = builder.emit_output(op.nn.attention(*heads, **attrs))
        builder.emit_func_output(result)
    return builder.finalize()


WORKSPACE = "annotate_workspace cannot look up float16 (KeyError)"
ATTENTION = {
    "half": (attention(FLOAT), "operands are float32; cuDNN's attention has float16"),
    "mask": (
        attention(causal_mask="TopLeft"),
        "causal_mask is TopLeft; cuDNN's attention here has none",
    ),
    "window": (
        attention(causal_mask="BottomRight", window_size=4),
        "causal_mask is BottomRight; cuDNN's attention here has none",
    ),
    "workspace": (attention(), WORKSPACE),
}


@pytest.mark.parametrize("name", CASES)
def test_each_reason_has_a_module_that_isolates_it_and_a_near_miss(name: str) -> None:
    check(CASES[name], "cudnn")


@pytest.mark.parametrize(
    "name", sorted(CASES.keys() - {"unknown shape"})
)  # which no model may have
def test_the_coverage_report_tells_the_reason(name: str) -> None:
    assert told(CASES[name].refused, "cudnn") == [CASES[name].reason]


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_is_refused_with_a_reason(name: str) -> None:
    mod, expected = ATTENTION[name]
    (reason,) = reasons(mod, "cudnn")
    assert reason.startswith("relax.nn.attention: ")
    assert expected in reason
    assert kit_composites(mod, "cudnn") == ()
    theirs = upstream_composites(mod, "cudnn")
    assert theirs == (("attention.BS3NH",) if name == "workspace" else ())


def test_attention_partitions_without_the_error_that_upstream_ends_in() -> None:
    from tvm.relax.backend.cuda.cudnn import partition_for_cudnn

    with pytest.raises(KeyError):
        partition_for_cudnn(attention())
    mod = attention()
    tvm.ir.assert_structural_equal(byoc.partition(mod, "cudnn", prepare=False).mod, mod)


def test_attention_would_be_accepted_by_a_tvm_whose_dtypes_are_found_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checks = cudnn_predicates.PREDICATES["relax.nn.attention"]
    known = [found for found in checks if found.__name__ != "unsized_workspace"]
    assert len(known) == len(checks) - 1
    table = {**cudnn_predicates.PREDICATES, "relax.nn.attention": tuple(known)}
    monkeypatch.setattr(cudnn_predicates, "PREDICATES", table)
    assert reasons(attention(), "cudnn") == []


UNKNOWN: dict[str, Callable[..., Any]] = {
    "nn.conv2d": op.nn.conv2d,
    "add": op.add,
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_shape_is_a_reason_and_no_error(name: str) -> None:
    reason = cudnn_predicates.refusal(normal(UNKNOWN[name](*unshaped(2))))
    assert reason == f"relax.{name}: the shape of operand 0 is unknown"


def test_every_predicate_is_isolated_by_a_case() -> None:
    table = cudnn_predicates.PREDICATES
    attentions = {name: Case(mod, "", mod, ()) for name, (mod, _) in ATTENTION.items()}
    met = isolated({**CASES, **attentions}, table)
    assert met == {found for checks in table.values() for found in checks}


def test_where_the_channels_are_is_not_asked_of_a_sum_on_its_own() -> None:
    mod = nchw(bias=(6,))
    *_, total = [binding.value for binding in mod["main"].body.blocks[0].bindings]
    assert isinstance(total.args[0], relax.Var)
    assert cudnn_predicates.refusal(total) is None
    assert cudnn_predicates.refusal(calls(mod)[1]) is not None


LAYOUTS = {"NHWC": ("OHWI", "HWIO"), "NCHW": ("OIHW", "OHWI")}
AXES = {"N": 1, "H": 8, "W": 8, "C": 4, "O": 8, "I": 4}


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    layouts=st.sampled_from([(data, kernel) for data in LAYOUTS for kernel in LAYOUTS[data]]),
    dtypes=st.tuples(*[st.sampled_from([HALF, FLOAT, "int8", "float64", "bfloat16"])] * 2),
    result=st.sampled_from([HALF, FLOAT]),
    groups=st.sampled_from([1, 2, 4]),
    padding=st.sampled_from([0, (1, 1), (0, 1, 1, 0)]),
    batch=st.sampled_from([1, 3, "n"]),
)
def test_no_reason_means_that_upstream_matches_and_no_match_of_upstream_means_a_reason(
    *,
    layouts: tuple[str, str],
    dtypes: tuple[str, str],
    result: str,
    groups: int,
    padding: Any,
    batch: int | str,
) -> None:
    data, kernel = layouts
    sizes: dict[str, Any] = {**AXES, "N": batch}
    window = {**AXES, "H": 3, "W": 3, "I": AXES["I"] // groups}
    mod = conv(
        dtypes,
        tuple(sizes[axis] for axis in data),
        tuple(window[axis] for axis in kernel),
        data_layout=data,
        kernel_layout=kernel,
        groups=groups,
        padding=padding,
        out_dtype=result,
    )
    mine, theirs = reasons(mod, "cudnn"), upstream_composites(mod, "cudnn")
    assert kit_composites(mod, "cudnn") == (() if mine else CONV)
    if not mine:
        assert theirs == CONV
    elif theirs == CONV:  # stricter, for one of the documented reasons
        documented = ("one dtype", "fixed sizes", "both ends alike")
        assert any(known in mine[0] for known in documented)


@pytest.mark.parametrize("name", CASES)
def test_what_is_accepted_is_partitioned_as_upstream_does(name: str) -> None:
    from tvm.relax.backend.cuda.cudnn import partition_for_cudnn

    mod = CASES[name].near
    before = mod.script()
    mine = byoc.partition(mod, "cudnn").mod
    tvm.ir.assert_structural_equal(mine, name_regions(partition_for_cudnn(mod), mod))
    assert mod.script() == before


def test_a_bias_and_a_relu_are_fused_as_upstream_does() -> None:
    from tvm.relax.backend.cuda.cudnn import partition_for_cudnn

    def body(x: Any, w: Any, b: Any) -> Any:
        return op.nn.relu(op.add(op.nn.conv2d(x, w, out_dtype=HALF, **NHWC), b))

    mod = module([((1, 8, 8, 4), HALF), ((6, 3, 3, 4), HALF), ((6,), HALF)], body)
    assert kit_composites(mod, "cudnn") == ("conv2d.nhwc_ohwi_bias_relu",)
    mine = byoc.partition(mod, "cudnn").mod
    tvm.ir.assert_structural_equal(mine, name_regions(partition_for_cudnn(mod), mod))


def test_a_sum_that_follows_no_convolution_misses_it_and_not_other_sizes() -> None:
    mod = module([((1, 6, 6, 6), "float32")] * 2, lambda x, y: op.add(op.nn.relu(x), y))
    (sum_,) = [o for o in byoc.partition(mod, "cudnn").coverage.ops if o.op == "relax.add"]
    assert sum_.reason is not None
    assert sum_.reason.kind == "no_match"
    assert "relax.nn.conv2d" in sum_.reason.text
