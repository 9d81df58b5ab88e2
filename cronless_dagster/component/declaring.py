"""From the job types of `defs.yaml` to those that the tick knows."""

from __future__ import annotations

import inspect
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cronless_dagster.component.attributes import DagsterJob, Handler, Module, ReadyMade
from cronless_dagster.engine.job_types import JobType, JobTypes
from cronless_dagster.scheduling.durations import parse_duration
from cronless_dagster.scheduling.errors import CronlessError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cronless_dagster.component.attributes import AnyJobType

_READY_MADE = {
    "account_research": "cronless_dagster.assets.research",
    "email_digest": "cronless_dagster.assets.digests",
    "webhook_renewal": "cronless_dagster.assets.webhooks",
}
_AS_THEY_ARE = (
    "batch_size",
    "claims_per_tick",
    "concurrency",
    "description",
    "lease",
    "max_runtime",
    "pool",
    "priority",
    "tags",
)

_MISSING = object()


class ComponentError(CronlessError, ValueError):
    """What `defs.yaml` names can't be used."""


def declare(entries: Sequence[AnyJobType], *, autoloaded: str) -> JobTypes:
    """Return the job types that a file declares, in its order.

    Args:
        entries: What the file says.
        autoloaded: The package whose modules Dagster loads by itself.

    Raises:
        ComponentError: A module, function or Dagster job that isn't there, or a name that is taken; the message says
            which entry it is.
    """
    declared = JobTypes()
    for place, entry in enumerate(entries):
        try:
            for job_type in _declared_by(entry, autoloaded):
                declared.declare(job_type)
        except CronlessError as error:
            raise ComponentError(f"job_types[{place}]: {error}") from error.__cause__
    return declared


def _declared_by(entry: AnyJobType, autoloaded: str) -> Iterable[JobType]:
    if isinstance(entry, Module):
        return _of_module(entry)
    if isinstance(entry, Handler):
        made = _of_handler(entry)
    elif isinstance(entry, DagsterJob):
        made = _of_dagster_job(entry, autoloaded)
    else:
        made = _ready_made(entry)
    return [_adjusted(made, entry)]


def _of_module(entry: Module) -> JobTypes:
    found = imported("module", entry.module, "job_types")
    if not isinstance(found, JobTypes):
        raise ComponentError(
            f"module {entry.module!r} gives no JobTypes but {type(found).__name__}: write `job_types = JobTypes()`"
            " there, or name what it is called, as in package.module:name"
        )
    return found


def _of_handler(entry: Handler) -> JobType:
    handler = imported("handler", entry.handler)
    return JobType(
        name=entry.name,
        handler=handler,
        takes=entry.takes,
        route=entry.route,
        resources=tuple(entry.resources),
        description=inspect.getdoc(handler),
    )


def _of_dagster_job(entry: DagsterJob, autoloaded: str) -> JobType:
    # Dagster would have it twice: by itself, and with the tick sensor, in copies that it takes for two of one name.
    if entry.dagster_job.startswith(f"{autoloaded}."):
        raise ComponentError(
            f"dagster_job {entry.dagster_job!r} lies in {autoloaded!r}, whose jobs Dagster loads by itself: move it to"
            " a module outside; its assets may stay"
        )
    return JobTypes().dagster_job(
        entry.name,
        imported("dagster_job", entry.dagster_job),
        partition=entry.partition,
        run_config=entry.run_config,
    )


def _ready_made(entry: ReadyMade) -> JobType:
    name = entry.ready_made
    try:
        make = imported("ready_made", f"{_READY_MADE[name]}:{name}")
    except ComponentError as error:
        if not isinstance(error.__cause__, ModuleNotFoundError):
            raise
        raise ComponentError(
            f"ready_made {name!r} needs {error.__cause__.name!r}, which isn't installed: install"
            " cronless-dagster[assets]"
        ) from error.__cause__
    parameters = inspect.signature(make).parameters
    known = [one for one, parameter in parameters.items() if parameter.kind is not parameter.VAR_KEYWORD]
    options = {}
    for option, value in entry.options.items():
        if option not in known:
            raise ComponentError(f"{name} has no option {option!r}: it has {', '.join(known)}")
        options[option] = _converted(value, str(parameters[option].annotation), f"{option} of {name}")
    if "route" in entry.model_fields_set:
        options["route"] = entry.route
    made: JobType = make(**options)
    return made


def _converted(value: Any, annotation: str, what: str) -> Any:
    """Return what YAML has no form for as the class that a parameter's annotation names."""
    if isinstance(value, str) and "timedelta" in annotation:
        return parse_duration(value, what=what)
    if isinstance(value, str) and "Path" in annotation:
        return Path(value)
    return value


def _adjusted(made: JobType, entry: Handler | DagsterJob | ReadyMade) -> JobType:
    """Return the job type as the entry wants it; what the entry leaves out stays as it was made."""
    given = entry.given()
    changes = {name: given[name] for name in _AS_THEY_ARE if name in given}
    if "retry" in given:
        changes["retry"] = replace(made.retry, **entry.retry.given())
    if "limits" in given:
        changes["limits"] = replace(made.bounds(made.route), **entry.limits.given())
    return replace(made, **changes)


def imported(key: str, reference: str, default: str = "") -> Any:
    """Return what a `package.module:name` of the file names.

    Raises:
        ComponentError: There is no such module, it can't be imported, or it has no such name.
    """
    module_name, _, attribute = reference.partition(":")
    name = attribute or default
    try:
        module = import_module(module_name)
        # A name may be loaded by asking for it, so this too may import.
        found = getattr(module, name, _MISSING)
    except Exception as error:
        raise ComponentError(
            f"the module of {key} {reference!r} can't be imported ({type(error).__name__}: {error}): correct the"
            " name, or the module"
        ) from error
    if found is _MISSING:
        raise ComponentError(
            f"module {module_name!r} has no {name!r}, which {key} {reference!r} names: correct it"
        )
    return found
