#!/usr/bin/env python3
"""Everything that needs a GPU, in one go: numbers against the CPU's, latencies, `pytest -m gpu`.

`prepare` fills a folder where there is no GPU: wheels, built artifacts, inputs and the outputs that
PyTorch or ONNX Runtime computes for them. `run`, on the machine with the GPU, needs that folder,
Python of the same version, and no network. See docs/gpu_check.md.

Examples: python scripts/gpu_check.py prepare /tmp/check --target a100,h100
          python3 /tmp/check/kit/scripts/gpu_check.py run /tmp/check --json result.json
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

# Beside this file; imports nothing that is not there before the environment is made.
from gpu_check_plan import FOR_GPUS, MODELS, PLAN, SIDES, Plan, chosen, wants_tests

# When the run began, for the process that goes on in the environment that it made.
_BEGAN = "BYOC_GPU_CHECK_BEGAN"


def gpu_problem() -> str:
    """Why there is no GPU to use; empty when there is one."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver (libcuda.so.1 cannot be loaded)"
    if importlib.util.find_spec("tvm_byoc_kit") is None:
        return ""  # asked again from the environment
    from tvm_byoc_kit import cuda_driver

    answer = cuda_driver.ask()
    return answer if isinstance(answer, str) else ""


def enter_environment(folder: Path) -> None:
    """Go on as a process in an environment made of the folder's wheels, without an index."""
    wheels = sorted(map(str, folder.glob("wheels/*.whl")))
    if not wheels or _BEGAN in os.environ:
        return
    os.environ[_BEGAN] = str(time.time())
    python = folder / "venv" / "bin" / "python"
    if not python.exists():
        # The machine's own torch is of use where the folder has none.
        own = any(Path(wheel).name.startswith("torch-") for wheel in wheels)
        system = [] if own else ["--system-site-packages"]
        subprocess.run([sys.executable, "-m", "venv", *system, folder / "venv"], check=True)
    install = [python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", *wheels]
    subprocess.run(install, check=True)
    os.execv(python, [str(python), __file__, *sys.argv[1:]])  # noqa: S606


def problems(folder: Path, plan: Plan, options: argparse.Namespace) -> list[str]:
    """What stands in the way of the run."""
    here = ".".join(map(str, sys.version_info[:2]))
    found = []
    if list(folder.glob("wheels/*.whl")) and plan.python != here:
        found.append(f"the wheels are for Python {plan.python}, this is {here}: start that one")
    needs_gpu = wants_tests(options.items) or any(
        SIDES[item.side].gpu for item in chosen(plan.items, options.items)
    )
    if needs_gpu and (reason := gpu_problem()):
        found.append(f"{reason}; run this on a machine with an NVIDIA GPU")
    return found


def show_run(plan: Plan, options: argparse.Namespace, found: list[str]) -> None:
    """What `run` would do."""
    for item in chosen(plan.items, options.items):
        print(f"{item.name:26}{f'was not built: {item.error}' if item.error else 'check, measure'}")
    if wants_tests(options.items):
        print(f"{'tests':26}pytest -m gpu")
    for line in [*plan.notes, *found]:
        print(f"missing: {line}")


def run(folder: Path, options: argparse.Namespace) -> int:
    """On the machine with the GPU."""
    if not (folder / PLAN).is_file():
        return _fail(f"{folder} has no {PLAN}: fill it with `gpu_check.py prepare {folder}`")
    plan = Plan.read(folder)
    found = problems(folder, plan, options)
    if options.dry_run:
        show_run(plan, options, found)
        return 0
    if found:
        return _fail("; ".join(found))
    try:
        enter_environment(folder)
    except subprocess.CalledProcessError as error:
        return _fail(f"no environment could be made of {folder / 'wheels'}: {error}")
    import gpu_check_run

    began = float(os.environ.get(_BEGAN, time.time()))
    return gpu_check_run.run(folder, options, began)


def prepare(folder: Path, options: argparse.Namespace) -> int:
    """Where there is no GPU."""
    import gpu_check_prepare

    return gpu_check_prepare.prepare(folder, options)


def _fail(message: str) -> int:
    print(f"gpu_check: {message}", file=sys.stderr)
    return 1


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    make = commands.add_parser("prepare", help="fill the folder, where there is no GPU")
    make.set_defaults(work=prepare)
    make.add_argument("--models", nargs="+", choices=MODELS, default=FOR_GPUS)
    make.add_argument("--target", default="a100,h100", help="the GPUs to build for")
    make.add_argument("--no-torch", action="store_true", help="leave out its wheel, gigabytes")
    make.add_argument("--no-wheels", action="store_true", help="artifacts alone")
    check = commands.add_parser("run", help="on the machine with the GPU")
    check.set_defaults(work=run)
    check.add_argument("--json", help="where to write the results too")
    check.add_argument("--budget", type=float, default=540.0, help="seconds for all of it")
    for command in (make, check):
        command.add_argument("folder", type=lambda text: Path(text).absolute())
        command.add_argument("--items", nargs="+", default=["*"], help="'resnet18/*', tests …")
        command.add_argument("--dry-run", action="store_true", help="say what would be done")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    options = parse()
    sys.exit(options.work(options.folder, options))
