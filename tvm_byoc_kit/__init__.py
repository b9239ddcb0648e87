"""tvm_byoc_kit: bring a backend to the stock Apache TVM wheel, without rebuilding TVM.

>>> import tvm_byoc_kit as byoc
>>> parts = byoc.partition(byoc.load_model("model.onnx"), "example_npu")
>>> exe = byoc.build(parts)
>>> assert byoc.verify(exe)
>>> exe.export("model.so")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvm_byoc_kit.artifact import Manifest, read_manifest
    from tvm_byoc_kit.availability import Status, probe
    from tvm_byoc_kit.backend import Backend, get_backend, list_backends
    from tvm_byoc_kit.backends.example_npu import ExampleNPUOptions
    from tvm_byoc_kit.benchmarking import BenchReport, BenchSide, Spread, bench
    from tvm_byoc_kit.bisection import bisect
    from tvm_byoc_kit.bisection_report import Bisection
    from tvm_byoc_kit.buckets import Buckets, Profile
    from tvm_byoc_kit.building import build, compile  # noqa: A004
    from tvm_byoc_kit.calibration import CalibratedModel, CalibrationReport, calibrate
    from tvm_byoc_kit.comparison import Tolerance
    from tvm_byoc_kit.coverage import Coverage, CoveredOp, Reason, Region
    from tvm_byoc_kit.coverage_diff import CoverageDiff, diff
    from tvm_byoc_kit.dispatch import Plan
    from tvm_byoc_kit.errors import (
        ArtifactError,
        BackendUnavailable,
        ByocError,
        InputError,
        ModelError,
        OptionError,
        PluginError,
    )
    from tvm_byoc_kit.fat_binary import DeviceCode, device_code
    from tvm_byoc_kit.graph import Graph, read_graph
    from tvm_byoc_kit.inspection import Inspection, inspect_artifact
    from tvm_byoc_kit.mixed_precision import half_precision
    from tvm_byoc_kit.model import ImportedModel, load_model
    from tvm_byoc_kit.partitioning import Partition, partition
    from tvm_byoc_kit.pattern_table import Pattern
    from tvm_byoc_kit.payload import Payload
    from tvm_byoc_kit.policy import PartitionPolicy
    from tvm_byoc_kit.preparation import prepare
    from tvm_byoc_kit.prepare_report import PassReport, PrepareReport
    from tvm_byoc_kit.registration import register_backend
    from tvm_byoc_kit.run_profile import ProfiledPart, RunProfile
    from tvm_byoc_kit.runtime import Executable, load
    from tvm_byoc_kit.scaffold import new_backend
    from tvm_byoc_kit.signature import TensorSpec
    from tvm_byoc_kit.trial import DryRun, dry_run
    from tvm_byoc_kit.variants import Cost
    from tvm_byoc_kit.verification import Verification, verify

# Where each public name lives; a module is imported when one of its names is first used (PEP 562).
# No module is called like a public name: importing it would put the module in the name's place.
_HOMES = {
    "artifact": ("Manifest", "read_manifest"),
    "availability": ("Status", "probe"),
    "backend": ("Backend", "get_backend", "list_backends"),
    "backends.example_npu": ("ExampleNPUOptions",),
    "benchmarking": ("BenchReport", "BenchSide", "Spread", "bench"),
    "bisection": ("bisect",),
    "bisection_report": ("Bisection",),
    "buckets": ("Buckets", "Profile"),
    "building": ("build", "compile"),
    "calibration": ("CalibratedModel", "CalibrationReport", "calibrate"),
    "comparison": ("Tolerance",),
    "coverage": ("Coverage", "CoveredOp", "Reason", "Region"),
    "coverage_diff": ("CoverageDiff", "diff"),
    "dispatch": ("Plan",),
    "errors": (
        "ArtifactError",
        "BackendUnavailable",
        "ByocError",
        "InputError",
        "ModelError",
        "OptionError",
        "PluginError",
    ),
    "fat_binary": ("DeviceCode", "device_code"),
    "graph": ("Graph", "read_graph"),
    "inspection": ("Inspection", "inspect_artifact"),
    "mixed_precision": ("half_precision",),
    "model": ("ImportedModel", "load_model"),
    "partitioning": ("Partition", "partition"),
    "policy": ("PartitionPolicy",),
    "pattern_table": ("Pattern",),
    "payload": ("Payload",),
    "preparation": ("prepare",),
    "prepare_report": ("PassReport", "PrepareReport"),
    "registration": ("register_backend",),
    "run_profile": ("ProfiledPart", "RunProfile"),
    "runtime": ("Executable", "load"),
    "scaffold": ("new_backend",),
    "signature": ("TensorSpec",),
    "trial": ("DryRun", "dry_run"),
    "variants": ("Cost",),
    "verification": ("Verification", "verify"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "ArtifactError",
    "Backend",
    "BackendUnavailable",
    "BenchReport",
    "BenchSide",
    "Bisection",
    "Buckets",
    "ByocError",
    "CalibratedModel",
    "CalibrationReport",
    "Cost",
    "Coverage",
    "CoverageDiff",
    "CoveredOp",
    "DeviceCode",
    "DryRun",
    "ExampleNPUOptions",
    "Executable",
    "Graph",
    "ImportedModel",
    "InputError",
    "Inspection",
    "Manifest",
    "ModelError",
    "OptionError",
    "Partition",
    "PartitionPolicy",
    "PassReport",
    "Pattern",
    "Payload",
    "Plan",
    "PluginError",
    "PrepareReport",
    "Profile",
    "ProfiledPart",
    "Reason",
    "Region",
    "RunProfile",
    "Spread",
    "Status",
    "TensorSpec",
    "Tolerance",
    "Verification",
    "bench",
    "bisect",
    "build",
    "calibrate",
    "compile",
    "device_code",
    "diff",
    "dry_run",
    "get_backend",
    "half_precision",
    "inspect_artifact",
    "list_backends",
    "load",
    "load_model",
    "new_backend",
    "partition",
    "prepare",
    "probe",
    "read_graph",
    "read_manifest",
    "register_backend",
    "verify",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'tvm_byoc_kit' has no attribute '{name}'")
    value = getattr(importlib.import_module(f"tvm_byoc_kit.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
