"""The payload: what is checked before the vendor's library sees anything."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from tvm_byoc_kit.backends.tensorrt.payload import Header, Port, check_plan, pack, unpack
from tvm_byoc_kit.errors import ArtifactError

PLAN = bytes(range(256)) * 3
HEADER = Header(
    region="main_tensorrt",
    vendor="tensorrt_rtx",
    release="1.7.1.116",
    capabilities=(86, 89),
    inputs=(Port("input_0", 0, "float32", ("n", 3)),),
    outputs=(Port("output_0", 1, "float32", ("n * 2", 3)),),
    symbols={"n": (0, 0)},
    profiles=({"n": (1, 8, 32)},),
    arguments=2,
    options={"precision": "fp16", "profiles": [{"n": [1, 8, 32]}]},
)


def test_it_comes_back_as_it_was() -> None:
    header, plan, graph = unpack(pack(HEADER, PLAN, b"graph"))
    assert (bytes(plan), bytes(graph)) == (PLAN, b"graph")
    filled = replace(HEADER, plan_bytes=len(PLAN), graph_bytes=5, sha256=header.sha256)
    assert header == filled


def test_the_plan_is_aligned_and_not_copied() -> None:
    payload = pack(HEADER, PLAN)
    start = payload.index(PLAN)
    assert start % 64 == 0
    assert unpack(payload)[1].obj is payload


def test_a_changed_digit_of_the_header_is_noticed() -> None:
    payload = pack(HEADER, PLAN)
    assert HEADER.capabilities
    (first, *_) = HEADER.capabilities
    changed = payload.replace(b'"capabilities": [%d' % first, b'"capabilities": [%d' % (first + 1))
    assert changed != payload
    with pytest.raises(ArtifactError, match="checksum"):
        unpack(changed)


def test_every_changed_byte_of_the_plan_is_noticed() -> None:
    payload = pack(HEADER, PLAN, b"graph")
    for place in range(len(payload) - len(PLAN) - 5, len(payload)):
        changed = bytearray(payload)
        changed[place] ^= 1
        with pytest.raises(ArtifactError, match="checksum does not match; build the model again"):
            unpack(bytes(changed))


def test_every_cut_and_every_addition_is_noticed() -> None:
    payload = pack(HEADER, PLAN)
    for wrong in (*(payload[:size] for size in range(0, len(payload), 5)), payload + b"\0"):
        with pytest.raises(ArtifactError, match="is damaged"):
            unpack(wrong)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"format": 1', b'"format": 2', "format 2, this kit reads 1"),
        (b'"arguments"', b'"argumentz"', "header is unreadable"),
        (b'"region": "', b'"region": [', "header is unreadable"),
        (b"TENSORRT", b"TENSORTT", "does not start like one"),
    ],
)
def test_a_header_that_cannot_be_read_is_one_error(old: bytes, new: bytes, message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        unpack(pack(HEADER, PLAN).replace(old, new, 1))


@pytest.mark.parametrize(
    ("fields", "vendor", "release", "capability"),
    [
        ({}, "tensorrt_rtx", "1.7.1.116", 86),
        ({}, "tensorrt_rtx", "1.7.1.116", 89),
        ({"and_later": True}, "tensorrt_rtx", "1.7.1.116", 120),
        ({"version_compatible": True}, "tensorrt_rtx", "1.8.0.2", 89),
    ],
)
def test_a_plan_for_this_machine_is_let_through(
    fields: dict[str, Any], vendor: str, release: str, capability: int
) -> None:
    check_plan(replace(HEADER, **fields), vendor, release, capability)


@pytest.mark.parametrize(
    ("fields", "vendor", "release", "capability", "message"),
    [
        ({}, "tensorrt_rtx", "1.7.1.116", 120, "for compute capability 8.6, 8.9; here is "),
        ({}, "tensorrt_rtx", "1.7.1.116", 80, "(--sm 80)"),
        ({"and_later": True}, "tensorrt_rtx", "1.7.1.116", 80, "8.6, 8.9 and later"),
        ({}, "tensorrt_rtx", "1.7.2.1", 89, "of tensorrt_rtx 1.7.1.116, which no other release"),
        ({}, "tensorrt", "1.7.1.116", 89, "here is tensorrt 1.7.1.116"),
        ({"version_compatible": True}, "tensorrt_rtx", "1.7.0.1", 89, "no other release"),
        ({"version_compatible": True}, "tensorrt_rtx", "2.0.0.1", 89, "no other release"),
    ],
)
def test_a_plan_for_another_machine_is_refused_with_what_to_do(
    fields: dict[str, Any], vendor: str, release: str, capability: int, message: str
) -> None:
    with pytest.raises(ArtifactError, match=re.escape(message)) as caught:
        check_plan(replace(HEADER, **fields), vendor, release, capability)
    assert "main_tensorrt" in str(caught.value)
    assert re.search("build", str(caught.value), re.IGNORECASE)
