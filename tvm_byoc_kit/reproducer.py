"""A reproducer: one part of a model as a script that builds and runs it on a backend alone."""

from __future__ import annotations

import keyword
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.backend import REGISTERED, Backend, get_backend
from tvm_byoc_kit.building import build
from tvm_byoc_kit.comparison import OutputCheck, Tolerance
from tvm_byoc_kit.errors import ModelError, OptionError
from tvm_byoc_kit.files import replacing_directory
from tvm_byoc_kit.model import ImportedModel
from tvm_byoc_kit.partitioning import Partition
from tvm_byoc_kit.region_run import SECONDS, Rules, Step, rules_for, run_parts
from tvm_byoc_kit.region_windows import Window, module_of
from tvm_byoc_kit.sample_inputs import read_npz

if TYPE_CHECKING:
    from tvm import IRModule

__all__ = ["Reproducer", "reproduce"]

SCRIPT, ARRAYS = "reproduce.py", "inputs.npz"


@dataclass(frozen=True)
class Reproducer:
    """What a reproducer is written from.

    Parameters
    ----------
    title : str
        One line: what it is of.
    backend : Backend
    options : mapping or dataclass, optional
        Of the backend.
    rules : Rules
    function : relax.Function
        The region.
    inputs : tuple
        Arrays, and ``tvm_ffi.Shape``.
    expected : tuple of numpy.ndarray
    """

    title: str
    backend: Backend
    options: Any
    rules: Rules
    function: Any
    inputs: tuple[Any, ...]
    expected: tuple[Any, ...]

    def write(self, directory: str | os.PathLike[str]) -> Path:
        """Write ``reproduce.py`` and ``inputs.npz``; gives the path of the script.

        Raises
        ------
        OptionError
            When the directory cannot be written, or holds something else.
        """
        import numpy as np

        target = Path(directory)
        others = [path.name for path in target.iterdir()] if target.is_dir() else []
        if target.is_file() or not {SCRIPT, ARRAYS}.issuperset(others):
            raise OptionError(
                f"{target} exists and is no earlier reproducer; name a directory that is new"
            )
        function, constants = _with_constants_as_parameters(self.function)
        arrays = {f"input_{at}": np.asarray(value) for at, value in enumerate(self.inputs)}
        arrays |= {f"expected_{at}": value for at, value in enumerate(self.expected)}
        try:
            with replacing_directory(target) as unfinished:
                np.savez(unfinished / ARRAYS, **arrays, **constants)  # type: ignore[arg-type]
                (unfinished / SCRIPT).write_text(self._script(function), encoding="utf-8")
        except OSError as error:
            raise OptionError(f"{target} cannot be written ({error})") from error
        return target / SCRIPT

    def _script(self, function: Any) -> str:
        from tvm import IRModule

        module = IRModule({"region": function.with_attr("global_symbol", "region")})
        text = module.script(show_meta=False)
        if "metadata[" in text:
            raise ModelError(f"{self.title}: TVMScript cannot hold all of it")
        imports = re.findall(r"^# (from .*)\n", text, flags=re.MULTILINE)
        return _TEMPLATE.format(
            title=self.title.replace('"', "'").replace("\\", "/"),
            imports="\n".join(imports),
            registration=_registration(self.backend),
            module=re.sub(r"^ *# from .*\n| +$", "", text, flags=re.MULTILINE).strip(),
            backend=self.backend.name,
            options=self.backend.make_options(self.options) or None,
            tolerance=self.rules.tolerance,
            limit=self.rules.limit or SECONDS,
        )


_TEMPLATE = '''"""{title}

Builds and runs it alone, prints how it compares with what TVM's own code gave for the same inputs,
and exits with 1 when it diverges, crashes or hangs. The arrays are in inputs.npz.
"""

from pathlib import Path

{imports}

{registration}from tvm_byoc_kit.comparison import Tolerance  # noqa: F401
from tvm_byoc_kit.reproducer import reproduce

{module}

raise SystemExit(
    reproduce(
        Module,
        Path(__file__).with_name("inputs.npz"),
        backend="{backend}",
        options={options},
        tolerance={tolerance},
        limit={limit:g},  # seconds in a child process; None: in this one, for a debugger
    )
)
'''


def _registration(backend: Backend) -> str:
    """The import that makes a backend of another process known."""
    if backend.name not in REGISTERED:
        return ""
    module = getattr(backend.codegen or backend.runtime, "__module__", "__main__")
    if module == "__main__":
        return f"# Import here what registers the backend '{backend.name}'.\n"
    return f"import {module}  # noqa: F401 - registers the backend\n"


def _with_constants_as_parameters(function: Any) -> tuple[Any, dict[str, Any]]:
    """`function` with a parameter for each constant, and their arrays: TVMScript has none.

    What a model calls otherwise than Python can is called ``value``.
    """
    from tvm import relax
    from tvm.relax.expr_functor import PyExprMutator, mutator

    variables: dict[int, Any] = {}
    arrays: dict[str, Any] = {}

    @mutator
    class Lifter(PyExprMutator):  # type: ignore[misc]
        def visit_var_def_(self, var: Any) -> Any:
            usable = var.name.isidentifier() and not keyword.iskeyword(var.name)
            renamed = var if usable else type(var)("value", var.ty)
            self.set_var_remap(var, renamed)
            return renamed

        def visit_generic_const_(self, op: Any) -> Any:
            if op.__chandle__() not in variables:
                name = f"constant_{len(variables)}"
                variables[op.__chandle__()] = relax.Var(name, op.ty)
                arrays[name] = op.value.numpy()
            return variables[op.__chandle__()]

    lifted = Lifter().visit_expr(function)
    params = [*lifted.params, *variables.values()]
    return (
        relax.Function(params, lifted.body, lifted.ret_ty, lifted.is_pure, lifted.attrs),
        arrays,
    )


def reproduce(
    module: IRModule,
    arrays: str | os.PathLike[str],
    *,
    backend: str,
    options: Mapping[str, Any] | None = None,
    tolerance: Tolerance | None = None,
    limit: float | None = SECONDS,
) -> int:
    """Build the function ``region`` of `module` for `backend`, run it, and print how it compares.

    Parameters
    ----------
    module : tvm.IRModule
    arrays : str or os.PathLike
        The archive of its inputs, constants, and what TVM's own code gave.
    backend : str
    options, tolerance
        As for `bisect`.
    limit : float, optional
        As for `bisect`; None: it runs in this process.

    Returns
    -------
    int
        0 when it agrees, 1 when it diverges.
    """
    chosen = get_backend(backend)
    chosen.require("device")
    saved = read_npz(arrays)
    function = _bound(module["region"], saved)
    mod = module_of([Window(function, (), (), ())])
    model = ImportedModel(mod, (), (), "relax", "main_0", "the reproducer")
    exe = build(Partition(mod, chosen, model), options=options)
    inputs = [_typed(saved[f"input_{at}"], var.ty) for at, var in enumerate(function.params)]
    types = getattr(function.ret_ty, "fields", [function.ret_ty])
    expected = [_typed(saved[f"expected_{at}"], ty) for at, ty in enumerate(types)]
    rules = rules_for(chosen, tolerance, limit is not None, limit or SECONDS)
    [outcome] = run_parts(exe, [Step("region_0", "the region", inputs, expected)], rules)
    described = [outcome.problem] if outcome.problem else []
    described += map(_described, outcome.outputs)
    print("\n".join(described))  # noqa: T201 - what the script is for
    return 0 if outcome else 1


def _described(check: OutputCheck) -> str:
    line = f"{check.name} ({check.dtype}): {check}"
    return line if check.ok else f"{line}\n  {check.details()}"


def _bound(function: Any, arrays: Mapping[str, Any]) -> Any:
    """`function` with the constants of an archive in the place of its last parameters."""
    from tvm import IRModule, relax

    names = [name for name in arrays if name.startswith("constant_")]
    constants = {
        var: relax.const(_typed(arrays[name], var.ty), str(var.ty.dtype))
        for var, name in zip(reversed(function.params), reversed(names), strict=False)
    }
    named = IRModule({"region": function})
    bound = relax.transform.BindParams("region", constants)(named)["region"]
    return bound.without_attr("global_symbol")


def _typed(array: Any, ty: Any) -> Any:
    """An array of an archive as `ty` says: NumPy's archives know neither shapes nor bfloat16."""
    import numpy as np
    from tvm import relax
    from tvm_ffi import Shape

    if isinstance(ty, relax.ShapeType):
        return Shape(tuple(int(size) for size in array))
    if array.dtype.kind != "V":
        return array
    import ml_dtypes  # noqa: F401 - gives NumPy its bfloat16

    return array.view(np.dtype(str(ty.dtype)))
