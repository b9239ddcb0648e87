"""``tvm-byoc verify``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tvm_byoc_kit.cli.options import (
    BackendName,
    Json,
    Options,
    Seed,
    Shapes,
    Sizes,
    parse_sizes,
)
from tvm_byoc_kit.cli.output import load_or_compile, read_model, show_facts, working
from tvm_byoc_kit.cli.program import cli
from tvm_byoc_kit.cli.surviving import surviving, tell_regions
from tvm_byoc_kit.terminal import make_console

if TYPE_CHECKING:
    from tvm_byoc_kit.child_process import Report


@cli.command()
def verify(
    subject: Annotated[
        Path, typer.Argument(help="A model, or an artifact (.so).", metavar="MODEL|ARTIFACT")
    ],
    reference: Annotated[
        str,
        typer.Option(
            help="`auto`, `onnxruntime`, `torch`, `tvm`, a model file, or another artifact."
        ),
    ] = "auto",
    backend: BackendName = "example_npu",
    shape: Shapes = None,
    option: Options = None,
    inputs: Annotated[
        list[Path] | None,
        typer.Option("--inputs", "-i", help="Inputs by name, as .npz; each is a case."),
    ] = None,
    cases: Annotated[
        str | None,
        typer.Option(
            help="Inputs that are made: `random`, `edge`, or one of `zeros`, `ones`, `negative`, "
            "`tiny`, `large`, `nan`, `infinity`, with commas between; `random` without --inputs."
        ),
    ] = None,
    samples: Annotated[int, typer.Option(help="How many random ones.")] = 1,
    size: Sizes = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Compare a model built for a backend, or an artifact, with its framework or another artifact.

    Exit code 1 when they differ.

    Example: `tvm-byoc verify model.onnx --backend example_npu`, or
    `tvm-byoc verify model.so --reference model.onnx --cases random,edge --samples 4`
    """
    import tvm_byoc_kit as byoc

    console = make_console()

    def work(report: Report) -> byoc.Verification:
        with working(console, Path(reference), "verifying", also=subject):
            exe = load_or_compile(subject, backend, shape, option)
            tell_regions(exe, report)
            return byoc.verify(
                exe,
                _reference(reference, shape),
                inputs=inputs or None,
                cases=None if cases is None else [case.strip() for case in cases.split(",")],
                samples=samples,
                sizes=parse_sizes(size),
                seed=seed,
            )

    result = surviving(console, work)
    show_facts(console, as_json, result.to_dict(), result)
    raise typer.Exit(0 if result else 1)


def _reference(name: str, shapes: list[str] | None) -> Any:
    """A model's file, which can be run without shapes, or the model of the `shapes` given."""
    is_model = name.endswith((".onnx", ".pt2"))
    return read_model(Path(name), shapes) if shapes and is_model else name
