"""``tvm-byoc verify``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tvm_byoc_kit.cli.arrays import read_inputs
from tvm_byoc_kit.cli.options import BackendName, Inputs, Json, Options, Seed, Shapes, parse_options
from tvm_byoc_kit.cli.output import read_model, show_facts, working
from tvm_byoc_kit.cli.program import cli
from tvm_byoc_kit.terminal import make_console


@cli.command()
def verify(
    subject: Annotated[
        Path, typer.Argument(help="A model, or an artifact (.so).", metavar="MODEL|ARTIFACT")
    ],
    reference: Annotated[
        str,
        typer.Option(help="`auto`, `onnxruntime`, `torch`, `tvm`, or a model file."),
    ] = "auto",
    backend: BackendName = "example_npu",
    shape: Shapes = None,
    option: Options = None,
    inputs: Inputs = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Compare a model built for a backend, or an artifact, with its original framework.

    Exit code 1 when they differ.

    Example: `tvm-byoc verify model.onnx --backend example_npu`, or
    `tvm-byoc verify model.so --reference model.onnx`
    """
    import tvm_byoc_kit as byoc

    console = make_console()
    with working(console, Path(reference), "verifying", also=subject):
        if subject.suffix == ".so":
            exe = byoc.load(subject)
        else:
            model = read_model(subject, shape)
            exe = byoc.compile(model, backend, options=parse_options(option) or None)
        arrays = read_inputs(exe, inputs, seed)
        result = byoc.verify(exe, _reference(reference, shape), inputs=arrays)
    show_facts(console, as_json, result.to_dict(), lambda: console.print(str(result), markup=False))
    raise typer.Exit(0 if result else 1)


def _reference(name: str, shapes: list[str] | None) -> Any:
    return read_model(Path(name), shapes) if name.endswith((".onnx", ".pt2")) else name
