"""What can be loaded as a model, and what is refused."""

from __future__ import annotations

import importlib.machinery
import types
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import tvm
from tvm import relax

import tvm_byoc_kit as byoc
from tvm_byoc_kit.errors import ModelError


def relu_module(make_module: Any, *names: str) -> tvm.IRModule:
    mod = None
    for name in names:
        mod = make_module({"x": ((2, 3), "float32")}, relax.op.nn.relu, name=name, into=mod)
    return mod


def test_an_irmodule_keeps_its_names(two_outputs: tvm.IRModule) -> None:
    model = byoc.load_model(two_outputs)
    assert model.mod is two_outputs
    assert model.source == "relax"
    assert model.entry == "main"
    assert [str(spec) for spec in model.inputs] == ["x: float32[n, 4]", "y: float32[n, 3]"]
    assert [str(spec) for spec in model.outputs] == [
        "output_0: float32[n, 3]",
        "output_1: float32[n, 3]",
    ]
    assert model.reference is None


def test_a_loaded_model_is_given_back(two_outputs: tvm.IRModule) -> None:
    model = byoc.load_model(two_outputs)
    assert byoc.load_model(model) is model


def test_kinds_are_told_apart(onnx_path: Path, onnx_proto: onnx.ModelProto) -> None:
    net = torch.nn.Linear(4, 3)
    program = torch.export.export(net, (torch.zeros(1, 4),))
    sources = [
        byoc.load_model(onnx_path),
        byoc.load_model(str(onnx_path)),
        byoc.load_model(onnx_proto),
        byoc.load_model(net, (torch.zeros(1, 4),)),
        byoc.load_model(program),
    ]
    assert [model.source for model in sources] == ["onnx"] * 3 + ["torch"] * 2


def test_a_function_not_called_main_is_the_entry_when_it_is_the_only_one(make_module: Any) -> None:
    model = byoc.load_model(relu_module(make_module, "forward"))
    assert model.entry == "forward"
    x = np.array([[-1, 0, 1], [2, -3, 4]], "float32")
    np.testing.assert_array_equal(byoc.compile(model, "llvm")(x), np.maximum(x, 0))


def test_main_is_the_entry_among_several(make_module: Any) -> None:
    assert byoc.load_model(relu_module(make_module, "a", "main", "b")).entry == "main"


def test_several_functions_without_main_need_a_choice(make_module: Any) -> None:
    mod = relu_module(make_module, "prefill", "decode")
    with pytest.raises(ModelError, match=r"decode, prefill.*entry=") as caught:
        byoc.load_model(mod)
    assert "main" in str(caught.value)
    assert byoc.load_model(mod, entry="decode").entry == "decode"


def test_unknown_entry_lists_the_functions(make_module: Any) -> None:
    with pytest.raises(ModelError, match="no Relax function `decod`; it has: decode, prefill"):
        byoc.load_model(relu_module(make_module, "prefill", "decode"), entry="decod")


def test_regions_are_no_entry(make_module: Any) -> None:
    parts = byoc.partition(relu_module(make_module, "forward"), "example_npu")
    assert len(parts.mod.get_global_vars()) > 1
    assert byoc.load_model(parts.mod).entry == "forward"


def test_an_empty_module_is_refused() -> None:
    with pytest.raises(ModelError, match="its Relax functions are: none"):
        byoc.load_model(tvm.IRModule())


class Module:
    """Called like PyTorch's, and no relation."""


@pytest.mark.parametrize(
    "thing",
    [None, 3, [], {}, b"model.onnx", object(), Module(), Module, np.zeros(3), types],
    ids=lambda thing: type(thing).__name__,
)
def test_what_is_no_model_is_refused(thing: object) -> None:
    with pytest.raises(ModelError, match=r"cannot load a \w+; expected the path of an ONNX"):
        byoc.load_model(thing)


def test_a_subclass_of_a_module_is_a_module() -> None:
    class Net(torch.nn.Sequential):
        pass

    model = byoc.load_model(Net(torch.nn.Linear(4, 3)), (torch.zeros(1, 4),))
    assert model.origin == "Net"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"shapes": {"x": (1, 3)}}, "shapes"),
        ({"example_inputs": (1,)}, "example_inputs"),
        ({"dynamic_shapes": {}}, "dynamic_shapes"),
    ],
)
def test_an_argument_that_does_not_apply_is_refused(
    two_outputs: tvm.IRModule, arguments: dict[str, Any], named: str
) -> None:
    with pytest.raises(ModelError, match=named):
        byoc.load_model(two_outputs, **arguments)


def test_entry_is_for_irmodules_only(onnx_path: Path) -> None:
    with pytest.raises(ModelError, match="entry"):
        byoc.load_model(onnx_path, entry="main")


@pytest.mark.parametrize("stage", [byoc.partition, byoc.compile])
def test_every_stage_takes_what_load_model_takes(stage: Any, onnx_path: Path) -> None:
    assert stage(onnx_path, "llvm") is not None


def test_a_model_file_without_the_package_that_reads_it(
    monkeypatch: pytest.MonkeyPatch, onnx_path: Path
) -> None:
    from importlib import util

    find = util.find_spec

    def no_onnx(name: str, package: str | None = None) -> importlib.machinery.ModuleSpec | None:
        return None if name.partition(".")[0] == "onnx" else find(name, package)

    monkeypatch.setattr(util, "find_spec", no_onnx)
    with pytest.raises(ModelError, match="onnx package: pip install"):
        byoc.load_model(onnx_path)


def test_shapes_and_simplify_may_be_given_by_place(dynamic_onnx_proto: onnx.ModelProto) -> None:
    name = dynamic_onnx_proto.graph.input[0].name
    by_name = byoc.load_model(dynamic_onnx_proto, shapes={name: (3, 4)}, simplify=False)
    by_place = byoc.load_model(dynamic_onnx_proto, {name: (3, 4)}, False)
    assert by_place.inputs == by_name.inputs
    assert by_place.inputs[0].shape[0] == 3
