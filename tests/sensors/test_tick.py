"""The tick sensor: what it asks Dagster for, and what it says when there is nothing to ask for."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from sqlalchemy import text

from cronless_dagster.engine.job_types import JobType, JobTypes
from cronless_dagster.resources.rabbitmq import RabbitMQResource
from cronless_dagster.scheduling.limits import Limits
from cronless_dagster.sensors.tick import TickFailed, build_tick_sensor, build_tick_sensors
from tests.dagster.support import (
    Location,
    add_due,
    assert_all_done_once,
    claim_of,
    claims,
    hold_and_run,
    job_rows,
    outcomes,
)
from tests.rabbitmq.support import drain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from cronless_dagster.rabbitmq.address import Broker

NO_LIMIT = Limits(open_claims=None)


def do_nothing(_job: object) -> None:
    """Succeed."""


def types_of(*names: str, **options: object) -> JobTypes:
    """Declare job types that do nothing, well."""
    return JobTypes(tuple(JobType(name=name, handler=do_nothing, **options) for name in names))


def resource_of(broker: Broker) -> RabbitMQResource:
    """Return the resource that names a broker."""
    return RabbitMQResource(url=broker.url, prefix=broker.prefix)


@pytest.fixture(autouse=True)
def no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker of whoever runs the tests is not the tests' affair."""
    monkeypatch.delenv("CRONLESS_BROKER_URL", raising=False)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """A Dagster instance in memory."""
    with dg.DagsterInstance.ephemeral() as made:
        yield made


class TestWhatIsAskedFor:
    """One run for each claim, with all that the run needs and no payload."""

    def test_one_run_for_each_job_type_and_batch(
        self, engine: Engine, pg_url: str, instance: dg.DagsterInstance
    ) -> None:
        """Sixty due jobs of two types are two runs."""
        location = Location(types_of("digest", "renewal"), pg_url, instance)
        add_due(engine, "digest", 40)
        add_due(engine, "renewal", 20)
        requests = location.tick().run_requests
        assert sorted(request.job_name or "" for request in requests) == [
            "cronless_digest",
            "cronless_renewal",
        ]
        assert {claim_of(request) for request in requests} == {claim.id for claim in claims(engine)}

    def test_a_request_carries_the_claim_and_no_payload(
        self, engine: Engine, pg_url: str, instance: dg.DagsterInstance
    ) -> None:
        """Run configs and tags are kept for a long time and seen by many."""
        types = types_of("digest", priority=7, max_runtime=timedelta(minutes=5), tags={"team": "mail"})
        location = Location(types, pg_url, instance)
        add_due(engine, "digest", 1, payload={"secret": "honey"})
        [request] = location.tick().run_requests
        [claim] = claims(engine)
        assert request.run_key == f"{claim.id}:0"
        assert request.run_config == {"ops": {"cronless__digest": {"config": {"claim_id": str(claim.id)}}}}
        assert (
            request.tags.items()
            >= {
                "cronless/claim": str(claim.id),
                "cronless/dispatch": "0",
                "cronless/job_type": "digest",
                "dagster/priority": "7",
                "dagster/max_runtime": "300",
                "team": "mail",
            }.items()
        )
        assert "honey" not in str(request)

    def test_dagster_never_retries_a_run_by_itself(
        self, engine: Engine, pg_url: str, instance: dg.DagsterInstance
    ) -> None:
        """Retries live in the rows, whatever a job type's own tags say; a run made by hand has the tag too."""
        location = Location(types_of("digest", tags={"dagster/max_retries": "3"}), pg_url, instance)
        job = location.definitions.resolve_job_def("cronless_digest")
        assert job.run_tags["dagster/max_retries"] == "0"
        add_due(engine, "digest", 1)
        [request] = location.tick().run_requests
        assert request.tags["dagster/max_retries"] == "0"

    def test_at_most_twenty_runs_a_tick(
        self, engine: Engine, pg_url: str, instance: dg.DagsterInstance
    ) -> None:
        """Dagster makes runs slowly; the rest is left to the next tick, and the log says so."""
        types = types_of("digest", batch_size=1, claims_per_tick=100, limits=NO_LIMIT)
        location = Location(types, pg_url, instance)
        ids = add_due(engine, "digest", 25)
        first = location.tick().run_requests
        assert len(first) == 20
        for request in first:
            location.add_run(request)
        second = location.tick().run_requests
        assert len(second) == 5
        for request in [*first, *second]:
            hold_and_run(engine, types, location.add_run(request))
        assert_all_done_once(engine, ids)

    def test_a_request_is_repeated_until_its_run_exists(
        self, engine: Engine, pg_url: str, instance: dg.DagsterInstance
    ) -> None:
        """An answer that got lost is given again under the same run key; Dagster makes one run of it."""
        location = Location(types_of("digest"), pg_url, instance)
        add_due(engine, "digest", 3)
        [lost] = location.tick().run_requests
        [again] = location.tick().run_requests
        assert again.run_key == lost.run_key
        location.add_run(again)
        assert location.tick().run_requests == []
        [claim] = claims(engine)
        assert claim.state == "SUBMITTED"

    def test_a_run_that_never_was_queued_is_asked_for_again(
        self, engine: Engine, pg_url: str, instance: dg.DagsterInstance
    ) -> None:
        """A daemon that died in between leaves a run that nobody starts; the same key makes Dagster go on with it."""
        location = Location(types_of("digest"), pg_url, instance)
        add_due(engine, "digest", 1)
        [request] = location.tick().run_requests
        location.add_run(request, dg.DagsterRunStatus.NOT_STARTED)
        [again] = location.tick().run_requests
        assert again.run_key == request.run_key


class TestWhatIsSaid:
    """A person looks at the ticks in the UI."""

    def test_nothing_due_is_a_skip_with_its_reason(self, pg_url: str, instance: dg.DagsterInstance) -> None:
        """The tick is no failure, and says why nothing happened."""
        location = Location(types_of("digest"), pg_url, instance)
        assert location.tick().skip_message == "nothing is due"

    def test_an_empty_tick_writes_no_log(self, pg_url: str, instance: dg.DagsterInstance) -> None:
        """A tick's log is a file for ever, and there are half a million ticks a year."""
        location = Location(types_of("digest"), pg_url, instance)
        with dg.build_sensor_context(
            definitions=location.definitions, instance=instance, resources=location.definitions.resources
        ) as context:
            location.definitions.resolve_sensor_def("cronless_tick").evaluate_tick(context)
            assert context._logger is None

    def test_what_a_tick_did_is_its_skip_reason(
        self, engine: Engine, pg_url: str, instance: dg.DagsterInstance
    ) -> None:
        """Planning is work too, though no run comes of it."""
        location = Location(types_of("digest"), pg_url, instance)
        add_due(engine, "digest", 3, late=timedelta(days=-1))
        with engine.begin() as connection:
            connection.execute(text("UPDATE cronless.scheduled_job SET next_run_at = NULL"))
        assert location.tick().skip_message == "planned 3"

    def test_a_database_that_is_down_fails_the_tick_in_one_sentence(
        self, tmp_path: object, instance: dg.DagsterInstance
    ) -> None:
        """The sentence comes first, without a password, and says what to do."""
        url = f"postgresql://postgres:honey@/none?host={tmp_path}"
        with pytest.raises(TickFailed) as failure:
            Location(types_of("digest"), url, instance).tick()
        message = str(failure.value)
        assert "can't be reached" in message
        assert "correct CRONLESS_DATABASE_URL" in message
        assert "honey" not in message
        assert "\n" not in message

    def test_a_database_without_our_schema_fails_the_tick_in_one_sentence(
        self, empty_pg_url: str, instance: dg.DagsterInstance
    ) -> None:
        """The sentence names the command that mends it."""
        with pytest.raises(TickFailed, match="cronless db upgrade"):
            Location(types_of("digest"), empty_pg_url, instance).tick()

    def test_a_step_that_failed_turns_the_tick_red_unless_runs_are_asked_for(
        self, engine: Engine, pg_url: str, instance: dg.DagsterInstance
    ) -> None:
        """A green tick that could not claim would hide it; one that hands over must not lose its answer."""
        location = Location(types_of("digest", "renewal"), pg_url, instance)
        add_due(engine, "digest", 1)
        with engine.begin() as connection:
            connection.execute(
                text(
                    "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS"
                    " $$ BEGIN RAISE EXCEPTION 'no'; END $$;"
                    " CREATE TRIGGER refuse BEFORE INSERT ON cronless.job_claim FOR EACH ROW"
                    " WHEN (NEW.job_type = 'digest') EXECUTE FUNCTION public.refuse()"
                )
            )
        with pytest.raises(TickFailed, match="error: digest"):
            location.tick()
        add_due(engine, "renewal", 1)
        [request] = location.tick().run_requests
        assert request.job_name == "cronless_renewal"


class TestQueueRoute:
    """Job types of the queue route become messages, and runs only where there is no broker."""

    TYPES = JobTypes(
        (
            JobType(name="digest", handler=do_nothing),
            JobType(name="refresh", handler=do_nothing, route="queue"),
        )
    )

    def test_jobs_are_published_and_no_run_is_asked_for(
        self, engine: Engine, pg_url: str, instance: dg.DagsterInstance, broker: Broker
    ) -> None:
        """Each due job is one message, and the tick says how the queue stands."""
        location = Location(self.TYPES, pg_url, instance, rabbitmq=resource_of(broker))
        ids = add_due(engine, "refresh", 5)
        tick = location.tick()
        assert tick.run_requests == []
        assert tick.skip_message == (
            "claimed 5 jobs (refresh 5); published 5 messages; refresh queue: 0 waiting, 0 consumers"
        )
        [claim] = claims(engine)
        assert (claim.route, claim.state) == ("queue", "SUBMITTED")
        assert location.tick().skip_message == "refresh queue: 5 waiting, 0 consumers"
        assert drain(broker, "refresh") == dict.fromkeys(ids, 1)
        assert location.tick().skip_message == "nothing is due"

    def test_both_routes_in_one_tick(
        self, engine: Engine, pg_url: str, instance: dg.DagsterInstance, broker: Broker
    ) -> None:
        """A tick publishes and asks for runs."""
        location = Location(self.TYPES, pg_url, instance, rabbitmq=resource_of(broker))
        add_due(engine, "digest", 3)
        published = add_due(engine, "refresh", 2)
        [request] = location.tick().run_requests
        assert request.job_name == "cronless_digest"
        assert drain(broker, "refresh") == dict.fromkeys(published, 1)

    def test_without_a_broker_it_is_a_run(
        self, engine: Engine, pg_url: str, instance: dg.DagsterInstance
    ) -> None:
        """The same code serves a laptop that has no broker."""
        location = Location(self.TYPES, pg_url, instance)
        ids = add_due(engine, "refresh", 2)
        [request] = location.tick().run_requests
        assert request.job_name == "cronless_refresh"
        location.execute(request)
        assert_all_done_once(engine, ids)

    def test_a_broker_that_is_away_keeps_nobody_from_their_run(
        self, engine: Engine, pg_url: str, instance: dg.DagsterInstance, broker: Broker
    ) -> None:
        """Runs are asked for all the same; else the tick is red in one sentence, and the jobs wait for the broker."""
        away = RabbitMQResource(url="amqp://app:honey@127.0.0.1:1/%2F")
        location = Location(self.TYPES, pg_url, instance, rabbitmq=away)
        add_due(engine, "digest", 1)
        waiting = add_due(engine, "refresh", 2)
        [request] = location.tick().run_requests
        assert request.job_name == "cronless_digest"
        location.add_run(request)
        with pytest.raises(TickFailed) as failure:
            location.tick()
        message = str(failure.value)
        assert "error: broker: RabbitMQ at amqp://127.0.0.1:1/%2F can't be used at the moment" in message
        assert "honey" not in message
        assert "\n" not in message
        assert {row.status for row in job_rows(engine) if row.id in waiting} == {"PENDING"}
        back = Location(self.TYPES, pg_url, instance, rabbitmq=resource_of(broker))
        assert "published 2 messages" in (back.tick().skip_message or "")
        assert drain(broker, "refresh") == dict.fromkeys(waiting, 1)


class TestManyOpenClaims:
    """Claims that get nowhere never keep others from being handed over."""

    def test_200_open_claims_leave_room_for_new_ones(
        self, engine: Engine, pg_url: str, instance: dg.DagsterInstance
    ) -> None:
        """Two hundred runs wait, and what becomes due now is asked for now."""
        types = types_of("bulk", "digest", batch_size=1, claims_per_tick=100, limits=NO_LIMIT)
        location = Location(types, pg_url, instance)
        add_due(engine, "bulk", 200)
        for _ in range(10):
            for request in location.tick().run_requests:
                location.add_run(request)
        assert len(claims(engine)) == 200
        [fresh] = add_due(engine, "digest", 1, late=timedelta(seconds=1))
        requests = location.tick().run_requests
        assert [request.job_name for request in requests] == ["cronless_digest"]
        [row] = [row for row in job_rows(engine) if row.id == fresh]
        assert row.claim_id == claim_of(requests[0])

    def test_200_claims_whose_answers_were_lost_leave_room_for_new_ones(
        self, engine: Engine, pg_url: str, instance: dg.DagsterInstance
    ) -> None:
        """New claims go first; then the one that waited longest, so that each gets its turn."""
        types = types_of("bulk", "digest", batch_size=1, claims_per_tick=100, limits=NO_LIMIT)
        location = Location(types, pg_url, instance)
        add_due(engine, "bulk", 200)
        handed = {claim_of(request) for _ in range(10) for request in location.tick().run_requests}
        assert len(handed) == 200
        add_due(engine, "digest", 1, late=timedelta(seconds=1))
        requests = location.tick().run_requests
        assert len(requests) == 20
        assert requests[0].job_name == "cronless_digest"
        again = {claim_of(request) for _ in range(10) for request in location.tick().run_requests}
        assert len(again | {claim_of(request) for request in requests}) == 201

    def test_a_claim_whose_runs_keep_dying_starves_nobody(
        self, engine: Engine, pg_url: str, instance: dg.DagsterInstance
    ) -> None:
        """Its hand-overs come further and further apart, under a new run key each."""
        location = Location(types_of("broken", "digest"), pg_url, instance)
        add_due(engine, "broken", 5)
        requests = location.tick().run_requests
        keys = {request.run_key for request in requests}
        asked = 0
        for number in range(30):
            for one in requests:
                location.add_run(
                    one,
                    dg.DagsterRunStatus.FAILURE
                    if one.job_name == "cronless_broken"
                    else dg.DagsterRunStatus.STARTING,
                )
            ids = add_due(engine, "digest", 1, late=timedelta(seconds=1)) if number in (5, 20) else []
            # A minute passes between two ticks.
            with engine.begin() as connection:
                connection.execute(
                    text(
                        "UPDATE cronless.job_claim SET handed_over_at = handed_over_at - interval '1 minute'"
                    )
                )
            requests = location.tick().run_requests
            if ids:
                assert "cronless_digest" in [one.job_name for one in requests]
            for one in requests:
                if one.job_name == "cronless_broken":
                    asked += 1
                    assert one.run_key not in keys
                    keys.add(one.run_key)
        assert 3 <= asked <= 8
        assert [row.attempt for row in job_rows(engine) if row.job_type == "broken"] == [0] * 5
        assert outcomes(engine) == {}


class TestShards:
    """Several sensors cut the id space among themselves."""

    def test_shards_claim_everything_once(
        self, engine: Engine, pg_url: str, instance: dg.DagsterInstance
    ) -> None:
        """Four sensors take all jobs, none of them twice."""
        types = types_of("digest", limits=NO_LIMIT)
        location = Location(types, pg_url, instance, shards=4)
        ids = add_due(engine, "digest", 100)
        requests = [
            request
            for part in range(4)
            for request in location.tick(f"cronless_tick_{part}_of_4").run_requests
        ]
        assert len(requests) == 4
        for request in requests:
            hold_and_run(engine, types, location.add_run(request))
        assert_all_done_once(engine, ids)

    def test_a_claim_survives_resharding(
        self, engine: Engine, pg_url: str, instance: dg.DagsterInstance
    ) -> None:
        """What one of two sensors claimed and never handed over, one of three hands over: exactly one."""
        types = types_of("digest", limits=NO_LIMIT)
        add_due(engine, "digest", 60)
        before = Location(types, pg_url, instance, shards=2)
        lost = {
            claim_of(request)
            for part in range(2)
            for request in before.tick(f"cronless_tick_{part}_of_2").run_requests
        }
        now = Location(types, pg_url, instance, shards=3)
        again = [
            claim_of(request)
            for part in range(3)
            for request in now.tick(f"cronless_tick_{part}_of_3").run_requests
        ]
        assert sorted(again) == sorted(lost)

    def test_one_shard_keeps_the_plain_name(self) -> None:
        """Most have one sensor, and its name says what it is."""
        types = types_of("digest")
        assert [sensor.name for sensor in build_tick_sensors(types)] == ["cronless_tick"]
        assert len({sensor.name for sensor in build_tick_sensors(types, shards=3)}) == 3

    def test_a_part_that_is_none_is_refused(self) -> None:
        """A typing error in a shard's number would leave jobs unserved for ever."""
        with pytest.raises(ValueError, match="3"):
            build_tick_sensor(types_of("digest"), shard=(3, 3))


def test_a_sensor_is_on_by_default() -> None:
    """A scheduler that has to be turned on would be forgotten after a deployment."""
    sensor = build_tick_sensor(types_of("digest"))
    assert sensor.default_status == dg.DefaultSensorStatus.RUNNING
    assert sensor.minimum_interval_seconds == 60


def test_another_dagsters_claims_are_left_alone(
    engine: Engine, pg_url: str, instance: dg.DagsterInstance
) -> None:
    """Two Dagsters on one database, with different job types, don't see each other's runs."""
    mine = Location(types_of("digest"), pg_url, instance)
    add_due(engine, "digest", 3)
    [request] = mine.tick().run_requests
    mine.add_run(request)
    mine.tick()
    with dg.DagsterInstance.ephemeral() as elsewhere:
        other = Location(types_of("renewal"), pg_url, elsewhere)
        assert other.tick().skip_message == "nothing is due"
    [claim] = claims(engine)
    assert (claim.state, claim.dispatches) == ("SUBMITTED", 0)


def test_what_dagster_would_refuse_is_refused_when_the_code_is_loaded() -> None:
    """One type's unusable tag, found at a tick, would keep all other types from their runs."""
    types = JobTypes((JobType(name="digest", handler=do_nothing, tags={"team": object()}),))  # type: ignore[dict-item]
    with pytest.raises(dg.DagsterError, match="team"):
        build_tick_sensor(types)
