from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from cronless_dagster.checks import dispatching
from cronless_dagster.checks.declaring import Answer
from cronless_dagster.checks.dispatching import dispatch, rescue
from cronless_dagster.engine.tick import note_key
from cronless_dagster.scheduling.shards import IdRange, from_prefix, shard
from cronless_dagster.store.errors import ClockError
from tests.checks.support import asked
from tests.engine.queues import FakeBroker
from tests.engine.support import NOON, add, add_many, after, nothing, sql, types_of
from tests.outside.support import FakeLauncher

if TYPE_CHECKING:
    from sqlalchemy import Engine

QUEUED = types_of(nothing, "work", route="queue")


def quiet(engine: Engine, **values: Any) -> None:
    """Let a tick be noted, so that only what is to be done makes another one."""
    dispatch(asked(engine, **values))


def ticks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note each tick that is made."""
    made: list[str] = []
    before = dispatching.tick

    def tick(*arguments: Any, **options: Any) -> Any:
        made.append(options["part"])
        return before(*arguments, **options)

    monkeypatch.setattr(dispatching, "tick", tick)
    return made


class TestDispatch:
    """What is due, once."""

    def test_what_is_due_is_published_once(self, virtual_engine: Engine) -> None:
        """Planned by the first call of a minute, done by one of the next; all others find nothing."""
        add_many(virtual_engine, 5)
        broker = FakeBroker()
        call = {"queue": broker, "job_types": QUEUED}
        assert dispatch(asked(virtual_engine, **call)).counts == {"planned": 5}
        done = dispatch(asked(virtual_engine, now=after(minutes=1), **call))
        assert (done.acted, done.counts, done.now) == (10, {"claimed": 5, "published": 5}, after(minutes=1))
        assert dispatch(asked(virtual_engine, now=after(minutes=1), **call)) == Answer(now=after(minutes=1))
        assert len(broker.sent) == 5

    def test_without_dagster_the_run_route_is_left_alone(
        self, virtual_engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its due rows make no call a tick: there is nothing that this node could do."""
        add_many(virtual_engine, 3)
        for minutes in (0, 1):
            quiet(virtual_engine, now=after(minutes=minutes))
        made = ticks(monkeypatch)
        assert dispatch(asked(virtual_engine, now=after(minutes=1))).acted == 0
        assert made == []
        assert sql(virtual_engine, "SELECT count(*) FROM cronless.job_claim")[0][0] == 0
        launched = dispatch(asked(virtual_engine, now=after(minutes=1), launcher=FakeLauncher()))
        assert launched.counts == {"claimed": 3, "launched": 1}

    @pytest.mark.parametrize("why", ["unplanned", "reported", "unsent", "due", "triggered"])
    def test_each_reason_by_itself(
        self, virtual_engine: Engine, monkeypatch: pytest.MonkeyPatch, why: str
    ) -> None:
        """Within the part of the id space that is asked for; the other half finds nothing."""
        job = add(virtual_engine, "0 0 1 1 *")
        mine, other = (shard(n, 2) for n in ((0, 1) if shard(0, 2).contains(job) else (1, 0)))
        for ids in (mine, other):
            quiet(virtual_engine, ids=ids)
        change = {
            "unplanned": "UPDATE cronless.scheduled_job SET next_run_at = NULL",
            "reported": 'UPDATE cronless.scheduled_job SET report = \'{"outcome": "success"}\'',
            "unsent": "INSERT INTO cronless.job_claim (id, job_type, route, id_low, job_count, lease_seconds,"
            " lease_expires_at, created_at) SELECT gen_random_uuid(), 'work', 'run', id, 1, 60, :now, :now"
            " FROM cronless.scheduled_job",
            "due": "UPDATE cronless.scheduled_job SET next_run_at = :now",
            "triggered": "UPDATE cronless.scheduled_job SET trigger_requested_at = :now",
        }[why]
        sql(virtual_engine, change, **({"now": NOON} if ":now" in change else {}))
        made = ticks(monkeypatch)
        dispatch(asked(virtual_engine, ids=other, launcher=FakeLauncher()))
        assert made == []
        dispatch(asked(virtual_engine, ids=mine, launcher=FakeLauncher()))
        assert made == ["all"]

    def test_a_hand_over_that_is_under_way_is_left_to_whoever_is_at_it(
        self, virtual_engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A claim that somebody took a moment ago makes no call a tick."""
        sql(
            virtual_engine,
            "INSERT INTO cronless.job_claim (id, job_type, route, id_low, job_count, lease_seconds, lease_expires_at,"
            " created_at, handed_over_at) VALUES (gen_random_uuid(), 'work', 'run', :low, 1, 600, :later, :now, :now)",
            low=IdRange(*(from_prefix("8").low,) * 2).low,
            later=after(minutes=10),
            now=NOON,
        )
        quiet(virtual_engine)
        made = ticks(monkeypatch)
        dispatch(asked(virtual_engine, now=after(seconds=20), launcher=FakeLauncher()))
        assert made == []
        dispatch(asked(virtual_engine, now=after(seconds=40), launcher=FakeLauncher()))
        assert made == ["all"]

    def test_a_whole_tick_now_and_then(self, virtual_engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        """With nothing due too, for each part that is served again and again; never for a single id."""
        made = ticks(monkeypatch)
        for seconds in (0, 0, 10, 49, 51, 60, 110, 599, 600, 601, 655):
            dispatch(asked(virtual_engine, ids=from_prefix("b"), now=after(seconds=seconds)))
        assert len(made) == 2
        for _ in range(3):
            dispatch(asked(virtual_engine, ids=from_prefix("b7a3c1d2")))
        assert len(made) == 2
        [noted] = sql(virtual_engine, "SELECT key, value FROM cronless.progress WHERE key LIKE 'tick:%'")
        assert noted.key == note_key(from_prefix("b"))
        assert noted.value["at"] == after(seconds=655).isoformat()

    def test_an_instant_is_refused_on_real_time(self, engine: Engine) -> None:
        """As everywhere: a typing error fires no year of jobs."""
        for check in (dispatch, rescue):
            with pytest.raises(ClockError, match="real time"):
                check(asked(engine))
        assert dispatch(asked(engine, now=None)).now is not None


class TestRescue:
    """What is in flight, mended once a minute."""

    def claimed(self, engine: Engine) -> FakeLauncher:
        """Let a job be claimed and its run be lost."""
        add(engine)
        launcher = FakeLauncher()
        dispatch(asked(engine, launcher=launcher))
        dispatch(asked(engine, now=after(minutes=1), launcher=launcher))
        assert len(launcher.launched) == 1
        launcher.runs.clear()
        return launcher

    def test_nothing_is_open(self, virtual_engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        """Then no tick is made, and none is noted."""
        made = ticks(monkeypatch)
        assert rescue(asked(virtual_engine)) == Answer(now=NOON)
        assert made == []

    def test_a_lost_run_is_made_anew(self, virtual_engine: Engine) -> None:
        """Seen by one call; launched by a later one, once the first may be tried again."""
        launcher = self.claimed(virtual_engine)
        first = rescue(asked(virtual_engine, now=after(minutes=2), launcher=launcher))
        assert first.counts == {"again": 1}
        assert rescue(asked(virtual_engine, now=after(minutes=4), launcher=launcher)).counts == {
            "launched": 1
        }
        assert [one.dispatch for one in launcher.launched] == [0, 1]

    def test_once_a_minute_for_a_part(self, virtual_engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        """However many call at once."""
        launcher = self.claimed(virtual_engine)
        made = ticks(monkeypatch)
        with ThreadPoolExecutor(4) as pool:
            call = asked(virtual_engine, now=after(minutes=2), launcher=launcher)
            list(pool.map(rescue, [call] * 8))
        assert made == ["rescue"]
        rescue(asked(virtual_engine, now=after(minutes=3), launcher=launcher))
        assert made == ["rescue"] * 2
