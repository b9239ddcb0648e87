"""``tvm-byoc bench``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tvm_byoc_kit.cli.options import (
    BackendName,
    Inputs,
    Json,
    Model,
    Options,
    Seed,
    Shapes,
    parse_options,
    parse_shapes,
)
from tvm_byoc_kit.cli.output import show_facts, working, wrote
from tvm_byoc_kit.cli.program import cli
from tvm_byoc_kit.sample_inputs import read_npz
from tvm_byoc_kit.terminal import make_console


@cli.command()
def bench(
    model: Model,
    backend: BackendName = "openvino",
    against: Annotated[
        list[str] | None,
        typer.Option(
            help="`onnxruntime`, `openvino` (without TVM), `tvm` (its own code for a CPU), `torch` "
            "or `byoc:<backend>`; repeatable.",
            show_default="onnxruntime",
        ),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Of every side.")] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="Samples of each side.")] = 20,
    shape: Shapes = None,
    option: Options = None,
    inputs: Inputs = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write a picture: a .html, .svg or .png file.")
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Measure a backend against other runtimes: by turns, with equal threads and equal inputs.

    Exit code 1 when the outputs differ.

    Example: `tvm-byoc bench model.onnx --backend openvino --against onnxruntime --plot times.html`
    """
    import tvm_byoc_kit as byoc
    from tvm_byoc_kit.bench_plot import check_plot

    console = make_console()
    if plot is not None:
        check_plot(plot)
    with working(console, model, "measuring"):
        report = byoc.bench(
            model,
            backend,
            against=against or ("onnxruntime",),
            threads=threads,
            rounds=rounds,
            options=parse_options(option),
            inputs=None if inputs is None else read_npz(inputs, "--inputs"),
            shapes=parse_shapes(shape),
            seed=seed,
        )
    if plot is not None:
        report.write_plot(plot)
    show_facts(console, as_json, report.to_dict(), report, wrote(plot))
    raise typer.Exit(0 if report else 1)
