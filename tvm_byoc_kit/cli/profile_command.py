"""``tvm-byoc profile``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tvm_byoc_kit.cli.arrays import read_inputs
from tvm_byoc_kit.cli.options import BackendName, Inputs, Json, Options, Seed, Shapes
from tvm_byoc_kit.cli.output import load_or_compile, show_facts, working, writing, wrote
from tvm_byoc_kit.cli.program import cli
from tvm_byoc_kit.terminal import make_console


@cli.command()
def profile(
    subject: Annotated[
        Path, typer.Argument(help="A model, or an artifact (.so).", metavar="MODEL|ARTIFACT")
    ],
    backend: BackendName = "example_npu",
    shape: Shapes = None,
    option: Options = None,
    inputs: Inputs = None,
    seed: Seed = 0,
    repeats: Annotated[int, typer.Option(help="How many runs to take the times from.")] = 10,
    trace: Annotated[
        Path | None, typer.Option(help="Write one run as Chrome trace JSON (Perfetto).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Where the time of a run goes: regions, host functions, allocation, arrays in and out.

    Example: `tvm-byoc profile model.so --inputs inputs.npz --repeats 100 --trace trace.json`
    """
    from tvm_byoc_kit.run_profile import as_table

    console = make_console()
    with working(console, subject, "profiling"):
        exe = load_or_compile(subject, backend, shape, option)
        result = exe.profile(read_inputs(exe, inputs, seed), repeats=repeats)
    if trace is not None:
        with writing("--trace", trace):
            result.write_chrome_trace(trace)
    shown = (result.headline, as_table(result), wrote(trace))
    show_facts(console, as_json, result.to_dict(), *shown)
