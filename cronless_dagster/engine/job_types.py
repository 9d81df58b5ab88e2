"""Job types: what a scheduled job runs, declared once, in Python."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from cronless_dagster.engine.dagster_jobs import DAGSTER_JOB, DagsterJob, no_handler, run_of
from cronless_dagster.engine.errors import JobTypeError, UnknownJobType
from cronless_dagster.rabbitmq import DEAD
from cronless_dagster.scheduling.limits import Limits
from cronless_dagster.scheduling.models import RetryPolicy

if TYPE_CHECKING:
    from cronless_dagster.store.rows import ClaimedJob

# Dagster's own rule for names, so that a job type can name its asset and its Dagster job.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}\Z")
# What a queue holds waits there for its workers: a run's limits would leave them idle until the next tick.
QUEUE_CLAIMS_PER_TICK = 100
QUEUE_OPEN_CLAIMS = 200
# Each scheduled job of these is a claim and a run; Dagster's own run queue bounds how many work at once.
DAGSTER_JOB_CLAIMS_PER_TICK = 20
DAGSTER_JOB_OPEN_CLAIMS = 100
_HandlerT = TypeVar("_HandlerT", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class JobType:
    """One kind of work.

    Attributes:
        name: Letters, digits and underscores; also the name of its asset in Dagster.
        handler: Called with a `ClaimedJob`, or with the whole batch as a pandas DataFrame. For a job it may be a
            coroutine function: all run on one event loop of the process, each in the place of a thread.
        takes: "job" or "batch".
        route: "run": one Dagster run for each claim. "queue": a RabbitMQ message for each job, run by workers;
            where no broker is named, such types take the run route too.
        batch_size: The most jobs of one claim, and so of one run.
        claims_per_tick: The most claims that one tick makes; None: one on the run route, a hundred on the queue,
            twenty of a Dagster job of the user's own.
        concurrency: Threads that call a "job" handler within one run.
        lease: A claim whose holder hasn't been heard of for so long is taken from it. Holders renew at a third.
        retry: What follows a failure, unless the row says otherwise.
        limits: On claims, rows in flight, and rows in flight of a tenant; None: three open claims on the run
            route, two hundred on the queue, where each job that its worker died of is a claim of its own, and a
            hundred of a Dagster job of the user's own.
        priority: Among queued Dagster runs; higher goes first.
        max_runtime: A Dagster run of this type that lasts longer is ended by Dagster's run monitoring.
        pool: The Dagster concurrency pool of its runs.
        tags: Further tags of its Dagster runs.
        resources: Keys of Dagster resources that its handler uses, as `context.dagster.resources.<key>`; on the
            queue route `context.dagster` is None. A mapping also says what makes each, where `build_definitions`
            is given none.
        asset: Makes its asset in Dagster, called with the job type; None: `assets.job_types.build_asset`. Where it
            makes several, the first is the one whose runs do the work.
        dagster_job: A Dagster job of the user's own, to be run once for each scheduled job in place of a handler;
            see `JobTypes.dagster_job`.
        description: Shown in the Dagster UI.
    """

    name: str
    handler: Callable[..., Any]
    takes: Literal["job", "batch"] = "job"
    route: Literal["run", "queue"] = "run"
    batch_size: int = 1_000
    claims_per_tick: int | None = None
    concurrency: int = 8
    lease: timedelta = timedelta(minutes=10)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    limits: Limits | None = None
    priority: int = 0
    max_runtime: timedelta | None = timedelta(hours=6)
    pool: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    resources: Collection[str] = ()
    asset: Callable[[JobType], Any] | None = None
    dagster_job: DagsterJob | None = None
    description: str | None = None

    def __post_init__(self) -> None:
        """Refuse what could never run.

        Raises:
            JobTypeError: A name or a number out of its range.
        """
        if not _NAME.match(self.name):
            raise JobTypeError(
                f"job type {self.name!r} can't be declared: use at most 100 letters, digits and underscores, not "
                "beginning with a digit"
            )
        self._check_handler()
        self._check_route()
        self._check_numbers()
        if self.dagster_job is not None and (self.batch_size, self.route) != (1, "run"):
            raise JobTypeError(
                f"job type {self.name!r} is a Dagster job with batch_size {self.batch_size} on the {self.route} route:"
                " declare it by JobTypes.dagster_job"
            )

    def _check_handler(self) -> None:
        if not callable(self.handler):
            raise JobTypeError(f"job type {self.name!r} has the handler {self.handler!r}: give a function")
        if inspect.isgeneratorfunction(self.handler) or inspect.isasyncgenfunction(self.handler):
            raise JobTypeError(
                f"job type {self.name!r} has a handler that only returns a generator when called: give a plain "
                "function or a coroutine function"
            )
        if self.takes not in ("job", "batch"):
            raise JobTypeError(f"job type {self.name!r} takes {self.takes!r}: use 'job' or 'batch'")
        if self.takes == "batch" and inspect.iscoroutinefunction(self.handler):
            raise JobTypeError(
                f"job type {self.name!r} has a coroutine function for a batch: give a plain function, with "
                "`asyncio.run` inside"
            )

    def _check_route(self) -> None:
        if self.route not in ("run", "queue"):
            raise JobTypeError(f"job type {self.name!r} has the route {self.route!r}: use 'run' or 'queue'")
        if self.route == "queue" and self.takes == "batch":
            raise JobTypeError(
                f"job type {self.name!r} takes a batch on the queue route, where each message is one job: use "
                "@job_types.job, or the run route"
            )
        if self.route == "queue" and self.name == DEAD:
            raise JobTypeError(
                f"job type {self.name!r} can't take the queue route, where its queue would hold the dead letters: "
                "rename it"
            )

    def _check_numbers(self) -> None:
        for name, lowest, highest in (
            ("batch_size", 1, 100_000),
            ("claims_per_tick", 1, 100),
            ("concurrency", 1, 1_000),
        ):
            value = getattr(self, name)
            if name == "claims_per_tick" and value is None:
                continue
            if not isinstance(value, int) or not lowest <= value <= highest:
                raise JobTypeError(
                    f"job type {self.name!r} has {name} {value!r}: give a whole number from {lowest} to {highest:,}"
                )
        if self.lease < timedelta(seconds=5):
            raise JobTypeError(f"job type {self.name!r} has a lease of {self.lease}: give at least 5 seconds")
        if self.max_runtime is not None and self.max_runtime < timedelta(seconds=1):
            raise JobTypeError(
                f"job type {self.name!r} has max_runtime {self.max_runtime}: give at least a second"
            )

    def most_claims(self, route: str) -> int:
        """Return the most claims that one tick makes on a route."""
        if self.claims_per_tick is not None:
            return self.claims_per_tick
        if self.dagster_job is not None:
            return DAGSTER_JOB_CLAIMS_PER_TICK
        return QUEUE_CLAIMS_PER_TICK if route == "queue" else 1

    def bounds(self, route: str) -> Limits:
        """Return the limits that hold on a route: those given, or the route's."""
        if self.limits is not None:
            return self.limits
        if self.dagster_job is not None:
            return Limits(open_claims=DAGSTER_JOB_OPEN_CLAIMS)
        return Limits(open_claims=QUEUE_OPEN_CLAIMS) if route == "queue" else Limits()

    @property
    def run_route(self) -> str:
        """The route of its claims that become Dagster runs."""
        return "run" if self.dagster_job is None else DAGSTER_JOB

    @property
    def lease_seconds(self) -> int:
        """The lease in whole seconds."""
        return int(self.lease.total_seconds())


class JobTypes:
    """The job types of a code location; pass it to `build_definitions` and name it to the command line."""

    def __init__(self, types: tuple[JobType, ...] = ()) -> None:
        """Start with the given types, or with none and declare them by decorators."""
        self._types: dict[str, JobType] = {}
        for job_type in types:
            self.declare(job_type)

    def declare(self, job_type: JobType) -> JobType:
        """Add a job type. Raises JobTypeError where the name is taken."""
        if job_type.name in self._types:
            raise JobTypeError(f"job type {job_type.name!r} is declared twice: rename one of them")
        self._types[job_type.name] = job_type
        return job_type

    def job(self, name: str, **options: Any) -> Callable[[_HandlerT], _HandlerT]:
        """Declare a handler that takes one `ClaimedJob` and returns None or an `Outcome`, or raises."""
        return self._decorator(name, "job", options)

    def batch(self, name: str, **options: Any) -> Callable[[_HandlerT], _HandlerT]:
        """Declare a handler that takes a claim's jobs as a DataFrame and returns an outcome for each id."""
        return self._decorator(name, "batch", options)

    def dagster_job(
        self,
        name: str,
        definition: Any,
        *,
        partition: str | Callable[[ClaimedJob], str] | None = None,
        run_config: Mapping[str, Any] | Callable[[ClaimedJob], Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> JobType:
        """Declare a Dagster job of one's own: each scheduled job that is due becomes one run of it.

        The run's end is the job's: success plans the next occurrence, a failure is tried again by the retry
        policy, a cancellation is none. The tick sensor records it, so up to a minute later.

        Args:
            name: The job type.
            definition: What `define_asset_job` or `@job` returned.
            partition: Which partition a run materializes: "tenant_id", "name", "payload.<key>" or a function of
                the `ClaimedJob`. A dynamic partition that is missing is added.
            run_config: For each run, or a function of the `ClaimedJob`.
            options: Of `JobType`: `limits`, `retry`, `max_runtime`, `priority`, `tags`, ….

        Raises:
            JobTypeError: A name that is taken, or an option that a Dagster job can't have.
        """
        wrong = {
            "handler",
            "takes",
            "route",
            "batch_size",
            "concurrency",
            "pool",
            "resources",
            "asset",
        } & options.keys()
        if wrong:
            raise JobTypeError(
                f"job type {name!r} is a Dagster job and can't have {', '.join(sorted(wrong))}: leave it out"
            )
        if not isinstance(getattr(definition, "name", None), str):
            raise JobTypeError(
                f"job type {name!r} is given {type(definition).__name__}: give what define_asset_job or @job returned"
            )
        return self.declare(
            JobType(
                name=name,
                handler=no_handler,
                batch_size=1,
                dagster_job=DagsterJob(definition, run_of(partition, run_config)),
                **options,
            )
        )

    def _decorator(self, name: str, takes: Any, options: dict[str, Any]) -> Callable[[_HandlerT], _HandlerT]:
        if not isinstance(name, str):
            raise JobTypeError(f'the job type of {name!r} has no name: write @job_types.{takes}("name")')

        def declared(handler: _HandlerT) -> _HandlerT:
            description = options.pop("description", None) or (handler.__doc__ or "").strip() or None
            self.declare(JobType(name=name, handler=handler, takes=takes, description=description, **options))
            return handler

        return declared

    def __iter__(self) -> Iterator[JobType]:
        """Iterate in the order of declaration."""
        return iter(self._types.values())

    def __len__(self) -> int:
        """Count the declared types."""
        return len(self._types)

    def __contains__(self, name: object) -> bool:
        """Tell whether a type of this name is declared."""
        return name in self._types

    def get(self, name: str) -> JobType | None:
        """Return the type of this name, or None."""
        return self._types.get(name)

    def __getitem__(self, name: str) -> JobType:
        """Return the type of this name. Raises UnknownJobType."""
        found = self._types.get(name)
        if found is None:
            known = ", ".join(self._types) or "none"
            raise UnknownJobType(
                f"job type {name!r} is not declared here (declared: {known}): deploy the code for it"
            )
        return found


def load_job_types(reference: str) -> JobTypes:
    """Import job types from `package.module` (its `job_types`) or `package.module:name`.

    Raises:
        JobTypeError: The module can't be imported, or the name isn't a `JobTypes`.
    """
    module_name, _, attribute = reference.partition(":")
    try:
        module = import_module(module_name)
    except Exception as error:
        # Also what the module itself raises: it is the user's own, and its traceback is kept as the cause.
        raise JobTypeError(
            f"module {module_name!r} with the job types can't be imported ({type(error).__name__}: {error}): correct "
            "it, or CRONLESS_JOB_TYPES"
        ) from error
    found = getattr(module, attribute or "job_types", None)
    if not isinstance(found, JobTypes):
        raise JobTypeError(
            f"{module_name}:{attribute or 'job_types'} is no JobTypes: write `job_types = JobTypes()` there"
        )
    return found
