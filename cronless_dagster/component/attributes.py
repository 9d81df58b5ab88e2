"""The mappings of `defs.yaml`, as typed models; each field's description is shown by `dg` and in Dagster's UI."""

# No `from __future__ import annotations`: pydantic reads these as classes.

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, Tag
from pydantic.json_schema import SkipJsonSchema

from cronless_dagster.component.fields import Address, Attributes, ByKey, Duration, Name
from cronless_dagster.engine.tick import BUDGET_SECONDS, HISTORY_DAYS, MAX_HAND_OVER


class Retry(Attributes):
    """What follows a failure, unless a row says otherwise."""

    max_attempts: int = Field(default=3, ge=1, description="Tries of one occurrence, the first included.")
    delay: Duration = Field(default=timedelta(minutes=1), description="The pause after the first failed try.")
    max_delay: Duration = Field(default=timedelta(hours=1), description="The longest pause.")
    factor: float = Field(default=2.0, ge=1, description="What each further pause is multiplied with.")
    pause_after: int | None = Field(
        default=None, ge=1, description="So many failed occurrences in a row pause the job. Default: never."
    )


class Bounds(Attributes):
    """Limits of a job type."""

    open_claims: int | None = Field(
        default=None,
        ge=1,
        description=(
            "Claims that are not closed. Default: 3 on the run route, 200 on the queue, 100 of a Dagster job;"
            " null lifts it."
        ),
    )
    in_flight: int | None = Field(
        default=None, ge=1, description="Scheduled jobs that are claimed or running. Default: no limit."
    )
    per_tenant: int | None = Field(
        default=None, ge=1, description="The same, of one tenant. Default: no limit."
    )


class _Options(Attributes):
    claims_per_tick: int | None = Field(
        default=None,
        ge=1,
        le=100,
        description="The most claims of one tick. Default: 1 on the run route, 100 on the queue, 20 of a Dagster job.",
    )
    lease: Duration = Field(
        default=timedelta(minutes=10),
        description="A claim whose holder wasn't heard of for so long is taken from it.",
    )
    retry: Retry = Field(
        default_factory=Retry, description="What follows a failure, unless a row says otherwise."
    )
    limits: Bounds = Field(
        default_factory=Bounds, description="How much of the type may be under way at once."
    )
    priority: int = Field(default=0, description="Among queued Dagster runs; higher goes first.")
    max_runtime: Duration | None = Field(
        default=timedelta(hours=6), description="Dagster ends a run that lasts longer; null: it never does."
    )
    tags: dict[str, str] = Field(default_factory=dict, description="Further tags of its Dagster runs.")
    description: str | None = Field(default=None, description="Shown in Dagster's UI.")


class _Worked(_Options):
    route: Literal["run", "queue"] = Field(
        default="run",
        description=(
            "run: a Dagster run for each claim. queue: a RabbitMQ message for each job, run by workers; where no"
            " broker is named, such types take the run route too."
        ),
    )
    batch_size: int = Field(
        default=1_000, ge=1, le=100_000, description="The most jobs of one claim, and so of one run."
    )
    concurrency: int = Field(
        default=8, ge=1, le=1_000, description="Threads that call the handler within one run."
    )
    pool: str | None = Field(default=None, description="The Dagster concurrency pool of its runs.")


class Module(Attributes):
    """The job types that a module declares."""

    module: str = Field(
        min_length=1,
        description="`package.module`, whose `job_types` is a `JobTypes`; or `package.module:name`.",
    )


class Handler(_Worked):
    """A job type with a handler of the project."""

    name: Name = Field(description="The job type, as rows name it; also the name of its asset.")
    handler: str = Field(
        pattern=r"^[^:\s]+:[^:\s]+$", description="`package.module:function`, called as `takes` says."
    )
    takes: Literal["job", "batch"] = Field(
        default="job",
        description="job: called with each job. batch: called with all jobs of a claim, as a pandas DataFrame.",
    )
    resources: list[str] = Field(
        default_factory=list,
        description="Keys of Dagster resources, for `context.dagster.resources.<key>` in the handler.",
    )


class DagsterJob(_Options):
    """A Dagster job of the project: each scheduled job that is due becomes one run of it."""

    name: Name = Field(description="The job type, as rows name it.")
    dagster_job: str = Field(
        pattern=r"^[^:\s]+:[^:\s]+$",
        description="`package.module:name` of what `define_asset_job` or `@job` returned.",
    )
    partition: str | None = Field(
        default=None,
        pattern=r"^(tenant_id|name|payload\..+)$",
        description="Which partition a run has: tenant_id, name, or payload.<key>. Default: not partitioned.",
    )
    run_config: dict[str, Any] = Field(default_factory=dict, description="The run config of each run.")


class ReadyMade(_Worked):
    """One of the job types that come with this package."""

    ready_made: Literal["account_research", "email_digest", "webhook_renewal"] = Field(
        description="Which one; also the job type's name, as rows name it."
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="The parameters of its function, by their names there."
    )


KINDS = ByKey("module", "ready_made", "dagster_job")
"""How the entries of `job_types` are told apart."""

AnyJobType = Annotated[
    Annotated[Module, Tag("module")]
    | Annotated[ReadyMade, Tag("ready_made")]
    | Annotated[DagsterJob, Tag("dagster_job")]
    | Annotated[Handler, Tag("")],
    Discriminator(KINDS.key_of),
    KINDS,
]


class Sensor(Attributes):
    """The tick sensor."""

    name: Name = Field(default="cronless_tick", description="Its name in Dagster.")
    minimum_interval_seconds: int = Field(
        default=60, ge=1, description="Between the beginnings of two ticks."
    )
    shards: int = Field(
        default=1, ge=1, le=256, description="How many sensors cut the scheduled jobs among themselves."
    )
    default_status: Literal["RUNNING", "STOPPED"] = Field(
        default="RUNNING",
        description="RUNNING: on without anybody turning it on. A stop or start in the UI beats it.",
    )
    budget_seconds: float = Field(
        default=BUDGET_SECONDS, gt=0, description="No new batch of a tick begins after so long."
    )
    max_hand_over: int = Field(
        default=MAX_HAND_OVER, ge=1, description="The most Dagster runs that one tick asks for."
    )
    history_days: int = Field(default=HISTORY_DAYS, ge=1, description="How long history is kept.")


class RabbitMQ(Attributes):
    """The broker of the queue route."""

    url: Address = Field(
        default="",
        description=(
            "`{{ env.NAME }}` of the broker's address. Default: CRONLESS_BROKER_URL, or the file that"
            " CRONLESS_BROKER_URL_FILE names; where those are unset too, every job type takes the run route."
        ),
    )
    prefix: str = Field(
        default="",
        description="What names of queues and exchanges begin with. Default: CRONLESS_BROKER_PREFIX.",
    )
    ca_file: str = Field(
        default="",
        description="Certificates (PEM) that may sign the broker's. Default: CRONLESS_BROKER_CA_FILE.",
    )
    cert_file: str = Field(
        default="", description="This client's certificate (PEM). Default: CRONLESS_BROKER_CERT_FILE."
    )
    key_file: str = Field(default="", description="Its private key (PEM). Default: CRONLESS_BROKER_KEY_FILE.")


class Health(Attributes):
    """The limits beyond which the checks of `schedule_health` fail."""

    # The one mapping that may also be written as true or false.
    model_config = ConfigDict(json_schema_extra={"type": ["object", "boolean"]})

    cron_schedule: str = Field(default="*/15 * * * *", description="When it is made, in UTC.")
    lateness_limit: Duration = Field(
        default=timedelta(minutes=10), description="How late a scheduled job may be started."
    )
    failing_share: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="Which share of a job type's tries of an hour may fail, from 0 to 1.",
    )
    failing_tries: int = Field(
        default=5, ge=1, description="A job type with fewer tries in that hour isn't judged."
    )
    stuck_after: Duration = Field(
        default=timedelta(minutes=5),
        description="How long after its lease's end a claim counts as stuck; each tick rescues such claims.",
    )
    fresh_within: Duration = Field(
        default=timedelta(minutes=45), description="Not made for so long, Dagster shows it as not fresh."
    )


def _health(value: Any) -> Any:
    return ({} if value else None) if isinstance(value, bool) else value


OptionalHealth = Annotated[Health | SkipJsonSchema[None], BeforeValidator(_health)]
"""`true` for the usual limits, a mapping for others, `false` for no such asset."""
