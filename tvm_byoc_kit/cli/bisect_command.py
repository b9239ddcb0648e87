"""``tvm-byoc bisect``."""

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
    Policy,
    Seed,
    Shapes,
    Sizes,
    parse_options,
    parse_policy,
    parse_sizes,
)
from tvm_byoc_kit.cli.output import read_model, show_facts, working
from tvm_byoc_kit.cli.program import cli
from tvm_byoc_kit.terminal import make_console


@cli.command()
def bisect(
    model: Model,
    backend: BackendName = "example_npu",
    shape: Shapes = None,
    option: Options = None,
    policy: Policy = None,
    inputs: Inputs = None,
    case: Annotated[
        str,
        typer.Option(help="Inputs that are made without --inputs: a case that `verify` has."),
    ] = "random",
    batch: Annotated[
        int | None, typer.Option(help="Size of axis 0, for the build that has it fixed at that.")
    ] = None,
    size: Sizes = None,
    seed: Seed = 0,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Directory for a reproducer of what diverges first: a script."
        ),
    ] = None,
    limit: Annotated[
        float, typer.Option(help="Seconds after which a region is taken to hang.")
    ] = 600,
    as_json: Json = False,
) -> None:
    """Find the region, and the op in it, that a backend computes otherwise than TVM's own code.

    Exit code 1 when something diverges.

    Example: `tvm-byoc bisect model.onnx --backend openvino --output reproducer`
    """
    import tvm_byoc_kit as byoc

    console = make_console()
    with working(console, model, "bisecting"):
        result = byoc.bisect(
            read_model(model, shape) if shape else model,
            backend,
            inputs=inputs,
            case=case,
            options=parse_options(option) or None,
            policy=parse_policy(policy),
            batch=batch,
            sizes=parse_sizes(size),
            seed=seed,
            limit=limit,
        )
    script = None

    def show() -> None:
        console.print(str(result), markup=False)
        if script is not None:
            console.print(f"wrote {script}", markup=False)

    try:
        if output is not None and result.reproducer is not None:
            script = result.write_reproducer(output)
    finally:  # what was found is shown all the same
        facts = result.to_dict() | {"reproducer": None if script is None else str(script)}
        show_facts(console, as_json, facts, show)
    raise typer.Exit(0 if result else 1)
