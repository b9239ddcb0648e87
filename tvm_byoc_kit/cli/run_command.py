"""``tvm-byoc run``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from tvm_byoc_kit.cli.arrays import describe, read_inputs, write_npz
from tvm_byoc_kit.cli.options import Inputs, Json, Seed
from tvm_byoc_kit.cli.output import show_facts, writing, wrote
from tvm_byoc_kit.cli.program import cli
from tvm_byoc_kit.errors import OptionError
from tvm_byoc_kit.terminal import make_console, progress, quiet_native_log


@cli.command()
def run(
    artifact: Annotated[Path, typer.Argument(help="An artifact that `compile` wrote.")],
    inputs: Inputs = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the outputs by name, as .npz.")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(help="Example NPU: write its schedule as Chrome trace JSON (Perfetto)."),
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Run an artifact once. Loading one runs native code: run only what you trust.

    Example: `tvm-byoc run model.so --inputs inputs.npz --output outputs.npz --trace trace.json`
    """
    import tvm_byoc_kit as byoc

    console = make_console()
    with quiet_native_log():
        exe = byoc.load(artifact)
    with progress(console, "running"), quiet_native_log():
        results = exe.run(read_inputs(exe, inputs, seed))
    schedules: tuple[Any, ...] = ()
    if exe.manifest.backend == "example_npu":
        from tvm_byoc_kit.backends import example_npu_schedule

        schedules = example_npu_schedule.schedules(exe)
        if trace is not None:
            with writing("--trace", trace):
                example_npu_schedule.write_chrome_trace(trace, schedules)
    elif trace is not None:
        raise OptionError(
            f"--trace shows the example NPU's schedule; {artifact} is for {exe.manifest.backend}"
        )
    if output is not None:
        write_npz(output, results)
    outputs = {name: describe(value) for name, value in results.items()}
    facts = {
        "artifact": str(artifact),
        "inputs": "random" if inputs is None else str(inputs),
        "outputs": outputs,
        "schedule": [asdict(schedule) for schedule in schedules],
    }
    lines = [f"{name}: {found['summary']}" for name, found in outputs.items()]
    table = example_npu_schedule.summary(schedules) if schedules else None
    show_facts(console, as_json, facts, *lines, table, wrote(output), wrote(trace))
