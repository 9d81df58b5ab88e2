"""`cronless status` and `replan`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pika
from sqlalchemy import text

from cronless_dagster.rabbitmq.topology import dead_letter_exchange, queue_name

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest
    from sqlalchemy import Engine

    from cronless_dagster.rabbitmq.address import Broker
    from tests.cli.conftest import Ran

NUMBERS = ("due", "queued", "running", "stuck", "late", "unclaimable", "invalid", "paused", "unplanned")


def test_an_empty_database(run: Callable[..., Ran]) -> None:
    """Nothing is due, no tick has been, and that is no error."""
    ran = run("status")
    assert ran.status == 0
    assert "nothing is due" in ran.stdout
    assert "none yet" in ran.stdout
    told = run("status", "--json").json
    assert told["types"] == []
    assert told["totals"] == dict.fromkeys(NUMBERS, 0)
    assert (told["oldest_due_at"], told["last_tick"]) == (None, None)


def test_counts_for_people_and_machines(
    run: Callable[..., Ran], add: Callable[..., str], virtual_engine: Engine
) -> None:
    """Each job is counted where it stands; the table fits in 80 columns."""
    run("tick", "--now", "2026-03-02T12:00:00Z")
    add("--next-run-at", "2026-03-02T11:00Z", name="late")
    add("--next-run-at", "2026-03-02T11:59Z", name="due")
    add("--next-run-at", "2026-03-02T11:58Z", "--undeclared", job_type="unknown_one")
    add(name="unplanned")
    run("pause", add(name="paused"))
    told = run("status", "--json").json
    by_type = {one["job_type"]: one for one in told["types"]}
    assert set(by_type) == {"digest", "refresh", "unknown_one"}
    digest = {name: by_type["digest"][name] for name in NUMBERS if by_type["digest"][name]}
    assert digest == {"due": 2, "late": 1, "paused": 1, "unplanned": 1}
    unknown = {name: by_type["unknown_one"][name] for name in NUMBERS if by_type["unknown_one"][name]}
    assert unknown == {"due": 1, "unclaimable": 1}
    assert told["totals"]["due"] == 3
    assert told["oldest_due_at"] == "2026-03-02T11:00:00Z"
    assert told["last_tick"]["at"] == "2026-03-02T12:00:00Z"
    out = run("status").stdout
    assert all(len(line) <= 80 for line in out.splitlines())
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line}
    assert rows["digest"] == ["2", "0", "0", "0", "1", "0", "0", "1", "1"]
    assert rows["all"] == ["3", "0", "0", "0", "1", "1", "0", "1", "1"]
    assert "2026-03-02 11:00Z, 1 h ago" in out


class TestQueues:
    """How the queues stand, beside the table's own view."""

    def test_depths_for_people_and_machines(
        self, run: Callable[..., Ran], queued: Broker, add: Callable[..., str]
    ) -> None:
        """What waits in a queue is queued in the table too; dead letters are told where there are any."""
        for name in ("one", "two"):
            add("--next-run-at", "2026-01-01T00:00Z", job_type="mail", name=name)
        run("tick")
        out = run("status").stdout
        assert all(len(line) <= 80 for line in out.splitlines())
        lines = [line.split() for line in out.splitlines()]
        assert ["queue", "waiting", "consumers"] in lines
        assert ["mail", "2", "0"] in lines
        assert ["mail", "0", "2", "0", "0", "0", "0", "0", "0", "0"] in lines
        assert "dead letters" not in out
        _bury(queued)
        assert ["dead", "letters", "1"] in [line.split() for line in run("status").stdout.splitlines()]
        told = run("status", "--json").json
        assert told["queues"] == {
            "mail": {"messages": 2, "consumers": 0},
            "dead": {"messages": 1, "consumers": 0},
        }
        assert told["broker_error"] is None

    def test_a_queue_that_is_not_there(self, run: Callable[..., Ran], queued: Broker) -> None:
        """Somebody deleted it; the next tick makes it anew."""
        run("tick")
        connection = pika.BlockingConnection(queued.parameters())
        connection.channel().queue_delete(queue_name(queued.prefix, "mail"))
        connection.close()
        assert "mail not there yet" in " ".join(run("status").stdout.split())
        assert "mail" not in run("status", "--json").json["queues"]

    def test_a_broker_that_is_away_hides_nothing_else(
        self, run: Callable[..., Ran], queued: Broker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The table's view is there all the same, and the reason without a password."""
        run("tick")
        monkeypatch.setenv("CRONLESS_BROKER_URL", "amqp://app:honey@127.0.0.1:1/%2F")
        ran = run("status")
        assert ran.status == 0
        assert "RabbitMQ at amqp://127.0.0.1:1/%2F can't be used at the moment" in " ".join(
            ran.stdout.split()
        )
        assert "nothing is due" in ran.stdout
        assert all(len(line) <= 80 for line in ran.stdout.splitlines())
        told = run("status", "--json").json
        assert told["queues"] is None
        assert "can't be used" in told["broker_error"]
        assert "honey" not in f"{ran}{told}"

    def test_without_a_broker_no_queue_is_spoken_of(self, run: Callable[..., Ran]) -> None:
        """Most have none."""
        run("tick", "--job-types", "tests.cli.queued")
        assert "queue " not in run("status").stdout
        told = run("status", "--json").json
        assert (told["queues"], told["broker_error"]) == (None, None)


def _bury(broker: Broker) -> None:
    connection = pika.BlockingConnection(broker.parameters())
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish(dead_letter_exchange(broker.prefix), "", b"no job", mandatory=True)
    connection.close()


class TestReplan:
    """`cronless replan`."""

    def test_rows_changed_behind_the_triggers(
        self, run: Callable[..., Ran], add: Callable[..., str], virtual_engine: Engine
    ) -> None:
        """With triggers off an edit leaves the old instant, and a replan mends it; what is due stays due."""
        ids = [add(name=name, tenant=name) for name in ("a", "b")]
        due = add("--next-run-at", "2026-03-02T11:00Z", name="due")
        run("replan")
        with virtual_engine.begin() as connection:
            connection.execute(text("SET LOCAL session_replication_role = 'replica'"))
            connection.execute(
                text("UPDATE cronless.scheduled_job SET schedule = '0 15 * * *' WHERE tenant_id <> 'acme'")
            )
        assert _next(run, ids[0]) == "2026-03-03T09:00:00Z"
        assert run("replan", "--tenant", "a", "--json").json == {"replanned": 1, "planned": 1, "invalid": 0}
        assert _next(run, ids[0]) == "2026-03-02T15:00:00Z"
        assert _next(run, ids[1]) == "2026-03-03T09:00:00Z"
        assert run("replan", "--type", "nothing", "--json").json["replanned"] == 0
        assert run("replan", "--type", "digest").stdout == "2 instants dropped; 2 jobs planned.\n"
        assert _next(run, ids[1]) == "2026-03-02T15:00:00Z"
        assert _next(run, due) == "2026-03-02T11:00:00Z"

    def test_unusable_rows_are_counted(self, run: Callable[..., Ran], engine: Engine) -> None:
        """A bulk load may hold what can't be planned; the rest is planned."""
        with engine.begin() as connection:
            connection.execute(
                text(
                    "INSERT INTO cronless.scheduled_job (tenant_id, job_type, name, schedule)"
                    " VALUES ('t', 'digest', 'good', '@daily'), ('t', 'digest', 'bad', 'each morning')"
                )
            )
        ran = run("replan")
        assert "; 1 job planned, 1 found unusable" in ran.stdout


def _next(run: Callable[..., Ran], job_id: str) -> object:
    return run("show", job_id, "--json").json["job"]["next_run_at"]
