"""What scripts/gpu_check.py checks: models, the ways to run each, and the folder's list of them."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PLAN = "plan.json"
TESTS = "tests"  # the item that is `pytest -m gpu`
DIGITS = "tvm_byoc_kit/data/digits.onnx"


# ------------------------------------------------------------------ the ways to run a model


@dataclass(frozen=True)
class Side:
    """One way to run a model.

    Parameters
    ----------
    kind : {"artifact", "engine", "torch"}
        Built by the kit; built by TensorRT's own parser of ONNX; not built, PyTorch has it.
    backend : str
        Of an artifact.
    tolerance : str
        Key of `verification.TOLERANCES`: the dtype with the rounding of what is computed.
    half : bool
        Whether the model is converted to 16 bits before it is built.
    gpu : bool
    options : mapping
        Of the backend's codegen.
    needs : str
        A probe, beside the backend's own.
    """

    kind: str
    backend: str = ""
    tolerance: str = "float16"
    half: bool = False
    gpu: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""


def _artifact(backend: str, tolerance: str = "float16", **fields: Any) -> Side:
    return Side("artifact", backend, tolerance, **fields)


SIDES: Mapping[str, Side] = {
    "torch": Side("torch", needs="torch"),
    "cuda": _artifact("cuda", half=True),
    "cutlass": _artifact("cutlass", half=True),
    # TF32 keeps as many bits of the fraction as float16.
    "cutlass-tf32": _artifact("cutlass", options={"float32": "tf32"}),
    "cutlass-3xtf32": _artifact("cutlass", "float32", options={"float32": "3xtf32"}),
    "tensorrt": _artifact("tensorrt", options={"precision": "fp16"}),
    "tensorrt-direct": Side("engine", needs="tensorrt-rtx"),
    "llvm": _artifact("llvm", "float32", gpu=False),
    "openvino": _artifact("openvino", "float32", gpu=False),
}
_WHOLE = ("torch", "cuda", "cutlass", "tensorrt", "tensorrt-direct")
_KERNEL = ("torch", "cuda", "cutlass", "cutlass-tf32", "cutlass-3xtf32")


# ------------------------------------------------------------------ the models


@dataclass(frozen=True)
class Model:
    """A model, and how it is run.

    Parameters
    ----------
    sides : tuple of str
        Keys of `SIDES`.
    make : callable, optional
        Gives the module and an example input; None: the classifier that the kit ships.
    """

    sides: tuple[str, ...]
    make: Callable[[], tuple[Any, Any]] | None = None


def _resnet18() -> tuple[Any, Any]:
    import torch
    from bench_simulator import resnet18

    return resnet18(), torch.randn(1, 3, 224, 224)


def _encoder() -> tuple[Any, Any]:
    import torch
    from bench_torch_models import BertLike

    return BertLike(), torch.randint(0, BertLike.WORDS, (1, BertLike.TOKENS))


def _matmul() -> tuple[Any, Any]:
    import torch

    return torch.nn.Linear(1024, 1024, bias=False), torch.randn(1024, 1024)


def _linear_gelu() -> tuple[Any, Any]:
    import torch

    layers = (torch.nn.Linear(768, 3072), torch.nn.GELU())
    return torch.nn.Sequential(*layers), torch.randn(128, 768)


def _conv_relu() -> tuple[Any, Any]:
    import torch

    layers = (torch.nn.Conv2d(64, 64, 3, padding=1), torch.nn.ReLU())
    return torch.nn.Sequential(*layers), torch.randn(1, 64, 56, 56)


MODELS: Mapping[str, Model] = {
    "resnet18": Model(_WHOLE, _resnet18),
    "encoder": Model(_WHOLE, _encoder),
    "matmul": Model(_KERNEL, _matmul),
    "linear-gelu": Model(_KERNEL, _linear_gelu),
    "conv-relu": Model(_KERNEL, _conv_relu),
    "digits": Model(("llvm", "openvino")),  # for a try without a GPU
}
FOR_GPUS = tuple(name for name, model in MODELS.items() if model.make)


def make_torch_model(name: str) -> tuple[Any, Any]:
    """The module, ready for inference, and its input; the same weights each time.

    Raises
    ------
    KeyError
        For a model that PyTorch does not make.
    """
    import torch

    make = MODELS[name].make
    if make is None:
        raise KeyError(name)
    torch.manual_seed(0)
    module, example = make()
    return module.eval(), example


# ------------------------------------------------------------------ the folder's list


@dataclass
class Item:
    """A model on a side, and what came of building it.

    Parameters
    ----------
    model, side : str
    file : str
        Within the folder; empty when nothing has to be built.
    error : str
        Why it is not there.
    seconds, bytes : float, int
        What building it took, and gave.
    facts : str
    """

    model: str
    side: str
    file: str = ""
    error: str = ""
    seconds: float = 0.0
    bytes: int = 0
    facts: str = ""

    @property
    def name(self) -> str:
        """As ``--items`` takes it."""
        return f"{self.model}/{self.side}"


@dataclass
class Plan:
    """What is in the folder.

    Parameters
    ----------
    items : list of Item
    wheels : list of str
    notes : list of str
        What is not there, and why.
    python, machine : str
        That the wheels are for.
    """

    items: list[Item]
    wheels: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    python: str = field(default_factory=lambda: ".".join(platform.python_version_tuple()[:2]))
    machine: str = field(default_factory=platform.machine)

    def write(self, folder: Path) -> None:
        """Write it into the folder."""
        from tvm_byoc_kit.files import replacing

        with replacing(folder / PLAN) as unfinished:
            unfinished.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Plan:
        """Read it back."""
        fields = json.loads((folder / PLAN).read_text(encoding="utf-8"))
        return cls(**{**fields, "items": [Item(**item) for item in fields["items"]]})


def data_file(folder: Path, model: str) -> Path:
    """Inputs of a model, and the outputs that its own framework computes on a CPU."""
    return folder / "artifacts" / f"{model}.npz"


def chosen(items: Sequence[Item], patterns: Sequence[str]) -> list[Item]:
    """Those whose names fit one of the patterns."""
    return [item for item in items if any(fnmatch(item.name, pattern) for pattern in patterns)]


def wants_tests(patterns: Sequence[str]) -> bool:
    """Whether `pytest -m gpu` is asked for too."""
    return any(fnmatch(TESTS, pattern) for pattern in patterns)
