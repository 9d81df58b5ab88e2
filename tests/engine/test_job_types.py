"""Declaring job types, and finding them by a module's name."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from cronless_dagster.engine.errors import JobTypeError, UnknownJobType
from cronless_dagster.engine.job_types import JobType, JobTypes, load_job_types
from tests.engine.support import nothing

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": ""}, "letters, digits and underscores"),
        ({"name": "web-hooks"}, "letters, digits and underscores"),
        ({"name": "1st"}, "letters, digits and underscores"),
        ({"name": "a" * 101}, "at most 100"),
        ({"name": "work\n"}, "letters, digits and underscores"),
        ({"takes": "rows"}, "use 'job' or 'batch'"),
        ({"route": "fast"}, "use 'run' or 'queue'"),
        ({"route": "queue", "takes": "batch"}, "each message is one job"),
        ({"route": "queue", "name": "dead"}, "dead letters"),
        ({"batch_size": 0}, "batch_size 0"),
        ({"batch_size": 100_001}, "from 1 to 100,000"),
        ({"batch_size": 1.5}, "whole number"),
        ({"claims_per_tick": 101}, "from 1 to 100"),
        ({"concurrency": 0}, "concurrency 0"),
        ({"lease": timedelta(seconds=4)}, "at least 5 seconds"),
        ({"max_runtime": timedelta(0)}, "at least a second"),
        ({"handler": None}, "give a function"),
    ],
)
def test_refuses_what_could_never_run(options: dict[str, Any], said: str) -> None:
    """A wrong declaration is refused at once, with its value and what to write instead."""
    with pytest.raises(JobTypeError, match=said):
        JobType(**{"name": "work", "handler": nothing, **options})


async def _coroutine(_job: object) -> None: ...


def _generator(_job: object) -> Any:
    yield


async def _async_generator(_job: object) -> Any:
    yield


@pytest.mark.parametrize("handler", [_generator, _async_generator])
def test_refuses_handlers_that_would_only_promise(handler: Any) -> None:
    """A generator function would do nothing when called, so it is refused at its declaration."""
    with pytest.raises(JobTypeError, match="plain function"):
        JobType(name="work", handler=handler)


def test_a_coroutine_function_takes_single_jobs() -> None:
    """For a job it is called and waited for; a batch has no other job to run beside it."""
    assert JobType(name="work", handler=_coroutine).handler is _coroutine
    with pytest.raises(JobTypeError, match="plain function"):
        JobType(name="work", handler=_coroutine, takes="batch")


def test_decorators_declare_and_return_the_handler() -> None:
    """A decorated function stays itself, and its docstring describes its job type."""
    types = JobTypes()

    @types.job("single", batch_size=7)
    def single(job: object) -> None:
        """Serve one."""

    @types.batch("many", description="Serve all.")
    def many(frame: object) -> None:
        """Not this."""

    assert [one.name for one in types] == ["single", "many"]
    assert types["single"].handler is single
    assert (types["single"].takes, types["single"].batch_size) == ("job", 7)
    assert types["single"].description == "Serve one."
    assert (types["many"].takes, types["many"].description) == ("batch", "Serve all.")
    assert types["many"].handler is many
    assert len(types) == 2
    assert "single" in types
    assert types.get("other") is None


def test_a_name_is_declared_once() -> None:
    """Two declarations of one name are a mistake that shows at once."""
    types = JobTypes((JobType(name="work", handler=nothing),))
    with pytest.raises(JobTypeError, match="declared twice"):
        types.declare(JobType(name="work", handler=nothing))


def test_an_unknown_type_names_the_known_ones() -> None:
    """Asking for a type that isn't declared says which ones are."""
    with pytest.raises(UnknownJobType, match=r"'other'.*declared: work"):
        JobTypes((JobType(name="work", handler=nothing),))["other"]
    with pytest.raises(UnknownJobType, match="none"):
        JobTypes()["other"]


class TestLoading:
    """`load_job_types` by a module's name."""

    @pytest.fixture
    def write(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        """Write a module that can be imported during the test."""
        monkeypatch.syspath_prepend(str(tmp_path))

        def write(name: str, code: str) -> str:
            (tmp_path / f"{name}.py").write_text(code)
            monkeypatch.delitem(sys.modules, name, raising=False)
            return name

        return write

    def test_by_module_and_by_name(self, write: Any) -> None:
        """The module's `job_types` are found, or those of the given name."""
        code = "from cronless_dagster.engine.job_types import JobTypes\njob_types = JobTypes()\nmine = JobTypes()"
        write("declared_here", code)
        module = load_job_types("declared_here")
        named = load_job_types("declared_here:mine")
        assert module is sys.modules["declared_here"].job_types  # type: ignore[attr-defined]
        assert named is sys.modules["declared_here"].mine  # type: ignore[attr-defined]

    @pytest.mark.parametrize("reference", ["", ".relative", "no_such_module_here", "no_such_module_here:x"])
    def test_no_such_module(self, reference: str) -> None:
        """A module that can't be imported is one clear error, whatever Python raised."""
        with pytest.raises(JobTypeError, match="can't be imported"):
            load_job_types(reference)

    @pytest.mark.parametrize("code", ["1 +", "raise RuntimeError('no')", "import no_such_module_here"])
    def test_broken_module(self, write: Any, code: str) -> None:
        """A module that raises at its import is the same clear error."""
        write("broken_here", code)
        with pytest.raises(JobTypeError, match="broken_here"):
            load_job_types("broken_here")

    @pytest.mark.parametrize("code", ["", "job_types = {}"])
    def test_module_without_job_types(self, write: Any, code: str) -> None:
        """A module that declares none says what to write there."""
        write("empty_here", code)
        with pytest.raises(JobTypeError, match=r"JobTypes\(\)"):
            load_job_types("empty_here")
