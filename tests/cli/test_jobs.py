"""Adding, listing, showing and changing jobs from the command line."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sqlalchemy import Engine

    from tests.cli.conftest import Ran

ALL_OPTIONS = (
    *("--payload", '{"city": "Łódź"}', "--timezone", "Europe/Berlin", "--dst-policy", "wall"),
    *("--misfire-policy", "skip", "--misfire-grace", "5m", "--jitter", "1h30m"),
    *("--starts-at", "2026-12-01T09:00", "--ends-at", "2027-12-01T09:00Z"),
    *("--max-attempts", "5", "--retry-delay", "30s", "--retry-max-delay", "2h", "--pause-after", "4"),
    *("--next-run-at", "2027-01-01T00:00+02:00"),
)


def stored(engine: Engine, job_id: str) -> dict[str, object]:
    """Return a job's row."""
    with engine.connect() as connection:
        row = connection.execute(
            text("SELECT * FROM cronless.scheduled_job WHERE id = :id"), {"id": UUID(job_id)}
        )
        return dict(row.mappings().one())


def claim(engine: Engine, job_id: str) -> None:
    """Claim a job as a dispatcher would."""
    with engine.begin() as connection:
        connection.execute(
            text(
                "UPDATE cronless.scheduled_job SET status = 'QUEUED', claim_id = gen_random_uuid(),"
                " serving_at = now(), due_at = now(), next_run_at = NULL, plan_count = plan_count + 1"
                " WHERE id = :id"
            ),
            {"id": UUID(job_id)},
        )


class TestAdd:
    """`cronless add`."""

    def test_every_option_reaches_its_column(self, add: Callable[..., str], engine: Engine) -> None:
        """Durations become seconds; an instant without offset is a local time of the job's zone."""
        row = stored(engine, add(*ALL_OPTIONS, name="x", schedule="0 9 * * MON"))
        expected = {
            "tenant_id": "acme",
            "job_type": "digest",
            "name": "x",
            "schedule": "0 9 * * MON",
            "payload": {"city": "Łódź"},
            "timezone": "Europe/Berlin",
            "dst_policy": "wall",
            "misfire_policy": "skip",
            "misfire_grace_seconds": 300,
            "jitter_seconds": 5_400,
            "starts_at": datetime(2026, 12, 1, 8, tzinfo=UTC),
            "ends_at": datetime(2027, 12, 1, 9, tzinfo=UTC),
            "max_attempts": 5,
            "retry_delay_seconds": 30,
            "retry_max_delay_seconds": 7_200,
            "pause_after": 4,
            "next_run_at": datetime(2026, 12, 31, 22, tzinfo=UTC),
            "status": "PENDING",
        }
        assert {key: row[key] for key in expected} == expected

    @pytest.mark.usefixtures("virtual_engine")
    def test_it_says_when_the_job_will_run(self, run: Callable[..., Ran]) -> None:
        """The next tick plans it; what that will come to is said at once, in its zone and in UTC."""
        ran = run(
            *("add", "--tenant", "acme", "--type", "digest", "--name", "d"),
            *("--schedule", "0 9 * * *", "--timezone", "Asia/Tokyo"),
        )
        assert ran.status == 0
        first, second = ran.stdout.splitlines()
        assert first.startswith("Added acme/digest/d (")
        assert second == (
            "It runs next on Tue 2026-03-03 09:00 +09:00 (Asia/Tokyo), 2026-03-03 00:00Z, in 12 h."
        )

    def test_what_is_odd_is_a_warning_and_no_refusal(self, run: Callable[..., Ran]) -> None:
        """Warnings go to stderr for people, into the JSON for machines."""
        options = ("add", "--tenant", "acme", "--type", "digest", "--schedule", "*/7 * * * *")
        ran = run(*options)
        assert ran.status == 0
        assert ran.stderr.startswith("Warning: The step in the minute field")
        ran = run(*options, "--name", "again", "--json")
        assert len(ran.json["warnings"]) == 1
        assert ran.stderr == ""

    def test_json_holds_the_whole_job(self, run: Callable[..., Ran], add: Callable[..., str]) -> None:
        """Keys are the columns, so they are as stable as these; instants are in UTC with Z."""
        job = run("show", add("--starts-at", "2026-12-01T09:00Z"), "--json").json["job"]
        assert list(job)[:7] == ["id", "tenant_id", "job_type", "name", "status", "schedule", "timezone"]
        assert job["starts_at"] == "2026-12-01T09:00:00Z"
        assert job["payload"] == {}

    @pytest.mark.parametrize("way", ["file", "stdin"])
    def test_a_payload_from_elsewhere(
        self, run: Callable[..., Ran], engine: Engine, tmp_path: Path, way: str
    ) -> None:
        """`@file` and `-` are read as UTF-8, with or without a byte order mark."""
        raw = b"\xef\xbb\xbf" + json.dumps({"ä": [1, None]}, ensure_ascii=False).encode()
        file = tmp_path / "payload.json"
        file.write_bytes(raw)
        payload, stdin = (f"@{file}", None) if way == "file" else ("-", raw)
        ran = run(
            *("add", "--tenant", "t", "--type", "digest", "--schedule", "@daily", "--json"),
            *("--payload", payload),
            stdin=stdin,
        )
        assert stored(engine, ran.json["job"]["id"])["payload"] == {"ä": [1, None]}

    def test_an_undeclared_type_is_refused_unless_it_is_meant(
        self, run: Callable[..., Ran], engine: Engine
    ) -> None:
        """A misspelt type would wait for ever; one whose code comes later has to be said."""
        options = ("add", "--tenant", "t", "--type", "digset", "--schedule", "@daily")
        sentence = run(*options).refused()
        assert "'digset'" in sentence
        assert "digest, refresh" in sentence
        with engine.connect() as connection:
            assert connection.execute(text("SELECT count(*) FROM cronless.scheduled_job")).scalar() == 0
        assert run(*options, "--undeclared").status == 0

    def test_a_type_that_a_tick_has_declared_needs_no_code_here(
        self, run: Callable[..., Ran], engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whoever adds a job need not have the code that runs it."""
        with engine.begin() as connection:
            connection.execute(
                text(
                    "INSERT INTO cronless.job_type (name, route, batch_size, seen_at)"
                    " VALUES ('elsewhere', 'run', 10, now())"
                )
            )
        monkeypatch.setenv("CRONLESS_JOB_TYPES", "no.such.module")
        options = ("add", "--tenant", "t", "--schedule", "@daily", "--type")
        assert run(*options, "elsewhere").status == 0
        assert "no.such.module" in run(*options, "nowhere").refused()

    def test_a_name_that_is_taken(self, run: Callable[..., Ran], add: Callable[..., str]) -> None:
        """The second of the same name is refused, and the first stays as it was."""
        job_id = add(name="daily")
        sentence = run(
            *("add", "--tenant", "acme", "--type", "digest", "--name", "daily", "--schedule", "@hourly")
        ).refused()
        assert "already has" in sentence
        assert run("show", job_id, "--json").json["job"]["schedule"] == "0 9 * * *"


class TestNames:
    """How a job is named."""

    @pytest.mark.parametrize("name", ["", "daily", "a/b", "ünïcode", "x" * 500, "-", "None", "%s :id {} '\""])
    def test_by_tenant_type_and_name(
        self, run: Callable[..., Ran], add: Callable[..., str], name: str
    ) -> None:
        """What stands behind the second slash is the name, whatever it holds."""
        job_id = add(name=name)
        assert run("show", f"acme/digest/{name}", "--json").json["job"]["id"] == job_id

    def test_by_id(self, run: Callable[..., Ran], add: Callable[..., str]) -> None:
        """Upper case and missing dashes don't matter, as in PostgreSQL."""
        job_id = add()
        for written in (job_id, job_id.upper(), job_id.replace("-", "")):
            assert run("show", written, "--json").json["job"]["id"] == job_id

    def test_unknown_jobs(self, run: Callable[..., Ran]) -> None:
        """The sentence says which job there isn't."""
        nowhere = str(uuid4())
        assert nowhere in run("show", nowhere).refused()
        assert "'b'" in run("show", "a/b/c").refused()
        assert "names no job" in run("show", "abc").refused()


class TestList:
    """`cronless list`."""

    def test_filters(self, run: Callable[..., Ran], add: Callable[..., str]) -> None:
        """Tenant, type and state each leave the others out, and can be combined."""
        ids = {
            "a": add(tenant="a"),
            "b": add(tenant="b"),
            "refresh": add(tenant="a", job_type="refresh"),
            "paused": add(tenant="c"),
        }
        run("pause", ids["paused"])

        def listed(*options: str) -> set[str]:
            found = {job["id"] for job in run("list", *options, "--json").json["jobs"]}
            return {name for name, job_id in ids.items() if job_id in found}

        assert listed() == set(ids)
        assert listed("--tenant", "a") == {"a", "refresh"}
        assert listed("--type", "refresh") == {"refresh"}
        assert listed("--tenant", "a", "--type", "digest") == {"a"}
        assert listed("--status", "paused") == {"paused"}
        assert listed("--status", "DONE") == set()
        assert listed("--tenant", "' OR 1=1 --") == set()

    def test_pages_meet_each_job_once(self, run: Callable[..., Ran], add: Callable[..., str]) -> None:
        """`next` leads from page to page, and is null on the last, also where the last is full."""
        ids = {add(tenant=tenant, name=name) for tenant in ("a", "b") for name in ("x", "y")}
        met: list[str] = []
        after: tuple[str, ...] = ()
        pages = 0
        while True:
            page = run("list", "--limit", "2", *after, "--json").json
            met += [job["id"] for job in page["jobs"]]
            pages += 1
            if page["next"] is None:
                break
            after = ("--after", page["next"])
        assert pages == 2
        assert len(met) == 4
        assert set(met) == ids

    def test_people_are_told_that_there_is_more(
        self, run: Callable[..., Ran], add: Callable[..., str]
    ) -> None:
        """The command that shows the next page is said."""
        first = add(tenant="a")
        add(tenant="b")
        ran = run("list", "--limit", "1")
        assert ran.stdout.splitlines()[-1] == f"There are more: repeat with --after {first}"

    def test_it_fits_in_80_columns_and_shows_no_control_characters(
        self, run: Callable[..., Ran], add: Callable[..., str]
    ) -> None:
        """A tenant may be called anything; it neither colours nor moves the reader's terminal."""
        add(tenant="\x1b[31mred\nline\r", name="[bold]" + "long " * 30)
        out = run("list").stdout
        assert "\x1b" not in out
        assert "\\x1b[31mred\\nline\\r" in out.replace("\n", "").replace(" ", "") or "\\x1b[31mred" in out
        assert "[bold]" in out
        assert all(len(line) <= 80 for line in out.splitlines())


class TestShow:
    """`cronless show`."""

    @pytest.mark.usefixtures("virtual_engine")
    def test_the_plan_in_its_own_zone_and_the_history(
        self, run: Callable[..., Ran], add: Callable[..., str]
    ) -> None:
        """What ran, how late, and when it comes next, on both clocks."""
        job_id = add("--timezone", "Europe/Berlin", job_type="refresh", schedule="0 13 * * *", name="r")
        assert run("tick", "--now", "2026-03-02T12:00:00Z").status == 0
        assert run("tick", "--now", "2026-03-03T12:00:05Z").status == 0
        ran = run("show", job_id)
        assert ran.status == 0
        assert "state          PENDING" in ran.stdout
        assert "of occurrence  Tue 2026-03-03 13:00 +01:00, 2026-03-03 12:00Z, 5 s ago" in ran.stdout
        assert (
            "Tue 2026-03-03 13:00 +01:00  failure, try 1, 5 s late\n    RuntimeError: the site is down"
            in ran.stdout
        )
        told = run("show", job_id, "--json").json
        assert [one["outcome"] for one in told["history"]] == ["failure"]
        assert told["history"][0]["scheduled_for"] == "2026-03-03T12:00:00Z"
        assert told["history"][0]["run_url"] is None

    def test_links_to_dagster(
        self,
        run: Callable[..., Ran],
        add: Callable[..., str],
        engine: Engine,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """With an address of Dagster's UI, runs and the runs of the present claim can be clicked."""
        job_id = add()
        claim(engine, job_id)
        with engine.begin() as connection:
            connection.execute(
                text(
                    "INSERT INTO cronless.job_execution (recorded_at, job_id, tenant_id, job_type, outcome, run_id)"
                    " VALUES (now(), :id, 'acme', 'digest', 'success', 'run-1')"
                ),
                {"id": UUID(job_id)},
            )
        assert "    run run-1\n" in run("show", job_id).stdout
        monkeypatch.setenv("CRONLESS_DAGSTER_URL", "https://dagster.example/")
        assert "    https://dagster.example/runs/run-1\n" in run("show", job_id).stdout
        told = run("show", job_id, "--json").json
        assert told["history"][0]["run_url"] == "https://dagster.example/runs/run-1"
        assert told["claim_url"] == (
            f"https://dagster.example/runs?q=tag:cronless/claim={stored(engine, job_id)['claim_id']}"
        )

    def test_a_job_with_an_unusable_schedule(self, run: Callable[..., Ran], engine: Engine) -> None:
        """Rows come by plain SQL too; showing, listing and resuming one that is unusable still works."""
        with engine.begin() as connection:
            job_id = connection.execute(
                text(
                    "INSERT INTO cronless.scheduled_job (tenant_id, job_type, schedule, timezone, paused_at)"
                    " VALUES ('t', 'digest', '@daily', 'Mars', now()) RETURNING id"
                )
            ).scalar_one()
        assert run("show", str(job_id)).status == 0
        assert run("list").status == 0
        assert run("resume", str(job_id)).status == 0
        run("tick")
        told = run("show", str(job_id), "--json").json
        assert told["job"]["status"] == "INVALID"
        assert "Mars" in told["job"]["invalid_reason"]
        assert run("status", "--json").json["totals"]["invalid"] == 1


class TestEdit:
    """`cronless edit`."""

    def test_only_what_is_given_changes(
        self, run: Callable[..., Ran], add: Callable[..., str], engine: Engine
    ) -> None:
        """An instant without offset is read in the zone the job has, or is given in the same edit."""
        job_id = add(*ALL_OPTIONS, name="x")
        before = stored(engine, job_id)
        assert run("edit", job_id, "--ends-at", "2027-06-01T10:00").status == 0
        after = stored(engine, job_id)
        assert after["ends_at"] == datetime(2027, 6, 1, 8, tzinfo=UTC)
        assert run("edit", job_id, "--ends-at", "2027-06-01T10:00", "--timezone", "Asia/Tokyo").status == 0
        assert stored(engine, job_id)["ends_at"] == datetime(2027, 6, 1, 1, tzinfo=UTC)
        kept = {"name", "payload", "schedule", "jitter_seconds", "starts_at", "max_attempts"}
        assert {key: after[key] for key in kept} == {key: before[key] for key in kept}

    def test_nothing_takes_a_value_away(
        self, run: Callable[..., Ran], add: Callable[..., str], engine: Engine
    ) -> None:
        """The word "none" empties what may be empty."""
        job_id = add(*ALL_OPTIONS)
        names = ("starts-at", "ends-at", "max-attempts", "retry-delay", "retry-max-delay", "pause-after")
        assert run("edit", job_id, *(word for name in names for word in (f"--{name}", "none"))).status == 0
        row = stored(engine, job_id)
        columns = ("starts_at", "ends_at", "max_attempts", "retry_delay_seconds", "pause_after")
        assert {row[column] for column in (*columns, "retry_max_delay_seconds")} == {None}
        assert run("edit", job_id, "--name", "none").status == 0
        assert stored(engine, job_id)["name"] == "none"

    def test_a_refused_edit_changes_nothing(
        self, run: Callable[..., Ran], add: Callable[..., str], engine: Engine
    ) -> None:
        """One bad value among good ones leaves the whole row as it was."""
        job_id = add(*ALL_OPTIONS, name="x")
        add(name="taken")
        before = stored(engine, job_id)
        for bad in (
            ("--schedule", "nonsense"),
            ("--timezone", "Mars"),
            ("--ends-at", "2020-01-01T00:00Z"),
            ("--payload", "[]"),
            ("--misfire-policy", "sometimes"),
            ("--name", "taken"),
            ("--max-attempts", "0"),
            ("--jitter", "36500d"),
        ):
            run("edit", job_id, "--pause-after", "9", *bad).refused()
            assert stored(engine, job_id) == before, bad

    def test_nothing_to_change(self, run: Callable[..., Ran], add: Callable[..., str]) -> None:
        """An edit without an option is a slip."""
        assert "nothing is to be changed" in run("edit", add()).refused()


class TestRequests:
    """`cronless pause`, `resume`, `trigger`, `remove`."""

    def test_pause_and_resume(self, run: Callable[..., Ran], add: Callable[..., str]) -> None:
        """A paused job says since when and why; resumed, it says when it runs."""
        job_id = add()
        assert run("pause", job_id, "--reason", "on holiday").status == 0
        told = run("show", job_id, "--json").json
        assert (told["state"], told["job"]["pause_reason"]) == ("paused", "on holiday")
        ran = run("resume", job_id, "--json")
        assert ran.json["job"]["paused_at"] is None
        assert ran.json["expected_run_at"] is not None

    def test_trigger(self, run: Callable[..., Ran], add: Callable[..., str]) -> None:
        """The job runs at the next tick and keeps its plan."""
        job_id = add()
        run("tick")
        planned = run("show", job_id, "--json").json["job"]["next_run_at"]
        assert "runs at the next tick" in run("trigger", job_id).stdout
        ticked = run("tick", "--json").json
        assert [one["recorded"] for one in ticked["claims"]] == [{"success": 1}]
        told = run("show", job_id, "--json").json
        assert told["history"][0]["manual"] is True
        assert told["job"]["next_run_at"] == planned

    def test_remove(self, run: Callable[..., Ran], add: Callable[..., str]) -> None:
        """A job that isn't claimed is gone at once, and can't be removed twice."""
        job_id = add()
        assert run("remove", job_id, "--json").json == {"id": job_id, "removed": True, "gone": True}
        assert job_id in run("remove", job_id).refused()

    def test_remove_a_claimed_job(
        self, run: Callable[..., Ran], add: Callable[..., str], engine: Engine
    ) -> None:
        """It can still be shown by its id until its holder has finished, and is no longer listed."""
        job_id = add()
        claim(engine, job_id)
        assert "once its holder has finished" in run("remove", job_id).stdout
        assert run("list", "--json").json["jobs"] == []
        assert run("show", job_id, "--json").json["state"] == "removed"

    def test_an_ended_job_is_not_triggered(self, run: Callable[..., Ran], add: Callable[..., str]) -> None:
        """It would never be claimed, so the request is refused."""
        job_id = add(schedule="@once 2020-01-01T00:00Z")
        run("tick")
        run("tick")
        assert run("show", job_id, "--json").json["job"]["status"] == "DONE"
        assert "is DONE" in run("trigger", job_id).refused()


@pytest.mark.parametrize("payload", ['{"n": 1e5000}', '{"n": ' + "[" * 2_000 + "]" * 2_000 + "}"])
def test_a_stored_payload_that_cannot_be_read(
    run: Callable[..., Ran], add: Callable[..., str], engine: Engine, payload: str
) -> None:
    """PostgreSQL takes it and Python doesn't: the job is listed, shown and edited, and keeps what it has."""
    job = add(name="odd")
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE cronless.scheduled_job SET payload = CAST(:payload AS jsonb)"), {"payload": payload}
        )
        before = connection.execute(text("SELECT payload::text FROM cronless.scheduled_job")).scalar()
    for command in (("list", "--json"), ("show", job), ("edit", job, "--schedule", "@weekly")):
        ran = run(*command)
        assert (ran.status, ran.stderr) == (0, ""), command
    assert "unreadable" in run("show", job).stdout
    with engine.begin() as connection:
        assert connection.execute(text("SELECT payload::text FROM cronless.scheduled_job")).scalar() == before
