"""Whatever is typed and however the database fails: one sentence, an exit status, nothing half written."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

    from cronless_dagster.store.embedded import EmbeddedPostgres
    from tests.cli.conftest import Ran

JOB = "00000000-0000-0000-0000-000000000001"
ADD = ("add", "--tenant", "t", "--type", "digest", "--schedule", "@daily")
COMMANDS: dict[str, tuple[str, ...]] = {
    "add": ADD,
    "list": ("list",),
    "show": ("show", JOB),
    "edit": ("edit", JOB, "--schedule", "@daily"),
    "pause": ("pause", JOB),
    "resume": ("resume", JOB),
    "trigger": ("trigger", JOB),
    "remove": ("remove", JOB),
    "replan": ("replan",),
    "status": ("status",),
    "tick": ("tick",),
    "db prune": ("db", "prune"),
}
every_command = pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)


def both_ways(run: Callable[..., Ran], *arguments: str, status: int) -> str:
    """Check that people and machines are told the same sentence, each in their way; returns it."""
    sentence = run(*arguments).refused(status)
    ran = run(*arguments, "--json")
    assert (ran.status, ran.json, ran.stderr) == (status, {"error": sentence}, "")
    return sentence


@pytest.fixture(scope="module")
def steady_url(postgres_server: EmbeddedPostgres, template_database: str) -> Iterator[str]:
    """A migrated database for the whole module: what is refused leaves nothing in it."""
    name = f"t_{uuid4().hex}"
    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {template_database}".encode())
        yield postgres_server.url(name)
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture
def pg_url(steady_url: str) -> str:
    """In place of a fresh database for each test."""
    return steady_url


@every_command
class TestEveryCommand:
    """Every command against what can't be used."""

    def test_a_database_that_is_down(self, run: Callable[..., Ran], command: tuple[str, ...]) -> None:
        """A server that isn't there is the system's failure, and no password is shown."""
        url = "postgresql://app:s3cret@127.0.0.1:1/app?password=s3cret"
        sentence = both_ways(run, "--database-url", url, *command, status=1)
        assert "can't be reached" in sentence
        assert "s3cret" not in sentence

    def test_no_such_database(self, run: Callable[..., Ran], pg_url: str, command: tuple[str, ...]) -> None:
        """The server is there, the database isn't."""
        base, _, rest = pg_url.partition("/t_")
        url = f"{base}/no_such_one?{rest.partition('?')[2]}"
        assert "no_such_one" in both_ways(run, "--database-url", url, *command, status=1)

    def test_an_address_that_is_none(self, run: Callable[..., Ran], command: tuple[str, ...]) -> None:
        """It is what was typed that is wrong."""
        for url in (
            *("", "nonsense", "mysql://h/d", "postgresql://h", "postgresql://[::1/d"),
            *("postgresql://h:port/d", "postgresql://h:99999/d", "/var/run", "postgresql://h/d\udcff"),
        ):
            both_ways(run, "--database-url", url, *command, status=2)

    def test_a_setting_that_is_none(
        self, run: Callable[..., Ran], command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The environment is typed by people too."""
        monkeypatch.setenv("CRONLESS_HISTORY_DAYS", "a month")
        assert "CRONLESS_HISTORY_DAYS" in both_ways(run, *command, status=2)

    def test_what_no_command_takes(self, run: Callable[..., Ran], command: tuple[str, ...]) -> None:
        """Nothing that was typed is passed over in silence, and the sentence says where to look."""
        assert "--help" in both_ways(run, *command, "--frobnicate", status=2)
        assert "--help" in both_ways(run, *command, "surplus", status=2)


def test_a_database_that_is_not_migrated(run: Callable[..., Ran], new_database: Callable[..., str]) -> None:
    """Every command says how to migrate."""
    url = new_database(migrated=False)
    for command in COMMANDS.values():
        sentence = both_ways(run, "--database-url", url, *command, status=1)
        assert "run `cronless db upgrade`" in sentence


def test_a_database_of_a_newer_version(run: Callable[..., Ran], new_database: Callable[..., str]) -> None:
    """Every command of an old release leaves a newer schema alone."""
    url = new_database()
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE cronless.alembic_version SET version_num = '9999'")
    for command in (*COMMANDS.values(), ("db", "upgrade")):
        assert "install the newer release" in both_ways(run, "--database-url", url, *command, status=1)


UNKNOWN = ("show", "edit", "pause", "resume", "trigger", "remove")


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_job(run: Callable[..., Ran], name: str) -> None:
    """There is no such job: by its id and by its name."""
    assert JOB in both_ways(run, *COMMANDS[name], status=2)
    both_ways(run, name, "a/b/c", *COMMANDS[name][2:], status=2)


BAD_OPTIONS: tuple[tuple[str, str], ...] = (
    ("--schedule", ""),
    ("--schedule", "0 9 * *"),
    ("--schedule", "@every 1s"),
    ("--schedule", "1," * 5_000),
    ("--schedule", "RRULE:FREQ=DAILY;INTERVAL=0"),
    ("--timezone", "Mars/Olympus"),
    ("--timezone", ""),
    ("--timezone", "localtime"),
    ("--dst-policy", "summer"),
    ("--misfire-policy", "sometimes"),
    ("--misfire-grace", "-5m"),
    ("--misfire-grace", "soon"),
    ("--misfire-grace", "36000d"),
    ("--misfire-grace", "none"),
    ("--jitter", "1"),
    ("--jitter", "1h 1h"),
    ("--starts-at", "2026-02-30T00:00Z"),
    ("--starts-at", "10000-01-01T00:00Z"),
    ("--ends-at", "tomorrow"),
    ("--next-run-at", "1764575999"),
    ("--max-attempts", "0"),
    ("--max-attempts", "-1"),
    ("--max-attempts", "3.5"),
    ("--max-attempts", "99999999999"),
    ("--pause-after", "0"),
    ("--retry-delay", "-1s"),
    ("--retry-max-delay", "forever"),
    ("--name", "x" * 501),
    ("--payload", ""),
    ("--payload", "text"),
    ("--payload", "[1]"),
    ("--payload", "null"),
    ("--payload", '{"a": NaN}'),
    ("--payload", '{"a": Infinity}'),
    ("--payload", '{"a": 1,}'),
    ("--payload", '{"a": "\\u0000"}'),
    ("--payload", '{"a": "\\ud800"}'),
    ("--payload", '{"a": ' + "9" * 5_000 + "}"),
    ("--payload", '{"a": "' + "x" * 70_000 + '"}'),
    ("--payload", "[" * 100_000),
    ("--payload", "@"),
    ("--payload", "@/no/such/file"),
    ("--payload", "@/"),
    ("--payload", "@/dev/zero"),
    ("--payload", "@\udcff"),
)


def _id(option: tuple[str, str]) -> str:
    return f"{option[0]}={ascii(option[1])[:24]}"


@pytest.fixture(scope="module")
def kept() -> dict[str, str]:
    """The id of the one job that the module keeps."""
    return {}


@pytest.mark.parametrize("option", BAD_OPTIONS, ids=_id)
def test_a_value_that_cant_be_used(
    run: Callable[..., Ran],
    add: Callable[..., str],
    engine: Engine,
    kept: dict[str, str],
    option: tuple[str, str],
) -> None:
    """Neither adds a job nor changes one, whatever else was typed beside it."""
    if "id" not in kept:
        kept["id"] = add(name="kept")
    before = _rows(engine)
    both_ways(run, *ADD, *option, status=2)
    both_ways(run, "edit", kept["id"], "--pause-after", "7", *option, status=2)
    assert _rows(engine) == before


HOSTILE = (
    "",
    " ",
    "-",
    "--",
    "@",
    "none",
    "\0",
    "a\0b",
    "\udcff",
    "\ud800",
    "x" * 10_000,
    "\x1b]0;title\x07\x1b[2J",
    "a\r\nb",
    "'; DROP TABLE cronless.scheduled_job; --",
    "%s %(x)s :id {} {0.__class__} $1 \\",
    "../../../etc/passwd",
    "[red]markup[/red][/]",
    "\u202ertl",
    "🦆" * 20,
    "1e400",
    "٣",
)
TAKING_TEXT: dict[str, tuple[str, ...]] = {
    "tenant": ("add", "--type", "digest", "--schedule", "@daily", "--tenant"),
    "type": ("add", "--tenant", "t", "--schedule", "@daily", "--undeclared", "--type"),
    "name": (*ADD, "--name"),
    "schedule": ("add", "--tenant", "t", "--type", "digest", "--schedule"),
    "payload": (*ADD, "--payload"),
    "list tenant": ("list", "--tenant"),
    "list type": ("list", "--type"),
    "list status": ("list", "--status"),
    "list after": ("list", "--after"),
    "list limit": ("list", "--limit"),
    "show": ("show",),
    "remove": ("remove",),
    "trigger": ("trigger",),
    "pause": ("pause",),
    "resume": ("resume",),
    "edit": ("edit", "--name", "x"),
    "replan tenant": ("replan", "--tenant"),
    "replan type": ("replan", "--type"),
    "tick now": ("tick", "--now"),
    "tick prefix": ("tick", "--prefix"),
    "tick job types": ("tick", "--job-types"),
    "tick every": ("tick", "--every"),
    "prune days": ("db", "prune", "--days"),
    "command": (),
    "db command": ("db",),
}


@pytest.mark.parametrize("command", TAKING_TEXT.values(), ids=TAKING_TEXT)
def test_hostile_texts(run: Callable[..., Ran], engine: Engine, command: tuple[str, ...]) -> None:
    """A text is either taken as it is or refused in one sentence; it neither breaks nor colours anything."""
    for words in HOSTILE:
        before = _rows(engine)
        ran = run(*command, words)
        assert ran.status in (0, 2), (words, ran)
        if ran.status == 2 and "Usage:" not in ran.stderr:
            ran.refused()
            assert _rows(engine) == before
        assert "\x1b" not in ran.stdout + ran.stderr
        assert len(ran.stderr) < 1_000
    for shown in (run("list", "--limit", "10000"), run("status")):
        assert shown.status == 0
        assert "\x1b" not in shown.stdout
    assert run("list", "--limit", "10000", "--json").status == 0


def _rows(engine: Engine) -> list[tuple[object, ...]]:
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT * FROM cronless.scheduled_job ORDER BY id")).all()
        return [tuple(row) for row in rows]
