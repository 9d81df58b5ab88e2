"""Requests of runs of users' own Dagster jobs, each checked before Dagster sees it.

Dagster takes a tick's requests together: one with a config or a partition that it refuses keeps all the others from
their runs, minute after minute. So whatever is wrong with one becomes the failure of its scheduled job.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any
from uuid import UUID

import dagster as dg
from sqlalchemy.exc import SQLAlchemyError

from cronless_dagster.assets.partitions import tenant_partition
from cronless_dagster.engine.errors import PermanentFailure
from cronless_dagster.engine.following import record
from cronless_dagster.engine.handlers import failure
from cronless_dagster.engine.report import first_line
from cronless_dagster.scheduling.errors import CronlessError
from cronless_dagster.scheduling.models import Outcome
from cronless_dagster.store.claims import Claim, lock_claim
from cronless_dagster.store.database import transaction
from cronless_dagster.store.loading import load_page

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy import Engine

    from cronless_dagster.engine.dagster_jobs import RunOf
    from cronless_dagster.engine.job_types import JobType
    from cronless_dagster.engine.runs import HandOver
    from cronless_dagster.store.rows import ClaimedJob

JOB_TAG = "cronless/job"
TENANT_TAG = "cronless/tenant"
NAME_TAG = "cronless/name"
REQUESTS_SECONDS = 8.0
"""No further request is made after so long: Dagster gives up on a slow sensor, and on all that it would ask for."""
ANSWER_SECONDS = 5.0
"""How long users' functions of one scheduled job may take."""


class DagsterJobRequests:
    """Makes the run requests of one tick, and gathers the dynamic partitions that they need."""

    def __init__(self, context: dg.SensorEvaluationContext, engine: Engine) -> None:
        """Begin a tick's requests."""
        self._context, self._engine = context, engine
        self.partitions: list[Any] = []
        self._added: set[tuple[str, str]] = set()
        self._deadline = time.monotonic() + REQUESTS_SECONDS

    def request(
        self, one: HandOver, job_type: JobType, tags: Mapping[str, str]
    ) -> tuple[dg.RunRequest | None, str | None]:
        """Return the request of a handed over claim, or why there is none; neither: no job is left, or no time.

        Args:
            one: The claim; it holds one scheduled job.
            job_type: Its type, a Dagster job of the user's own.
            tags: What the run is found by; nothing in the request can replace them.
        """
        if time.monotonic() > self._deadline:
            return None, None
        try:
            claim, job = self._load(one, job_type)
            if claim is None:
                return None, None
            if job is None:
                record(self._engine, claim, job_type.retry, Outcome("success"), None)
                return None, None
            try:
                return self._checked(one, job_type, job, tags), None
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's function, or Dagster of its answer
                outcome = failure(error)
            record(self._engine, claim, job_type.retry, outcome, None)
        except (CronlessError, SQLAlchemyError) as error:
            # The next tick hands it over again; the others have their requests now.
            return None, f"claim {one.claim_id}: {first_line(error)}"
        return None, f"{job.tenant_id}/{job.job_type}/{job.name}: {outcome.error}"

    def _load(self, one: HandOver, job_type: JobType) -> tuple[Claim | None, ClaimedJob | None]:
        with transaction(self._engine) as connection:
            claim = lock_claim(connection, one.claim_id)
            jobs = load_page(connection, one.claim_id, UUID(int=0), 1, job_type.retry)
        return claim, jobs[0] if jobs else None

    def _checked(
        self, one: HandOver, job_type: JobType, job: ClaimedJob, tags: Mapping[str, str]
    ) -> dg.RunRequest:
        if job.payload_error is not None:
            raise PermanentFailure(job.payload_error)
        own = job_type.dagster_job
        if own is None or self._context.repository_def is None:
            raise PermanentFailure(f"job type {job_type.name!r} is no Dagster job of this code location")
        wanted = _answer(own.request, job)
        definition = self._context.repository_def.get_job(own.definition.name)
        request = dg.RunRequest(
            run_key=one.run_key,
            job_name=own.definition.name,
            partition_key=wanted.partition_key,
            run_config=dict(wanted.run_config),
            tags={
                **job_type.tags,
                **wanted.tags,
                JOB_TAG: str(job.id),
                TENANT_TAG: job.tenant_id,
                NAME_TAG: job.name,
                **tags,
            },
        )
        partitions = definition.partitions_def
        if (partitions is None) != (wanted.partition_key is None):
            raise PermanentFailure(
                f"the Dagster job {definition.name!r} is {'not ' if partitions is None else ''}partitioned, and the"
                f" job type gives it the partition {wanted.partition_key!r}: correct the job type"
            )
        more = self._missing(partitions, wanted.partition_key)
        if wanted.partition_key is not None:
            try:
                request = request.with_resolved_tags_and_config(
                    definition,
                    [*self.partitions, *more],
                    self._context.instance,
                )
            except dg.DagsterUnknownPartitionError as error:
                raise PermanentFailure(
                    f"the Dagster job {definition.name!r} has no partition {wanted.partition_key!r}: add it, or"
                    " correct the scheduled job"
                ) from error
        try:
            dg.validate_run_config(definition, request.run_config)
        except dg.DagsterInvalidConfigError as error:
            raise PermanentFailure(f"its run config is refused: {_first(error)}") from error
        try:
            dg.serialize_value(request)
        except Exception as error:
            raise PermanentFailure(
                f"its run config or tags can't be written ({error}): give texts, numbers, lists and mappings"
            ) from error
        if more:
            self.partitions += more
            self._added.add((more[0].partitions_def_name, more[0].partition_keys[0]))
        return request

    def _missing(self, partitions: Any, key: str | None) -> list[Any]:
        """Return the request that adds a dynamic partition, where it isn't there or asked for already."""
        if (
            key is None
            or not isinstance(partitions, dg.DynamicPartitionsDefinition)
            or partitions.name is None
        ):
            return []
        if (partitions.name, key) in self._added or self._context.instance.has_dynamic_partition(
            partitions.name, key
        ):
            return []
        return [partitions.build_add_request([tenant_partition(key)])]


def _answer(request: Callable[[ClaimedJob], RunOf], job: ClaimedJob) -> RunOf:
    """Ask users' functions in a thread of their own: one that hangs must not take all other requests with it.

    Raises:
        TimeoutError: There is none within `ANSWER_SECONDS`; the thread is left to itself.
        BaseException: Whatever they raise.
    """
    answers: list[RunOf] = []
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            answers.append(request(job))
        except BaseException as error:  # noqa: BLE001 - raised by the caller
            errors.append(error)

    thread = threading.Thread(target=ask, name=f"request of {job.id}", daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    if errors:
        raise errors[0]
    if not answers:
        raise TimeoutError(f"its partition or run_config function gave no answer within {ANSWER_SECONDS:g} s")
    return answers[0]


def _first(error: dg.DagsterInvalidConfigError) -> str:
    return error.errors[0].message if error.errors else str(error).strip().splitlines()[0]
