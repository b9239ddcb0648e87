"""``tvm-byoc compile``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tvm_byoc_kit.cli.open_sizes import (
    Batch,
    BucketsOf,
    Fallback,
    Masks,
    NoPad,
    parse_sizes,
)
from tvm_byoc_kit.cli.options import (
    BackendName,
    Json,
    Model,
    Options,
    Policy,
    Shapes,
    joined,
    parse_options,
    parse_policy,
    parse_shapes,
)
from tvm_byoc_kit.cli.output import show_facts, working
from tvm_byoc_kit.cli.program import cli
from tvm_byoc_kit.cli.tensorrt_options import (
    ComputeCapabilities,
    Profiles,
    open_shapes,
    tensorrt_options,
)
from tvm_byoc_kit.terminal import make_console
from tvm_byoc_kit.variant_text import variant_facts


@cli.command()
def compile(  # noqa: A001 - the command's name
    model: Model,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The artifact to write, a .so file.")
    ],
    backend: BackendName = "example_npu",
    shape: Shapes = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="Target of the host part: one of TVM's, or GPUs by name, `a100` or `a100,h100`."
        ),
    ] = None,
    option: Options = None,
    fp16: Annotated[bool, typer.Option("--fp16", help="Compute in 16 bits.")] = False,
    profile: Profiles = None,
    sm: ComputeCapabilities = None,
    batch: Batch = None,
    bucket: BucketsOf = None,
    fallback: Fallback = None,
    no_pad: NoPad = False,
    mask: Masks = None,
    policy: Policy = None,
    as_json: Json = False,
) -> None:
    """Import, partition, build and export a model as one artifact.

    Example: `tvm-byoc compile model.onnx --backend example_npu --output model.so`
    """
    import tvm_byoc_kit as byoc
    from tvm_byoc_kit.building import compile_sizes
    from tvm_byoc_kit.open_dimensions import named_sizes, shapes_for

    console = make_console()
    with working(console, model, "compiling"):
        rules = parse_policy(policy)
        options = joined(parse_options(option), tensorrt_options(backend, fp16, profile, sm))
        sizes = parse_sizes(batch, bucket, fallback, no_pad, mask)
        given = open_shapes(options.get("profiles")) | parse_shapes(shape)
        imported = byoc.load_model(model, shapes=shapes_for(model, *sizes, given))
        if fp16 and backend != "tensorrt":
            imported = byoc.half_precision(imported, backend)
        exe, parts = compile_sizes(
            imported,
            byoc.get_backend(backend),
            named_sizes(imported, *sizes),
            partial(byoc.partition, backend=backend, policy=rules),
            target=target,
            options=options or None,
        )
        exe.export(output)
    coverage, code = parts.coverage, byoc.device_code(output)
    facts = {
        "model": str(model),
        "artifact": str(output),
        "bytes": output.stat().st_size,
        "ops_total": coverage.total,
        "ops_offloaded": coverage.offloaded,
        "manifest": exe.manifest.to_dict(),
    }

    def show() -> None:
        console.print(str(coverage), markup=False)
        for name, fact in variant_facts(exe.manifest.variants):
            console.print(f"{name}: {fact}", markup=False)
        holding = f", {code}" if code else ""
        console.print(f"wrote {output} ({facts['bytes']} bytes{holding})", markup=False)

    show_facts(console, as_json, facts, show)
