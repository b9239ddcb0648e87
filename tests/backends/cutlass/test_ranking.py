"""The choice of kernels without a GPU: on sizes for which it is known what is fast."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_byoc_kit.backends.cutlass.kernels import SHARED_BYTES, candidates
from tvm_byoc_kit.backends.cutlass.problems import Conv2d, Epilogue, Gemm
from tvm_byoc_kit.backends.cutlass.ranking import GPUS, Choice, choose
from tvm_byoc_kit.errors import ModelError

A100, H100, L40S, T4 = (80,), (90,), (89,), (75,)


def gemm(m: Any, n: Any, k: int, dtype: str = "float16", **fields: Any) -> Gemm:
    given = {
        "result": dtype,
        "batch": 1,
        "transposed": False,
        "shared_a": False,
        "epilogue": Epilogue(),
        **fields,
    }
    return Gemm(dtype=dtype, a=0, b=1, m=m, n=n, k=k, **given)


def conv(size: int, c: int, k: int, window: int = 3, n: int = 1, **fields: Any) -> Conv2d:
    """A convolution that keeps the size."""
    given = {"strides": (1, 1), "dilation": (1, 1), "epilogue": Epilogue(), **fields}
    pad = window // 2
    return Conv2d(
        "float16", "float16", 0, 1, n, size, size, c, k, window, window, size, size,
        padding=(pad, pad), **given,
    )  # fmt: skip


def area(choice: Choice) -> int:
    return choice.kernel.tile.m * choice.kernel.tile.n


@pytest.mark.parametrize("size", [4096, 8192])
@pytest.mark.parametrize("gpu", [A100, H100])
def test_a_big_square_takes_the_largest_tile(size: int, gpu: tuple[int, ...]) -> None:
    tile = choose(gemm(size, size, size), gpu).kernel.tile
    assert {tile.m, tile.n} == {128, 256}
    assert tile.threads == 256


def test_a_big_square_is_not_split() -> None:
    assert choose(gemm(4096, 4096, 4096), A100).split_k == 1


def test_a_product_with_few_rows_takes_a_low_tile_and_is_split() -> None:
    choice = choose(gemm(16, 4096, 4096), A100)
    assert choice.kernel.tile.m == 64
    assert choice.split_k > 1


def test_a_small_product_with_long_sums_is_split_the_more() -> None:
    short, long = (choose(gemm(64, 64, k), A100).split_k for k in (256, 16384))
    assert short == 1
    assert long >= 4


def test_a_layer_of_bert_takes_a_small_tile_on_a_big_gpu() -> None:
    assert area(choose(gemm(128, 768, 768), A100)) == 64 * 64
    assert area(choose(gemm(128, 768, 768), A100)) < area(choose(gemm(8192, 768, 768), A100))


def test_a_late_layer_of_resnet_is_split() -> None:
    early, late = conv(56, 64, 64), conv(7, 512, 512)
    assert choose(early, A100).split_k == 1
    assert choose(late, A100).split_k > 1


def test_an_image_of_three_colours_does_not_take_a_step_for_each_place_of_the_window() -> None:
    image, tensor = (
        choose(conv(224, 3, 64, window=7), A100),
        choose(conv(224, 8, 64, window=7), A100),
    )
    assert image.kernel.few_channels
    assert not tensor.kernel.few_channels
    assert image.cycles < tensor.cycles


def test_what_is_added_up_elsewhere_is_never_split() -> None:
    residual = Epilogue(bias=2, residual=3, binary="add")
    assert choose(gemm(16, 4096, 4096, epilogue=residual), A100).split_k == 1
    assert choose(gemm(16, 16, 4096, batch=2), A100).split_k == 1


def test_a_batch_fills_the_gpu_as_more_rows_do() -> None:
    assert area(choose(gemm(128, 128, 512, batch=512), A100)) > area(
        choose(gemm(128, 128, 512), A100)
    )


@pytest.mark.parametrize(
    ("problem", "alignments"),
    [
        (gemm(64, 64, 64), (8, 8, 8)),
        (gemm(63, 64, 64), (8, 8, 8)),  # rows lie side by side
        (gemm(64, 63, 64), (8, 1, 1)),
        (gemm(64, 63, 64, transposed=True), (8, 8, 1)),
        (gemm(64, 64, 63), (1, 8, 8)),
        (gemm(64, 66, 68), (4, 2, 2)),
        (gemm(64, 64, 64, "float32"), (4, 4, 4)),
        (gemm(64, 64, 64, result="float32"), (8, 8, 4)),
        (gemm("n", 64, 64), (8, 8, 8)),
        (gemm(64, "n", 64), (8, 1, 1)),
        (conv(8, 3, 64), (1, 1, 8)),
        (conv(8, 64, 10), (8, 8, 2)),
    ],
)
def test_alignment_is_what_the_rows_of_each_operand_allow(
    problem: Any, alignments: tuple[int, ...]
) -> None:
    assert choose(problem, A100).kernel.alignments == alignments


def test_odd_operands_take_a_kernel_without_copies_in_the_background() -> None:
    odd, even = choose(gemm(64, 64, 63), A100), choose(gemm(64, 64, 64), A100)
    assert odd.kernel.tile.stages == 2 < even.kernel.tile.stages
    assert odd.kernel.tile.instruction == even.kernel.tile.instruction == (16, 8, 16)


def test_the_instruction_is_the_best_of_the_oldest_architecture() -> None:
    problem = gemm(512, 512, 512)
    assert choose(problem, A100).kernel.tile.instruction == (16, 8, 16)
    assert choose(problem, H100).kernel.tile.instruction == (16, 8, 16)
    assert choose(problem, T4).kernel.tile.instruction == (16, 8, 8)
    assert choose(problem, (*T4, *A100)).kernel.tile.instruction == (16, 8, 8)


def test_float32_is_computed_in_one_product_or_in_three() -> None:
    problem = gemm(512, 512, 512, "float32")
    assert choose(problem, A100, "tf32").kernel.tile.operator.endswith("OpMultiplyAdd")
    assert choose(problem, A100, "3xtf32").kernel.tile.operator.endswith("OpMultiplyAddFastF32")


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_turing_knows_float16_only(dtype: str) -> None:
    with pytest.raises(ModelError, match=f"no kernel of {dtype} for sm_75.*sm_80 or above"):
        choose(gemm(64, 64, 64, dtype), T4)


@pytest.mark.parametrize("arch", SHARED_BYTES)
def test_a_tile_fits_the_shared_memory_of_each_architecture(arch: int) -> None:
    assert arch in GPUS
    for kernel in candidates(gemm(64, 64, 64), (arch,), "tf32"):
        assert kernel.tile.shared_bytes("float16") <= SHARED_BYTES[arch]


def test_one_kernel_for_two_gpus_fits_the_smaller() -> None:
    both = choose(gemm(8192, 8192, 8192), (*A100, *L40S))
    assert both.kernel.tile.shared_bytes("float16") <= SHARED_BYTES[89]
    alone = choose(gemm(8192, 8192, 8192), A100)
    assert alone.kernel.tile.shared_bytes("float16") > SHARED_BYTES[89]


DOCUMENTED = {
    "4096 x 4096 x 4096": gemm(4096, 4096, 4096),
    "2048 x 2048 x 2048": gemm(2048, 2048, 2048),
    "16 x 4096 x 4096": gemm(16, 4096, 4096),
    "128 x 768 x 768 (BERT, 128 tokens)": gemm(128, 768, 768),
    "64 x 64 x 8192": gemm(64, 64, 8192),
    "conv 3x3, 56x56x64 to 64 (ResNet, batch 1)": conv(56, 64, 64),
    "conv 3x3, 7x7x512 to 512 (ResNet, batch 1)": conv(7, 512, 512),
}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_page_says_what_is_chosen(name: str) -> None:
    page = (Path(__file__).parents[3] / "docs/cutlass.md").read_text(encoding="utf-8")
    choice = choose(DOCUMENTED[name], A100)
    tile = choice.kernel.tile
    form = f"{tile.m}x{tile.n}, steps of {tile.k}, {tile.stages} stages"
    assert f"| {name} | {form} | {choice.split_k} |" in page


SIZES = st.integers(1, 5000)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    m=SIZES,
    n=SIZES,
    k=SIZES,
    batch=st.sampled_from([1, 12]),
    dtype=st.sampled_from(["float16", "bfloat16", "float32"]),
    gpus=st.lists(st.sampled_from([80, 86, 89, 90, 120]), min_size=1, unique=True),
)
def test_there_is_a_choice_for_any_size_and_it_is_always_the_same(
    *, m: int, n: int, k: int, batch: int, dtype: str, gpus: list[int]
) -> None:
    problem = gemm(m, n, k, dtype, batch=batch)
    choice = choose(problem, tuple(gpus))
    assert choice == choose(problem, tuple(gpus))
    assert 0 < choice.cycles < float("inf")
    assert choice.split_k * choice.kernel.tile.k <= max(k, choice.kernel.tile.k)
