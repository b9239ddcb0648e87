"""Looking into a region that a backend computes wrong, for the composite that it is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.backend import get_backend
from tvm_byoc_kit.bisection_report import Part, RegionCheck
from tvm_byoc_kit.building import build
from tvm_byoc_kit.errors import ByocError
from tvm_byoc_kit.host_twin import as_host_code
from tvm_byoc_kit.partitioning import Partition
from tvm_byoc_kit.region_run import Outcome, Rules, Step, run_function, run_parts
from tvm_byoc_kit.region_windows import RegionPieces, module_of
from tvm_byoc_kit.reproducer import Reproducer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm import IRModule

    from tvm_byoc_kit.backend import Backend
    from tvm_byoc_kit.host_twin import Crossing
    from tvm_byoc_kit.occurrences import RegionCall, Walk
    from tvm_byoc_kit.region_windows import Leaf, Window
    from tvm_byoc_kit.runtime import Executable

__all__ = ["RegionSearch"]


class RegionSearch:
    """The search in one region, with what one execution of it was given.

    Parameters
    ----------
    parts : Partition
    walk : Walk
        Over its module.
    region : RegionCall
        Of the walk.
    names : sequence of str
        What each op of the walk is called.
    crossing : Crossing
        An execution in which it diverges.
    options : optional
        Of the backend.
    rules : Rules
    """

    def __init__(  # noqa: PLR0917 - all that one region is
        self,
        parts: Partition,
        walk: Walk,
        region: RegionCall,
        names: Sequence[str],
        crossing: Crossing,
        options: Any,
        rules: Rules,
    ) -> None:
        self._parts = parts
        self._pieces = RegionPieces(region.callee)
        self._options = options
        self._rules = rules
        self._names = _names_of_calls(self._pieces, walk, region, names)
        self._values: dict[Leaf, Any] = dict(zip(self._pieces.params, crossing.inputs, strict=True))
        self._values |= dict(zip(self._pieces.outputs, crossing.outputs, strict=True))
        self._span = (0, len(self._pieces.calls))
        self.builds = 0

    def look_into(self, region: RegionCheck) -> RegionCheck:
        """`region` with its parts, or with a note why there are none."""
        try:
            self._compute_values()
            parts = tuple(map(self._part, self._each(), self._check(self._each())))
            wrong = [at for at, part in enumerate(parts) if not part]
            if wrong:
                self._span = (wrong[0], wrong[0] + 1)
                return replace(region, parts=parts)
            if self._agree(*self._span):
                note = "it agrees when it is built alone, and so does each of its ops"
                return replace(region, parts=parts, note=note)
            self._span = self._fewest()
            [outcome] = self._check([self._span])
            return replace(region, parts=parts, together=self._part(self._span, outcome))
        except ByocError as error:
            return replace(region, note=f"it cannot be taken apart: {error}")

    def reproducer(self) -> Reproducer:
        """Of what was found, or of the whole region."""
        window = self._pieces.window(*self._span)
        ops = self._part(self._span, Outcome(()))
        return Reproducer(
            title=f"{ops}, of {self._parts.model.origin or 'a module'}",
            backend=self._parts.backend,
            options=self._options,
            rules=self._rules,
            function=window.function,
            inputs=tuple(self._inputs(window)),
            expected=tuple(self._values[leaf] for leaf in window.writes),
        )

    def _each(self) -> list[tuple[int, int]]:
        return [(at, at + 1) for at in range(len(self._pieces.calls))]

    def _compute_values(self) -> None:
        """What the host computes inside the region."""
        import tvm

        whole = self._pieces.whole().with_attr("global_symbol", "main")
        exe = self._build(as_host_code(tvm.IRModule({"main": whole})), "main", get_backend("llvm"))
        results = run_function(exe, "main", [self._values[leaf] for leaf in self._pieces.params])
        self._values |= dict(zip(self._pieces.results, results, strict=True))

    def _check(self, spans: Sequence[tuple[int, int]]) -> list[Outcome]:
        """How the calls of each span do as a region of their own."""
        windows = [self._pieces.window(*span) for span in spans]
        exe = self._build(module_of(windows), "main_0", self._parts.backend, self._options)
        steps = []
        for number, (span, window) in enumerate(zip(spans, windows, strict=True)):
            expected = [self._values[leaf] for leaf in window.writes]
            name = str(self._part(span, Outcome(())))
            steps.append(Step(f"region_{number}", name, self._inputs(window), expected))
        return run_parts(exe, steps, self._rules)

    def _inputs(self, window: Window) -> list[Any]:
        inputs = [self._values[leaf] for leaf in window.reads]
        if window.sizes:
            from tvm_ffi import Shape

            sizes = self._pieces.sizes(self._values)
            inputs.append(Shape(tuple(sizes[symbol] for symbol in window.sizes)))
        return inputs

    def _agree(self, start: int, stop: int) -> bool:
        [outcome] = self._check([(start, stop)])
        return bool(outcome)

    def _fewest(self) -> tuple[int, int]:
        """Neighbours that diverge together, and neither without the last nor without the first."""
        agrees, stop = 1, len(self._pieces.calls)
        while stop - agrees > 1:
            middle = (agrees + stop) // 2
            if self._agree(0, middle):
                agrees = middle
            else:
                stop = middle
        start, agrees = 0, stop - 1
        while agrees - start > 1:
            middle = (agrees + start) // 2
            if self._agree(middle, stop):
                agrees = middle
            else:
                start = middle
        return start, stop

    def _part(self, span: tuple[int, int], outcome: Outcome) -> Part:
        calls = range(*span)
        ops = tuple(name for at in calls for name in self._names[at])
        composites = tuple(self._pieces.composite(at) for at in calls)
        return Part(ops, composites, outcome.outputs, outcome.problem)

    def _build(
        self, mod: IRModule, entry: str, backend: Backend, options: Any = None
    ) -> Executable:
        self.builds += 1
        model = replace(self._parts.model, mod=mod, entry=entry)
        return build(Partition(mod, backend, model), options=options)


def _names_of_calls(
    pieces: RegionPieces, walk: Walk, region: RegionCall, names: Sequence[str]
) -> list[list[str]]:
    """The names of the ops in each call of a region."""
    from tvm import relax

    walked = {op.call.__chandle__() for op in walk.ops[region.first : region.last]}
    position, found = region.first, []
    for at in range(len(pieces.calls)):
        inside: set[int] = set()
        relax.analysis.post_order_visit(
            pieces.callee(at), lambda expr, inside=inside: inside.add(expr.__chandle__())
        )
        count = len(inside & walked)
        found.append(list(names[position : position + count]))
        position += count
    return found
