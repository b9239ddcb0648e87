"""``tvm-byoc``: the same functions as ``import tvm_byoc_kit``, from the command line."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import zipfile
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from tvm_byoc_kit.errors import ByocError, InputError, OptionError
from tvm_byoc_kit.files import replacing
from tvm_byoc_kit.terminal import make_console, progress, quiet_native_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    import numpy as np
    from rich.console import Console

    from tvm_byoc_kit.coverage import Coverage
    from tvm_byoc_kit.model import ImportedModel
    from tvm_byoc_kit.partitioning import Partition
    from tvm_byoc_kit.policy import PartitionPolicy
    from tvm_byoc_kit.runtime import Executable

cli = typer.Typer(
    name="tvm-byoc",
    help="Bring your own codegen to the stock Apache TVM wheel.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)

Model = Annotated[
    Path, typer.Argument(help="An ONNX file, or a PyTorch ExportedProgram (.pt2).", metavar="MODEL")
]
BackendName = Annotated[
    str, typer.Option("--backend", "-b", help="Backend; `tvm-byoc doctor` lists them.")
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        "-s",
        help="A dynamic input's shape: `name:1,3,224,224`; a word is a dimension that stays open.",
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", "-O", help="Option of the backend's codegen: `key=value`."),
]
Profiles = Annotated[
    list[str] | None,
    typer.Option(
        "--profile",
        help="TensorRT: smallest, best and largest shape of an input, "
        "`x=1x3x224x224:8x3x224x224:32x3x224x224`, or sizes of a dimension, `n=1:8:32`; what "
        "varies stays open. Repeatable; a name that comes again begins another profile.",
    ),
]
ComputeCapabilities = Annotated[
    list[int] | None,
    typer.Option("--sm", help="TensorRT: a GPU's compute capability, 89 for 8.9; repeatable."),
]
Policy = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        "-p",
        help="A field of byoc.PartitionPolicy, what stays on the host: `min_region_ops=3`, "
        "`exclude_ops=add,nn.relu`, `strict=true`.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the facts as JSON.")]
Inputs = Annotated[
    Path | None,
    typer.Option("--inputs", "-i", help="Inputs by name, as .npz; random when left out."),
]
Seed = Annotated[int, typer.Option(min=0, help="Of the random inputs.")]


def app() -> None:
    """Entry point: an error of the kit is one line on stderr and exit code 1, no traceback."""
    interrupts = _note_interrupts()
    try:
        cli()
    except ByocError as error:
        _fail(str(error))
    except OSError as error:  # the terminal, pipe or file that the output goes to
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still buffered has nowhere to go
        _fail(f"cannot write the output: {error}")
    except Exception:
        # TVM hands an interrupt of a function that it called on as an error of its own.
        if interrupts:
            sys.exit(_INTERRUPTED)
        raise


_INTERRUPTED = 130  # as shells have it: 128 and the signal's number


def _note_interrupts() -> list[int]:
    """A list that has every Ctrl-C from now on; what one does stays as it is."""
    interrupts: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        signal.default_int_handler(number, frame)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, note)
    return interrupts


def _fail(message: str) -> NoReturn:
    line = " ".join(message.split("\n"))  # a list of unsupported operators has several
    print(f"tvm-byoc: {line}", file=sys.stderr)  # noqa: T201 - the command line's own output
    sys.exit(1)


def _version(wanted: bool) -> None:
    if wanted:
        from tvm_byoc_kit.artifact import versions

        typer.echo(", ".join(f"{name} {number}" for name, number in versions().items()))
        raise typer.Exit


@cli.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Versions.")
    ] = False,
) -> None:
    """Bring your own codegen to the stock Apache TVM wheel."""


@cli.command()
def doctor(as_json: Json = False) -> None:
    """What is here, what is missing, and the command that adds it. Exit code 0: the core works.

    Example: `tvm-byoc doctor --json`
    """
    from tvm_byoc_kit import doctor as report_module

    console = make_console()
    with progress(console, "looking around"):
        _import_tvm_without_torch()
        report = report_module.doctor()
    _show(console, as_json, report.to_dict(), lambda: report_module.render(report, console))
    raise typer.Exit(0 if report.ok else 1)


@cli.command()
def partition(
    model: Model,
    backend: BackendName = "example_npu",
    shape: Shapes = None,
    policy: Policy = None,
    script: Annotated[bool, typer.Option(help="Print the partitioned module too.")] = False,
    explain: Annotated[
        bool, typer.Option(help="Print what each pass did to the model beforehand.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(help="Write the report as one HTML page with the graph.")
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(help="An earlier `--json`: print what changed; exit code 1 if coverage fell."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option(help="Compare policies and recommend one, and nothing else.")
    ] = False,
    as_json: Json = False,
) -> None:
    """What the backend would take over, and why not the rest; nothing is compiled.

    Example: `tvm-byoc partition model.onnx --backend tensorrt --shape input:1,3,224,224 --explain`
    """
    import tvm_byoc_kit as byoc

    console = make_console()
    if dry_run:
        _refuse_with_dry_run(script=script, explain=explain, html=html, baseline=baseline)
        _dry_run(console, model, backend, shape, policy, as_json)
        return
    earlier = _read_baseline(baseline)
    with _working(console, model, "partitioning"):
        rules = _parse_policy(policy)
        parts = byoc.partition(_load_model(model, shape), backend, policy=rules)
        coverage = parts.coverage
        note = _write_page(html, parts)
    changes = None if earlier is None else byoc.diff(earlier, coverage)
    report = parts.model.report
    facts = coverage.to_dict() | {
        "model": str(model),
        "backend": parts.backend.name,
        "policy": rules and rules.to_dict(),
        "prepare": report and report.to_dict(),
        "html": html and str(html),
    }
    text = parts.mod.script() if script else None
    if text is not None:
        facts["script"] = text
    if changes is not None:
        facts["changes"] = changes.to_dict()
    shown = (text, report if explain else None, coverage, changes, note)

    def show() -> None:
        for part in shown:
            if part is not None:
                console.print(str(part), markup=False)

    _show(console, as_json, facts, show)
    if changes is not None and changes.fell:
        _fail(f"coverage fell below that of {baseline}: {'; '.join(changes.losses)}")


@cli.command()
def compile(  # noqa: A001 - the command's name
    model: Model,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The artifact to write, a .so file.")
    ],
    backend: BackendName = "example_npu",
    shape: Shapes = None,
    target: Annotated[str | None, typer.Option(help="TVM target of the host part.")] = None,
    option: Options = None,
    fp16: Annotated[bool, typer.Option("--fp16", help="TensorRT: compute in 16 bits.")] = False,
    profile: Profiles = None,
    sm: ComputeCapabilities = None,
    policy: Policy = None,
    as_json: Json = False,
) -> None:
    """Import, partition, build and export a model as one artifact.

    Example: `tvm-byoc compile model.onnx --backend example_npu --output model.so`
    """
    import tvm_byoc_kit as byoc

    console = make_console()
    with _working(console, model, "compiling"):
        rules = _parse_policy(policy)
        options = _joined(_parse_options(option), _tensorrt_options(backend, fp16, profile, sm))
        shapes = _open_shapes(options.get("profiles")) | _parse_shapes(shape)
        parts = byoc.partition(byoc.load_model(model, shapes=shapes), backend, policy=rules)
        exe = byoc.build(parts, target, options or None)
        exe.export(output)
    coverage = parts.coverage
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
        console.print(f"wrote {output} ({facts['bytes']} bytes)", markup=False)

    _show(console, as_json, facts, show)


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
    with _working(console, artifact, "running"):
        exe = byoc.load(artifact)
        results = exe.run(_read_inputs(exe, inputs, seed))
    schedules: tuple[Any, ...] = ()
    if exe.manifest.backend == "example_npu":
        from tvm_byoc_kit.backends import example_npu_schedule

        schedules = example_npu_schedule.schedules(exe)
        if trace is not None:
            with _writing("--trace", trace):
                example_npu_schedule.write_chrome_trace(trace, schedules)
    elif trace is not None:
        raise OptionError(
            f"--trace shows the example NPU's schedule; {artifact} is for {exe.manifest.backend}"
        )
    if output is not None:
        _write_npz(output, results)
    facts = {
        "artifact": str(artifact),
        "inputs": "random" if inputs is None else str(inputs),
        "outputs": {name: _describe(value) for name, value in results.items()},
        "schedule": [asdict(schedule) for schedule in schedules],
    }

    def show() -> None:
        for name, value in results.items():
            console.print(f"{name}: {_describe(value)['summary']}", markup=False)
        if schedules:
            console.print(example_npu_schedule.summary(schedules))
        for path in (output, trace):
            if path is not None:
                console.print(f"wrote {path}", markup=False)

    _show(console, as_json, facts, show)


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
    with _working(console, Path(reference), "verifying", also=subject):
        if subject.suffix == ".so":
            exe = byoc.load(subject)
        else:
            model = _load_model(subject, shape)
            exe = byoc.compile(model, backend, options=_parse_options(option) or None)
        arrays = _read_inputs(exe, inputs, seed)
        result = byoc.verify(exe, _reference(reference, shape), inputs=arrays)
    _show(console, as_json, result.to_dict(), lambda: console.print(str(result), markup=False))
    raise typer.Exit(0 if result else 1)


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
    with _working(console, model, "measuring"):
        report = byoc.bench(
            model,
            backend,
            against=against or ("onnxruntime",),
            threads=threads,
            rounds=rounds,
            options=_parse_options(option),
            inputs=None if inputs is None else _read_npz(inputs),
            shapes=_parse_shapes(shape),
            seed=seed,
        )
    if plot is not None:
        report.write_plot(plot)

    def show() -> None:
        console.print(str(report), markup=False)
        if plot is not None:
            console.print(f"wrote {plot}", markup=False)

    _show(console, as_json, report.to_dict(), show)
    raise typer.Exit(0 if report else 1)


@cli.command()
def quickstart(
    output: Annotated[
        Path | None, typer.Option(help="Keep the artifact and the trace in this directory.")
    ] = None,
    as_json: Json = False,
) -> None:
    """The four steps on the tutorial's module and on a trained model, with the numbers checked.

    Example: `tvm-byoc quickstart`
    """
    from tvm_byoc_kit import quickstart as steps

    console = make_console()
    _import_tvm_without_torch()
    result = steps.quickstart(None if as_json else console, output=output)
    if as_json:
        _show(console, as_json, result.to_dict(), lambda: None)
    raise typer.Exit(0 if result else 1)


@cli.command("cmake-dir")
def cmake_dir() -> None:
    """Print the directory for `find_package(TvmByocKit CONFIG)` of a plugin of your own.

    Example: `cmake -DTvmByocKit_DIR=$(tvm-byoc cmake-dir) ..`
    """
    from tvm_byoc_kit.native import cmake_dir as find

    typer.echo(str(find()))


cache = typer.Typer(invoke_without_command=True, rich_markup_mode="markdown")
cli.add_typer(cache, name="cache")
CacheDirectory = Annotated[
    Path | None,
    typer.Option(
        "--directory",
        "-d",
        help="The folder; `$TVM_BYOC_ENGINE_CACHE`, or one in the user's cache, when left out.",
    ),
]


@cache.callback()
def list_cache(
    context: typer.Context, directory: CacheDirectory = None, as_json: Json = False
) -> None:
    """List the engines that TensorRT built and that are kept for next time, last used first.

    Example: `tvm-byoc cache --json`
    """
    if context.invoked_subcommand is not None:
        context.obj = directory
        return
    from tvm_byoc_kit.backends.tensorrt import engine_cache

    place = directory or engine_cache.default_directory()
    entries = engine_cache.EngineCache(place).entries()
    facts = {
        "directory": str(place),
        "bytes": sum(entry.bytes for entry in entries),
        "entries": [asdict(entry) for entry in entries],
    }
    console = make_console()
    _show(console, as_json, facts, lambda: console.print(engine_cache.as_table(place, entries)))


@cache.command("clear")
def clear_cache(
    context: typer.Context, directory: CacheDirectory = None, as_json: Json = False
) -> None:
    """Remove all of them; what else is in the folder stays.

    Example: `tvm-byoc cache clear`
    """
    from tvm_byoc_kit.backends.tensorrt import engine_cache

    place = directory or context.obj or engine_cache.default_directory()
    removed = engine_cache.EngineCache(place).clear()
    facts = {"directory": str(place), "removed": removed}
    console = make_console()
    _show(
        console,
        as_json,
        facts,
        lambda: console.print(f"removed {removed} engine(s) from {place}", markup=False),
    )


@cli.command("build-plugin")
def build_plugin(
    name: Annotated[str, typer.Argument(help="The plugin: `openvino`.")],
    as_json: Json = False,
) -> None:
    """Build a backend's executor in C++ against its library as it is installed here.

    It is used from then on, by every process that starts; `TVM_BYOC_EXECUTORS=python` in the
    environment keeps to the one in Python.

    Example: `tvm-byoc build-plugin openvino`
    """
    from tvm_byoc_kit import plugin_build

    console = make_console()
    with progress(console, f"building {name}"):
        library = plugin_build.build_plugin(name)
    facts = {"plugin": name, "library": str(library), "detail": plugin_build.inspect(name).detail}
    _show(console, as_json, facts, lambda: console.print(f"built {library}", markup=False))


@contextmanager
def _working(console: Console, model: Path, text: str, also: Path | None = None) -> Iterator[None]:
    """Progress, a quiet log, and TVM without torch unless a file needs torch."""
    needs_torch = any(path is not None and path.suffix == ".pt2" for path in (model, also))
    with progress(console, text), quiet_native_log():
        if not needs_torch:
            _import_tvm_without_torch()
        yield


def _import_tvm_without_torch() -> None:
    from tvm_byoc_kit.native import without_torch

    try:
        with without_torch():
            import tvm  # noqa: F401 - the first import decides whether torch comes along
    except ImportError:
        pass  # the doctor says what is missing; every other command fails where it needs TVM


def _show(console: Console, as_json: bool, facts: Any, show: Callable[[], None]) -> None:
    if as_json:
        console.print_json(json.dumps(facts, default=str), highlight=False)
    else:
        show()


def _load_model(path: Path, shapes: list[str] | None) -> ImportedModel:
    import tvm_byoc_kit as byoc

    return byoc.load_model(path, shapes=_parse_shapes(shapes))


def _reference(name: str, shapes: list[str] | None) -> Any:
    return _load_model(Path(name), shapes) if name.endswith((".onnx", ".pt2")) else name


def _parse_shapes(items: list[str] | None) -> dict[str, list[int | str]]:
    shapes: dict[str, list[int | str]] = {}
    for item in items or []:
        name, _, text = item.rpartition(":")
        dims = [dim.strip() for dim in text.split(",")]
        if not name or not all(dim.isdecimal() or dim.isidentifier() for dim in dims):
            raise OptionError(
                f"--shape {item}: expected name:1,3,224,224, with a name for each dimension that "
                "stays open: name:batch,3,224,224"
            )
        shapes[name] = [int(dim) if dim.isdecimal() else dim for dim in dims]
    return shapes


def _parse_options(items: list[str] | None) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for item in items or []:
        key, equals, value = item.partition("=")
        if not equals:
            raise OptionError(f"--option {item}: expected key=value")
        try:
            options[key] = json.loads(value)
        except ValueError:  # no JSON, or a number too long for Python
            options[key] = value
    return options


def _tensorrt_options(
    backend: str, fp16: bool, profiles: list[str] | None, capabilities: list[int] | None
) -> dict[str, Any]:
    """The options behind --fp16, --profile and --sm, as far as they are given."""
    given: dict[str, Any] = {}
    if fp16:
        given["precision"] = "fp16"
    if capabilities:
        given["compute_capabilities"] = tuple(capabilities)
    if profiles:
        from tvm_byoc_kit.backends.tensorrt.profiles import parse_profiles

        given["profiles"] = parse_profiles(profiles)
    if given and backend != "tensorrt":
        raise OptionError(
            f"--fp16, --profile and --sm are for --backend tensorrt, not {backend}; the options of "
            "others are given with --option"
        )
    return given


def _joined(by_name: dict[str, Any], by_flag: dict[str, Any]) -> dict[str, Any]:
    """The options that --option gives, and those of flags: none of them by both."""
    for name in by_name.keys() & by_flag.keys():
        raise OptionError(
            f"--option {name}={by_name[name]} is given, and a flag that says {name}="
            f"{by_flag[name]}; leave one of them out"
        )
    return by_name | by_flag


def _open_shapes(profiles: Any) -> dict[str, list[int | str]]:
    """The shapes to import a model with so that TensorRT's profiles fit it."""
    if not profiles:
        return {}
    from tvm_byoc_kit.backends.tensorrt.options import TensorRTOptions
    from tvm_byoc_kit.backends.tensorrt.profiles import open_shapes

    return open_shapes(TensorRTOptions(profiles=profiles).profiles)


def _parse_policy(items: list[str] | None) -> PartitionPolicy | None:
    from tvm_byoc_kit.policy import as_policy

    fields: dict[str, Any] = {}
    for item in items or []:
        key, equals, text = item.partition("=")
        if not equals:
            raise OptionError(f"--policy {item}: expected key=value, such as min_region_ops=3")
        value = _POLICY_WORDS.get(text, int(text) if _COUNT.fullmatch(text) else text)
        if key in _POLICY_LISTS:  # names may look like numbers, and lists may come in pieces
            value = f"{fields[key]},{text}" if key in fields else text
        fields[key] = value
    return as_policy(fields) if fields else None


_COUNT = re.compile(r"[0-9]{1,18}")
_POLICY_WORDS = {"true": True, "false": False, "none": None}
_POLICY_LISTS = frozenset({"exclude_ops", "exclude_names", "include_only"})


def _refuse_with_dry_run(**given: Any) -> None:
    for name, value in given.items():
        if value:
            raise OptionError(f"--dry-run compares policies and nothing else: leave out --{name}")


def _dry_run(
    console: Console,
    model: Path,
    backend: str,
    shape: list[str] | None,
    policy: list[str] | None,
    as_json: bool,
) -> None:
    import tvm_byoc_kit as byoc

    with _working(console, model, "partitioning"):
        rules = _parse_policy(policy)
        result = byoc.dry_run(_load_model(model, shape), backend, policy=rules)

    def show() -> None:
        from tvm_byoc_kit import trial

        console.print(trial.render(result))
        console.print(result.reason, markup=False)

    _show(console, as_json, result.to_dict(), show)


def _read_baseline(path: Path | None) -> Coverage | None:
    from tvm_byoc_kit.coverage import Coverage

    if path is None:
        return None
    try:
        return Coverage.from_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, InputError) as error:
        raise InputError(f"--baseline {path}: {error}") from error


def _write_page(path: Path | None, parts: Partition) -> str | None:
    """Write the page; gives the line that says so."""
    if path is None:
        return None
    schedule, missing = _planned(parts)
    page = parts.coverage.to_html(schedule=schedule)
    with _writing("--html", path), replacing(path) as unfinished:
        unfinished.write_text(page, encoding="utf-8")
    return f"wrote {path}{missing}"


def _planned(parts: Partition) -> tuple[tuple[Any, ...], str]:
    """The example NPU's schedule, and what is to be said when there is none."""
    if parts.backend.name != "example_npu" or not parts.coverage.regions:
        return (), ""
    status = parts.backend.check("codegen")
    if not status:
        return (), f", without the schedule: {status.detail}; {status.remedy}"
    from tvm_byoc_kit.backends.example_npu_schedule import planned_schedules

    planned = planned_schedules(parts.mod)
    if not planned:
        return (), ", without the schedule: the shapes are open, --shape gives them"
    return planned, ""


def _read_inputs(exe: Executable, path: Path | None, seed: int) -> dict[str, np.ndarray]:
    from tvm_byoc_kit.verification import random_inputs

    return random_inputs(exe.inputs, seed) if path is None else _read_npz(path)


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:  # NumPy and zipfile raise many types on other files
        raise InputError(
            f"--inputs {path} is no .npz archive of arrays ({error}); write it with "
            "numpy.savez(path, name=array)"
        ) from error


def _write_npz(path: Path, arrays: dict[str, np.ndarray]) -> None:
    import numpy as np

    # Not np.savez: it has keywords of its own, which an output may be called.
    with (
        _writing("--output", path),
        replacing(path) as unfinished,
        zipfile.ZipFile(unfinished, "w") as archive,
    ):
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


@contextmanager
def _writing(option: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OptionError(f"{option} {path}: cannot be written ({error})") from error


def _describe(array: np.ndarray) -> dict[str, Any]:
    flat = array.ravel()
    head = ", ".join(f"{value:.6g}" for value in flat[:8].tolist())
    more = ", ..." if flat.size > 8 else ""  # noqa: PLR2004 - as many as fit a line
    return {
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "summary": f"{array.dtype}{list(array.shape)} [{head}{more}]",
    }


if __name__ == "__main__":
    app()
