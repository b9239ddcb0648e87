"""``tvm-byoc``: the same functions as ``import tvm_byoc_kit``, from the command line.

One file a command; each is imported here.
"""

from __future__ import annotations

from tvm_byoc_kit.cli import (  # noqa: F401 - each adds its command to the program
    bench_command,
    bisect_command,
    cache_command,
    compile_command,
    doctor_command,
    inspect_command,
    new_command,
    partition_command,
    plugin_commands,
    profile_command,
    quickstart_command,
    run_command,
    verify_command,
)
from tvm_byoc_kit.cli.program import app, cli

__all__ = ["app", "cli"]
