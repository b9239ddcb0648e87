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


def test_outputs_in_a_dict_keep_their_order(inputs: tuple[torch.Tensor, ...]) -> None:
    exe = byoc.compile(byoc.load_model(DictOutput(), inputs[:1]), "llvm")
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
        (Unsupported(), torch.zeros(3, 3), "TVM cannot import Unsupported.*svd"),
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
