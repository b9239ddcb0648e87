"""The marker `byoc`: skips with the reason, fails where the backend is required, refuses typos."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tvm  # noqa: F401 - pytester forgets what the inner run imports, and TVM cannot come twice

from tvm_byoc_kit import backend as registry
from tvm_byoc_kit.backend import Backend
from tvm_byoc_kit.errors import BackendUnavailable

pytest_plugins = ["pytester"]

PLUGIN = "tvm_byoc_kit.pytest_plugin"
LOAD = ("-p", PLUGIN)

Run = Callable[..., pytest.RunResult]

# A backend that no machine has.
ABSENT = Backend("absent", "not here", requires={"codegen": ("codegen:absent",)})
SKIPPED = """
    import pytest

    @pytest.mark.byoc("absent")
    def test_needs_it():
        raise AssertionError("it ran")
"""


@pytest.fixture(autouse=True)
def _no_other_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The inner runs load the kit's plugin by its name, installed or not, and no others."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run pytest on one test file, with the backend `absent` known."""
    known = registry.get_backend
    monkeypatch.setattr(registry, "get_backend", lambda n: ABSENT if n == "absent" else known(n))
    monkeypatch.delenv("BYOC_REQUIRE", raising=False)

    def run(source: str, *arguments: str) -> pytest.RunResult:
        pytester.makepyfile(source)
        return pytester.runpytest_inprocess(*LOAD, "-rs", "--strict-markers", *arguments)

    return run


def test_a_missing_step_skips_with_the_very_words_of_backend_unavailable(run: Run) -> None:
    result = run(SKIPPED)
    result.assert_outcomes(skipped=1)
    with pytest.raises(BackendUnavailable) as caught:
        ABSENT.require("runtime")
    assert "To add it: " in str(caught.value)
    assert str(caught.value) in " ".join(result.outlines)


def test_a_step_that_can_be_done_lets_the_test_run(run: Run) -> None:
    result = run("""
        import pytest

        @pytest.mark.byoc("absent", step="partition")
        @pytest.mark.byoc("llvm", step="device")
        def test_runs():
            pass
    """)
    result.assert_outcomes(passed=1)


def test_every_marker_of_a_test_counts_also_those_of_its_class(run: Run) -> None:
    result = run("""
        import pytest

        @pytest.mark.byoc("absent")
        class TestAll:
            @pytest.mark.byoc("llvm")
            def test_needs_both(self):
                raise AssertionError("it ran")

        def test_needs_none():
            pass
    """)
    result.assert_outcomes(skipped=1, passed=1)


def test_fixtures_of_a_skipped_test_are_not_set_up(run: Run) -> None:
    result = run("""
        import pytest

        @pytest.fixture
        def device():
            raise AssertionError("it was set up")

        @pytest.mark.byoc("absent")
        def test_needs_it(device):
            pass
    """)
    result.assert_outcomes(skipped=1)


@pytest.mark.parametrize("required", ["absent", "llvm, absent"])
def test_a_required_backend_that_is_missing_fails_the_run(run: Run, required: str) -> None:
    result = run(SKIPPED, f"--byoc-require={required}")
    result.assert_outcomes(errors=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*relax.ext.absent*required by --byoc-require*"])
    result.stdout.no_fnmatch_line("*During handling of*")


def test_the_environment_can_require_a_backend_too(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BYOC_REQUIRE", "absent")
    run(SKIPPED).assert_outcomes(errors=1)


def test_requiring_one_backend_leaves_the_skips_of_others(run: Run) -> None:
    run(SKIPPED, "--byoc-require=llvm").assert_outcomes(skipped=1)


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ('byoc("tensort")', "unknown backend 'tensort'*tensorrt"),
        ('byoc("absent", step="run")', "unknown step 'run'*codegen"),
        ("byoc()", 'byoc(backend, step="runtime")'),
        ("byoc(3)", 'byoc(backend, step="runtime")'),
        ('byoc("absent", "runtime")', 'byoc(backend, step="runtime")'),
        ('byoc("absent", stage="runtime")', 'byoc(backend, step="runtime")'),
    ],
)
def test_a_mistake_in_a_marker_is_a_usage_error_that_names_the_test(
    run: Run, marker: str, message: str
) -> None:
    result = run(f"""
        import pytest

        @pytest.mark.{marker}
        def test_wrong():
            pass
    """)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    escaped = message.replace("[", "[[]")
    result.stderr.fnmatch_lines([f"*::test_wrong: *{escaped}*"])


def test_requiring_an_unknown_backend_is_a_usage_error(run: Run) -> None:
    result = run("def test_nothing(): pass", "--byoc-require=absnt")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--byoc-require: unknown backend 'absnt'*"])


def test_the_marker_and_the_option_are_documented_by_pytest_itself(
    pytester: pytest.Pytester,
) -> None:
    result = pytester.runpytest_inprocess(*LOAD, "--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.byoc(backend, step=*"])
    result = pytester.runpytest_inprocess(*LOAD, "--help")
    result.stdout.fnmatch_lines(["*--byoc-require=BACKENDS*"])


def test_without_a_marked_test_the_plugin_imports_neither_tvm_nor_numpy(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile("""
        import sys

        def test_imports():
            heavy = {"tvm", "tvm_ffi", "numpy", "torch", "rich", "tvm_byoc_kit.backend"}
            assert "tvm_byoc_kit.pytest_plugin" in sys.modules
            assert not heavy & set(sys.modules)
    """)
    result = pytester.runpytest_subprocess(*LOAD)
    result.assert_outcomes(passed=1)
