"""Bisect: which region, and which op in it, a backend computes wrong."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.backend import Backend, get_backend
from tvm_byoc_kit.bisection_report import Bisection, RegionCheck
from tvm_byoc_kit.building import build
from tvm_byoc_kit.comparison import OutputCheck, Tolerance, compare_output
from tvm_byoc_kit.errors import ModelError, OptionError
from tvm_byoc_kit.host_twin import HostTwin
from tvm_byoc_kit.occurrences import Walk
from tvm_byoc_kit.one_build import one_build
from tvm_byoc_kit.op_names import tag_of, tag_ops
from tvm_byoc_kit.op_pairing import pair
from tvm_byoc_kit.partitioning import Partition, partition
from tvm_byoc_kit.region_run import SECONDS, UNSTEADY, Outcome, Step, rules_for, run_steps
from tvm_byoc_kit.region_search import RegionSearch
from tvm_byoc_kit.sample_inputs import generated, given
from tvm_byoc_kit.verification import Verification, outputs_of

if TYPE_CHECKING:
    from tvm_byoc_kit.buckets import Buckets, Profile
    from tvm_byoc_kit.host_twin import Crossing
    from tvm_byoc_kit.model import ImportedModel
    from tvm_byoc_kit.occurrences import RegionCall
    from tvm_byoc_kit.policy import PartitionPolicy
    from tvm_byoc_kit.runtime import Executable

__all__ = ["bisect"]

Execution = tuple["Crossing", Outcome]


def bisect(
    model: Any,
    backend: str | Backend,
    *,
    inputs: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    case: str = "random",
    options: Any = None,
    policy: PartitionPolicy | Mapping[str, Any] | None = None,
    tolerance: Tolerance | None = None,
    batch: int | Buckets | Profile | None = None,
    sizes: Mapping[str, int | Sequence[int] | Buckets | Profile] | None = None,
    seed: int = 0,
    isolate: bool | None = None,
    limit: float = SECONDS,
) -> Bisection:
    """Compare every region with TVM's own code for it, and look into the first that differs.

    The model is built twice from one partition: for the backend, and with the regions compiled by
    TVM for the host. The host's run gives what goes into each region; each region of the backend
    then gets just that, so that an error shows where it is made and nowhere else. In the first
    region that diverges every composite is built and run alone; where all of these agree, the
    fewest neighbours that diverge together are searched.

    The regions run in a child process, so that one that crashes or hangs is a finding too.

    Parameters
    ----------
    model : ImportedModel, tvm.IRModule, or anything that `load_model` takes alone
    backend : str or Backend
    inputs : mapping of name to array, or path of an ``.npz`` file, optional
        Those of `case` when left out.
    case : str
        Of those that `verify` makes, such as ``large``: with which it says that a build is wrong.
    options, policy
        As for `compile`.
    tolerance : Tolerance, optional
        By default the one of `comparison.TOLERANCES` for each output's dtype.
    batch : int, Buckets or Profile, optional
        For the build of one size of axis 0, or, of those that `compile` makes with this, the one
        that runs the inputs.
    sizes : mapping of str to int, Buckets or Profile, optional
        Of open dimensions. A number: where inputs are made; 2 where none is given.
    seed : int
        Of the inputs that are made.
    isolate : bool, optional
        Whether regions run in a child process, which is a fork of this one. None: unless the
        backend has run here before, whose threads would not be there. Never where it uses CUDA.
    limit : float
        Seconds after which a region in a child process hangs.

    Raises
    ------
    OptionError
        For a case, or a dimension, that there is not, or when sizes do not say which build.
    BackendUnavailable
        When the backend does not run on this machine.
    """
    chosen = get_backend(backend)
    chosen.require("device")
    rules = rules_for(chosen, tolerance, isolate, limit)
    own = None if inputs is None else next(given([inputs]))[1]
    imported, calls = one_build(model, batch, sizes, own)
    parts = partition(imported, chosen, policy=policy)
    arrays = _made(imported, case, calls, seed) if own is None else own
    walk = Walk(parts.mod)
    names = _names(parts, walk)
    exe = build(parts, options=options)
    expected, crossings = HostTwin(parts, walk.regions).run(arrays)
    *outcomes, whole = run_steps(
        exe,
        [_step(walk.regions[crossing.site], crossing) for crossing in crossings],
        partial(exe.run, arrays),
        rules,
        partial(_whole, exe, arrays, expected, tolerance),
    )
    executions: dict[int, list[Execution]] = {}  # by site, in the order of the first execution
    for outcome, crossing in zip(outcomes, crossings, strict=True):
        executions.setdefault(crossing.site, []).append((crossing, outcome))
    order = [*executions, *(site for site in range(len(walk.regions)) if site not in executions)]
    found = Bisection(
        backend=chosen.name,
        model=parts.model.origin,
        regions=tuple(
            _region(walk.regions[site], names, executions.get(site, [])) for site in order
        ),
        outputs=whole.outputs,
        problem=whole.problem,
        host=_host_check(parts, arrays, expected, tolerance),
        builds=2,
    )
    if not found.diverging:
        return found
    at = found.regions.index(found.diverging[0])
    site = order[at]
    crossing = next(crossing for crossing, outcome in executions[site] if not outcome)
    search = RegionSearch(parts, walk, walk.regions[site], names, crossing, options, rules)
    regions = list(found.regions)
    regions[at] = search.look_into(regions[at])
    return replace(
        found,
        regions=tuple(regions),
        builds=found.builds + search.builds,
        reproducer=search.reproducer(),
    )


def _made(model: ImportedModel, case: str, sizes: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Inputs of one case, with these sizes of what stays open."""
    made = list(generated(model.inputs, case, samples=1, sizes=sizes, seed=seed))
    if len(made) != 1:
        raise OptionError(
            f"case={case!r}, sizes={sizes!r}: bisect takes one case, and one size of each dimension"
        )
    return made[0][1]


def _names(parts: Partition, walk: Walk) -> list[str]:
    """What each op of `walk` is called in the model that was partitioned."""
    original = Walk(tag_ops(parts.model.mod))
    partner = pair(walk, original)
    names = []
    for position, op in enumerate(walk.ops):
        tag = tag_of(original.ops[partner[position]].call if position in partner else op.call)
        names.append(tag.name if tag is not None else op.name)
    return names


def _step(region: RegionCall, crossing: Crossing) -> Step:
    return Step(region.function, region.name, crossing.inputs, crossing.outputs)


def _region(region: RegionCall, names: list[str], executions: list[Execution]) -> RegionCheck:
    outcomes = [outcome for _, outcome in executions] or [Outcome(())]
    outcome = next((outcome for outcome in outcomes if not outcome), outcomes[0])
    return RegionCheck(
        name=region.name,
        ops=tuple(names[region.first : region.last]),
        composites=region.composites,
        outputs=outcome.outputs,
        problem=outcome.problem,
    )


def _whole(
    exe: Executable,
    arrays: Mapping[str, Any],
    expected: Mapping[str, Any],
    tolerance: Tolerance | None,
) -> Outcome:
    """How the model as a whole does."""
    try:
        first, again = exe.run(arrays), exe.run(arrays)
    except ModelError as error:
        return Outcome((), f"it fails: {error}")

    def checks(got: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[OutputCheck]:
        return (compare_output(out, got[out], wanted[out], tolerance) for out in got)

    steady = all(check.ok for check in checks(again, first))
    return Outcome(tuple(checks(first, expected)), "" if steady else UNSTEADY)


def _host_check(
    parts: Partition,
    arrays: Mapping[str, Any],
    expected: Mapping[str, Any],
    tolerance: Tolerance | None,
) -> Verification | None:
    """The host's results against those of the framework that the model came from."""
    framework = parts.model.reference
    if framework is None:
        return None
    truth = outputs_of(framework, arrays, expected)
    checks = tuple(compare_output(out, expected[out], truth[out], tolerance) for out in expected)
    return Verification(framework.name, checks)
