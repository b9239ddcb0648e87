"""PyTorch modules: what is imported, under which names, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tvm_byoc_kit as byoc
from tvm_byoc_kit.errors import ModelError


class TwoHeads(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Dropout(0.5)
        )
        self.heads = torch.nn.ModuleList([torch.nn.Linear(8, 2), torch.nn.Linear(8, 3)])

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = self.body(x)
        return self.heads[0](hidden), torch.tanh(self.heads[1](hidden) + bias)


class DictOutput(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"up": x + 1, "down": x - 1}


class Branching(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x - 1


class Unsupported(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.svdvals(x)


@pytest.fixture(scope="module")
def net() -> TwoHeads:
    torch.manual_seed(0)
    return TwoHeads()


@pytest.fixture(scope="module")
def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(5, 4, generator=generator), torch.randn(3, generator=generator)


def run_and_compare(model: Any, net: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    with torch.no_grad():
        expected = net.eval()(*inputs)
    expected = (expected,) if isinstance(expected, torch.Tensor) else tuple(expected)
    got = byoc.compile(model, "llvm")(*inputs)
    got = got if isinstance(got, tuple) else (got,)
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-5, atol=1e-6)


def test_a_module_agrees_with_pytorch(net: TwoHeads, inputs: tuple[torch.Tensor, ...]) -> None:
    model = byoc.load_model(net, inputs)
    assert model.origin == "TwoHeads"
    assert [spec.shape for spec in model.inputs] == [(5, 4), (3,)]
    assert [spec.shape for spec in model.outputs] == [(5, 2), (5, 3)]
    run_and_compare(model, net, inputs)


def test_one_output_is_given_as_an_array(inputs: tuple[torch.Tensor, ...]) -> None:
    net = torch.nn.Linear(4, 3)
    model = byoc.load_model(net, inputs[0])  # a single tensor will do
    assert [spec.name for spec in model.outputs] == ["output"]
    run_and_compare(model, net, inputs[:1])


def test_the_reference_is_pytorch(net: TwoHeads, inputs: tuple[torch.Tensor, ...]) -> None:
    model = byoc.load_model(net, inputs)
    assert model.reference is not None
    assert model.reference.name == "torch"
    arrays = {spec.name: tensor.numpy() for spec, tensor in zip(model.inputs, inputs, strict=True)}
    with torch.no_grad():
        expected = net.eval()(*inputs)
    for mine, theirs in zip(model.reference.run(arrays).values(), expected, strict=True):
        np.testing.assert_array_equal(mine, theirs.numpy())


def test_outputs_in_a_dict_keep_their_keys_and_order(inputs: tuple[torch.Tensor, ...]) -> None:
    exe = byoc.compile(byoc.load_model(DictOutput(), inputs[:1]), "llvm")
    assert [spec.name for spec in exe.outputs] == ["up", "down"]
    up, down = exe(inputs[0])
    np.testing.assert_array_equal(up, inputs[0].numpy() + 1)
    np.testing.assert_array_equal(down, inputs[0].numpy() - 1)
    assert byoc.verify(exe)


def test_a_dynamic_batch_stays_symbolic(inputs: tuple[torch.Tensor, ...]) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    batch = torch.export.Dim("batch", min=1, max=64)
    model = byoc.load_model(net, inputs[:1], dynamic_shapes=({0: batch},))
    assert isinstance(model.inputs[0].shape[0], str)
    exe = byoc.compile(model, "llvm")
    for rows in (1, 2, 9):
        x = torch.randn(rows, 4)
        with torch.no_grad():
            np.testing.assert_allclose(exe(x), net(x).numpy(), rtol=1e-5, atol=1e-6)


def test_a_parameter_is_repeated_for_each_row_of_a_dynamic_batch() -> None:
    class Queries(torch.nn.Module):
        """As class tokens and queries are; times on an axis of two, and on a new one."""

        def __init__(self) -> None:
            super().__init__()
            self.token = torch.nn.Parameter(torch.arange(3.0).reshape(1, 3))
            self.pair = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            rows = x.shape[0]
            tokens = torch.cat([x, self.token.repeat(rows, 1)], 1)
            return tokens, self.pair.repeat(rows, 2), self.pair.repeat(rows, 1, 1)

    net = Queries()
    batch = torch.export.Dim("batch", min=1, max=64)
    model = byoc.load_model(net, (torch.randn(2, 3),), dynamic_shapes=({0: batch},))
    exe = byoc.compile(model, "llvm", batch=byoc.Buckets(4, fallback="symbolic"))
    for rows in (1, 3, 6):
        x = torch.randn(rows, 3)
        for got, expected in zip(exe(x.numpy()), net(x), strict=True):
            np.testing.assert_array_equal(got, expected.detach().numpy())


def test_statistics_of_each_instance_keep_the_rows_of_a_dynamic_batch_apart() -> None:
    net = torch.nn.InstanceNorm2d(4, affine=True)
    batch = torch.export.Dim("batch", min=1, max=64)
    model = byoc.load_model(net, (torch.randn(2, 4, 3, 3),), dynamic_shapes=({0: batch},))
    exe = byoc.compile(model, "llvm", batch=byoc.Buckets(4, fallback="symbolic"))
    for rows in (1, 3, 6):
        x = torch.randn(rows, 4, 3, 3)
        np.testing.assert_allclose(exe(x), net(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_a_module_keeps_its_training_mode(inputs: tuple[torch.Tensor, ...]) -> None:
    net = TwoHeads().train()
    net.heads[1].eval()
    byoc.load_model(net, inputs)
    assert net.training
    assert net.body[2].training
    assert not net.heads[1].training


def test_dropout_does_not_act(inputs: tuple[torch.Tensor, ...]) -> None:
    net = TwoHeads().train()
    run_and_compare(byoc.load_model(net, inputs), net, inputs)


def test_an_exported_program_is_taken_from_memory_and_from_a_file(
    net: TwoHeads, inputs: tuple[torch.Tensor, ...], tmp_path: Path
) -> None:
    program = torch.export.export(net.eval(), inputs)
    run_and_compare(byoc.load_model(program), net, inputs)
    path = tmp_path / "net.pt2"
    torch.export.save(program, path)
    model = byoc.load_model(path)
    assert model.origin == str(path)
    run_and_compare(model, net, inputs)


def test_a_module_without_example_inputs_says_what_to_give(net: TwoHeads) -> None:
    with pytest.raises(ModelError, match=r"TwoHeads is a torch\.nn\.Module; give the inputs"):
        byoc.load_model(net)


@pytest.mark.parametrize(
    ("net", "example", "message"),
    [
        (Branching(), torch.zeros(3), "cannot trace Branching"),
        (torch.nn.Linear(4, 3), torch.zeros(2, 5), "cannot trace Linear"),
        (torch.nn.Linear(4, 3), "text", "cannot trace Linear"),
        (torch.nn.Linear(4, 3), (), "cannot trace Linear"),
        (Unsupported(), torch.zeros(3, 3), r"TVM cannot import Unsupported:\n.*svd"),
    ],
    ids=["data-dependent branch", "wrong shape", "no tensor", "no inputs", "unsupported op"],
)
def test_what_cannot_be_traced_or_imported_is_named(
    net: torch.nn.Module, example: Any, message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        byoc.load_model(net, example)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no such model file: .*net\.pt2"):
        byoc.load_model(tmp_path / "net.pt2")


@pytest.mark.parametrize("content", [b"", b"text, not a program", b"PK\x03\x04" + bytes(100)])
def test_a_file_that_is_no_program_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "net.pt2"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"net\.pt2 is not an ExportedProgram"):
        byoc.load_model(path)


class Nested(torch.nn.Module):
    def forward(
        self,
        x: torch.Tensor,
        *,
        pair: dict[str, torch.Tensor],
        scale: float = 1.0,
        both: bool = True,
    ) -> dict[str, Any]:
        total = x * scale + pair["left"] if both else x
        return {"total": total, "parts": [pair["right"], (x - 1, total)], "nothing": None}


def test_nested_arguments_and_results_have_the_names_of_their_places() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    pair = {"left": x + 1, "right": x * 2}
    given = {"x": x, "pair": pair, "scale": 3.0, "both": True}
    exe = byoc.compile(byoc.load_model(Nested(), given), "llvm")
    assert [spec.name for spec in exe.inputs] == ["x", "pair_left", "pair_right"]
    names = ["total", "parts_0", "parts_1_0", "parts_1_1"]
    assert [spec.name for spec in exe.outputs] == names
    got = exe(x, pair["left"], pair["right"])
    expected = Nested()(**given)
    for mine, theirs in zip(
        got, [expected["total"], expected["parts"][0], *expected["parts"][1]], strict=True
    ):
        np.testing.assert_array_equal(mine, theirs.numpy())
    assert byoc.verify(exe)  # through the nested call of the module


class Function(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda x: x + 1, ["output"]),
        (lambda x: (x + 1,), ["output"]),
        (lambda x: [x, x + 1], ["output_0", "output_1"]),
        (lambda x: (x, {"a": x + 1, "b": (x,)}), ["output_0", "output_1_a", "output_1_b_0"]),
        (lambda x: {"a_0": x, "a": [x + 1]}, ["a_0", "a_0_1"]),
        (lambda x: (None, x + 1), ["output_1"]),
    ],
)
def test_outputs_are_named(function: Any, names: list[str]) -> None:
    model = byoc.load_model(Function(function), torch.zeros(2))
    assert [spec.name for spec in model.outputs] == names


def test_an_output_that_is_no_tensor_is_refused() -> None:
    with pytest.raises(ModelError, match="output `output_1` of Function is no tensor"):
        byoc.load_model(Function(lambda x: (x, 3)), torch.zeros(2))


def test_arguments_that_a_program_has_no_use_for_are_refused(
    net: TwoHeads, inputs: tuple[torch.Tensor, ...]
) -> None:
    program = torch.export.export(net.eval(), inputs)
    with pytest.raises(ModelError, match="`example_inputs` applies to a torch"):
        byoc.load_model(program, inputs)


class Mixed(torch.nn.Module):
    """A convolution net whose sums are long enough that a half accumulator would show."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, padding=1),
            torch.nn.BatchNorm2d(8),
            torch.nn.SiLU(),
            torch.nn.GroupNorm(2, 8),
            torch.nn.ConvTranspose2d(8, 8, 2, 2),
            torch.nn.AvgPool2d(3, 2, 1),
            torch.nn.Flatten(),
            torch.nn.Linear(8 * 36, 16),
            torch.nn.LayerNorm(16),
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.body(x)
        return torch.softmax(y, -1), torch.nn.functional.gelu(y) + y.mean(-1, keepdim=True) * 2


class Autocast(Mixed):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.autocast("cpu", torch.bfloat16):
            return super().forward(x)


@pytest.mark.parametrize(
    ("make", "dtype", "result"),
    [
        (Mixed, torch.float16, "float16"),
        (Mixed, torch.bfloat16, "bfloat16"),
        (Mixed, torch.float64, "float64"),
        (Autocast, torch.float32, "bfloat16"),
    ],
    ids=["half", "bfloat16", "double", "autocast"],
)
def test_a_model_of_another_dtype_agrees_with_pytorch(
    make: type[torch.nn.Module], dtype: torch.dtype, result: str
) -> None:
    torch.manual_seed(0)
    net = make().eval().to(dtype)
    x = torch.randn(2, 3, 6, 6, dtype=dtype)
    exe = byoc.compile(byoc.load_model(net, x), "llvm")
    assert [spec.dtype for spec in exe.outputs] == [result, result]
    assert byoc.verify(exe)
    assert exe(x)[0].dtype.name == result  # a bfloat16 tensor is taken as it is


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_summed_in_float32(dtype: torch.dtype) -> None:
    function = Function(lambda x: (x.sum(), x.mean(), x.cumsum(0)[-1], x @ x))
    ones = torch.ones(4096, dtype=dtype)
    got = byoc.compile(byoc.load_model(function, ones), "llvm")(ones)
    assert [float(value) for value in got] == [4096.0, 1.0, 4096.0, 4096.0]


class Deep(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([Unsupported(), Unsupported()])

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.layers[0](x), self.layers[1](x), torch.cummax(x, 0)[0]


def test_all_unsupported_ops_are_listed_with_their_places() -> None:
    with pytest.raises(ModelError) as caught:
        byoc.load_model(Deep(), torch.zeros(3, 3))
    message = str(caught.value)
    assert "aten._linalg_svd.default has no converter: 2 times" in message
    assert "in layers.0 (Unsupported)" in message
    assert "in layers.1 (Unsupported)" in message
    assert "aten.cummax.default has no converter: 1 time, in Deep" in message
    assert "test_torch.py" in message
    assert "`return torch.linalg.svdvals(x)`" in message


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        return x + self.calls


class Numpy(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy() * 2)


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (Counter(), "changes its own state when it runs: calls; .*an input and an output"),
        (Function(lambda x: x + torch.rand(3)), r"aten\.rand\.default draws random numbers"),
        (Function(lambda x: x[x > 0]), r"aten\.index\.Tensor gives a shape that depends on"),
        (
            Function(lambda x: torch.masked_select(x, x > 0)),
            r"aten\.masked_select\.default gives a shape that depends on",
        ),
        (Function(lambda x: torch.fft.fft(x).abs()), "tensors of torch.complex64"),
        (Branching(), r"data-dependent.*test_torch\.py.*; .*torch\.where"),
        (Numpy(), "keep the computation in torch ops"),
    ],
    ids=["state", "random", "mask", "masked_select", "complex", "branch", "numpy"],
)
def test_what_has_no_meaning_in_a_built_model_is_refused(
    net: torch.nn.Module, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ModelError, match=message):
        byoc.load_model(net, torch.ones(3))
    assert "def forward" not in capfd.readouterr().err  # torch would write graphs


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (({1: torch.export.Dim("k")},), "a dimension declared dynamic is fixed by the model"),
        (({0: torch.export.Dim("n")}, None), "must have the structure of the inputs"),
    ],
)
def test_dynamic_shapes_that_do_not_fit_are_explained(shapes: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        byoc.load_model(torch.nn.Linear(4, 3), torch.zeros(2, 4), dynamic_shapes=shapes)


def test_indexing_works_with_a_symbolic_size() -> None:
    function = Function(lambda x, i: (x[:, -1], x[-1], x[i], x[i, [0, -1]], x.flip(0)))
    x, i = torch.randn(5, 3, 4), torch.tensor([0, -2])
    batch = torch.export.Dim("batch", min=2)
    model = byoc.load_model(function, (x, i), dynamic_shapes=(({0: batch}, None),))
    exe = byoc.compile(model, "llvm")
    for rows in (2, 7):
        x = torch.randn(rows, 3, 4)
        for mine, theirs in zip(exe(x, i), function(x, i), strict=True):
            np.testing.assert_array_equal(mine, theirs.numpy())


def test_both_branches_of_a_condition_are_imported() -> None:
    def choose(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x[:, -1] + 1, lambda x: x[:, -2] - 1, (x,))

    x = torch.randn(2, 3)
    exe = byoc.compile(byoc.load_model(Function(choose), x), "llvm")
    for value in (x.abs(), -x.abs()):
        np.testing.assert_array_equal(exe(value), choose(value).numpy())


def test_an_input_changed_in_place_gives_the_right_result() -> None:
    net, x = torch.nn.ReLU(inplace=True), torch.tensor([-1.0, 2.0])
    exe = byoc.compile(byoc.load_model(net, x.clone()), "llvm")
    np.testing.assert_array_equal(exe(x), [0.0, 2.0])
