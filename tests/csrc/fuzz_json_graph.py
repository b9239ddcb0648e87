"""Mutates JSON graphs and runs what is accepted; `test_json_graph.py` runs this in a child process.

Arguments: a JSON file with a list of ``{"graph": ..., "constants": [...]}``, and the number of
examples. A mutated graph either works or is refused by a Python exception; a crash ends this
process, and a wrong kind of exception fails it.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tvm_byoc_kit import native

with native.without_torch():
    import tvm

Place = tuple[Any, ...]
LIMIT = 1 << 16  # elements of a tensor that is made for a run
COUNTS = {"without a message": 0, "refused": 0, "ran": 0, "refused to run": 0, "too large": 0}

SCALARS = [None, True, False, 0, 1, -1, -2, 2, 3, 7, 255, 2**31, 2**62, -(2**63), 0.5, -0.0]
TEXTS = ["", "x", "NHWC", "OIHW", "int8", "float16", "bool", "float32x4", "relax.add", "kernel"]
VALUES = st.one_of(
    st.sampled_from([*SCALARS, 1e300, *TEXTS, "relax.nn.conv2d", "input", "const", "\x00", "é"]),
    st.lists(st.integers(-3, 9), max_size=5),
    st.lists(st.lists(st.integers(-1, 4), max_size=3), max_size=3),
    st.sampled_from([{}, {"tuple": []}, {"shape": [-1]}, {"value": 1.5}, {"none": True}]),
)


def places(value: Any, path: Place = ()) -> Iterator[Place]:
    """Every place in nested lists and objects."""
    yield path
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in list(items):
            yield from places(item, (*path, key))


def mutate(data: st.DataObject, graph: Any) -> None:
    """Change one place of `graph`: replace, delete, repeat, or copy from another place."""
    all_places = list(places(graph))[1:]
    if not all_places:
        return
    path = data.draw(st.sampled_from(all_places))
    parent = graph
    for key in path[:-1]:
        parent = parent[key]
    key = path[-1]
    kind = data.draw(st.sampled_from(["replace", "replace", "delete", "repeat", "copy", "swap"]))
    if kind == "replace":
        parent[key] = copy.deepcopy(data.draw(VALUES))  # a later change must not reach VALUES
    elif kind == "delete":
        del parent[key]
    elif kind == "repeat" and isinstance(parent, list):
        parent.insert(key, copy.deepcopy(parent[key]))
    elif kind == "swap" and isinstance(parent, list):
        parent.reverse()
    else:
        other = graph
        for step in data.draw(st.sampled_from(all_places)):
            other = other[step]
        parent[key] = copy.deepcopy(other)


def zeros(attrs: dict[str, Any], output: int = 0) -> Any:
    shape = [2 if dim == -1 else dim for dim in attrs["shape"][output]]
    if attrs.get("is_shape"):
        return tvm.runtime.ShapeTuple([2] * shape[0])
    if any(dim > LIMIT for dim in shape) or np.prod(shape, dtype=object) > LIMIT:
        raise MemoryError
    return tvm.runtime.tensor(np.zeros(shape, attrs["dtype"][output]))


def run(module: Any, graph: Any) -> None:
    nodes = graph["nodes"]
    consts = [zeros(node["attrs"]) for node in nodes if node["op"] == "const"]
    inputs = [zeros(node["attrs"]) for node in nodes if node["op"] == "input"]
    outputs = [zeros(nodes[head[0]]["attrs"], head[1]) for head in graph["heads"]]
    module["__init_region"](consts)
    module["region"](*inputs, *outputs)
    module["get_schedule"]()
    module["get_graph"]()


def attempt(text: str, constants: list[str], graph: Any = None) -> None:
    create = tvm.get_global_func("runtime.ExampleNPUJSONRuntimeCreate")
    try:
        module = create("region", text, constants)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        COUNTS["refused" if str(error).strip() else "without a message"] += 1
        return
    if graph is None:
        return
    try:
        run(module, graph)
        COUNTS["ran"] += 1
    except (ValueError, TypeError, RuntimeError, OverflowError, KeyError, AttributeError):
        COUNTS["refused to run"] += 1
    except MemoryError:
        COUNTS["too large"] += 1


def main(path: str, examples: int) -> None:
    assert native.load("example_npu")
    cases = json.loads(Path(path).read_text(encoding="utf-8"))
    for case in cases:
        attempt(json.dumps(case["graph"]), case["constants"], case["graph"])
    assert COUNTS["ran"] == len(cases), f"a graph does not run unchanged: {COUNTS}"
    quick = settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )

    @quick
    @given(st.data())
    def structure(data: st.DataObject) -> None:
        case = data.draw(st.sampled_from(cases))
        graph = copy.deepcopy(case["graph"])
        for _ in range(data.draw(st.integers(1, 3))):
            mutate(data, graph)
        attempt(json.dumps(graph), case["constants"], graph)

    @quick
    @given(st.data())
    def text(data: st.DataObject) -> None:
        case = data.draw(st.sampled_from(cases))
        changed = list(json.dumps(case["graph"]))
        for _ in range(data.draw(st.integers(1, 4))):
            position = data.draw(st.integers(0, len(changed) - 1))
            changed[position] = data.draw(st.sampled_from(['"', "[", "}", ",", "-", "9", "e", ""]))
        attempt("".join(changed), case["constants"])

    structure()
    text()
    print(json.dumps(COUNTS))  # noqa: T201 - the answer to the parent


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
