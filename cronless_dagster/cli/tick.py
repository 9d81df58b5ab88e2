"""`cronless tick`: one tick, or one a minute, whose claims run in this process."""

from __future__ import annotations

import logging
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from cronless_dagster.cli.failures import FAILED, InputError, failure
from cronless_dagster.cli.invocation import Invocation, database_options, pass_invocation
from cronless_dagster.cli.output import iso, plain, print_json, say, utc_text
from cronless_dagster.cli.parameters import PREFIX, TEXT, read_now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cronless_dagster.engine.report import TickReport
    from cronless_dagster.engine.running import ClaimReport
    from cronless_dagster.scheduling.shards import IdRange


@click.command()
@click.option(
    "--now", type=TEXT, metavar="ISO", help="An instant instead of the clock, where the clock is virtual."
)
@click.option("--prefix", type=PREFIX, metavar="HEX", help="Only jobs whose ids begin with these digits.")
@click.option("--loop", is_flag=True, help="Go on, at each full minute, until Ctrl-C.")
@click.option("--every", type=click.IntRange(1, 86_400), help="With --loop: every so many seconds instead.")
@click.option("--job-types", type=TEXT, metavar="MODULE", help="Instead of CRONLESS_JOB_TYPES.")
@database_options
@pass_invocation
def tick(
    invocation: Invocation,
    now: str | None,
    prefix: IdRange | None,
    loop: bool,
    every: int | None,
    job_types: str | None,
    as_json: bool,
) -> int:
    """Claim what is due and run it here, one claim after the other, without Dagster.

    Where CRONLESS_BROKER_URL names a broker, job types of the queue route are published for `cronless worker`.
    Ticks of other processes, Dagster's sensor included, may go on beside it: no job is taken twice.
    """
    from cronless_dagster.engine.local import tick_and_run
    from cronless_dagster.scheduling.shards import FULL

    if loop and now is not None:
        raise InputError("--now and --loop exclude each other: an instant in place of the clock is one tick")
    if every is not None and not loop:
        raise InputError("--every needs --loop: without it there is one tick")
    at = None if now is None else read_now(now)
    types = invocation.job_types(job_types)
    engine = invocation.engine()
    history_days = invocation.settings().history_days
    queue = invocation.queue("cronless-tick", types)
    _log_as_lines()

    def once() -> int:
        report, ran = tick_and_run(
            engine, types, now=at, ids=prefix or FULL, history_days=history_days, queue=queue
        )
        if as_json:
            print_json({"tick": report.as_dict(), "claims": [_json(one) for one in ran]})
        else:
            _print(report, ran)
        return FAILED if report.errors else 0

    if not loop:
        return once()
    invocation.telemetry("cronless-tick", engine)
    with _terminated_as_interrupt():
        _repeat(once, every or 60, as_json=as_json)
    return 0


def _repeat(once: Callable[[], int], every: int, *, as_json: bool) -> None:
    """Tick at each multiple of `every` seconds, now first; a tick that fails says why and the next one is due."""
    try:
        while True:
            try:
                once()
            except Exception as error:
                # A database that restarts must not end a loop that somebody left running.
                found = failure(error)
                if found is None or isinstance(error, BrokenPipeError):
                    raise
                if as_json:
                    print_json({"error": found[0]})
                else:
                    click.echo(f"Error: {found[0]}", err=True)
            time.sleep(every - time.time() % every)
    except KeyboardInterrupt:
        click.echo("stopped", err=True)


@contextmanager
def _terminated_as_interrupt() -> Iterator[None]:
    """Let SIGTERM end the loop as Ctrl-C does: what a handler has finished is recorded first."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Lines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        click.echo(plain(self.format(record)), err=True)


_LINES = _Lines()


def _log_as_lines() -> None:
    """Let handlers log to stderr; what the tick itself logs is in its report, and would only be said twice."""
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    ours = logging.getLogger("cronless_dagster")
    ours.addHandler(logging.NullHandler())
    ours.propagate = False
    # But nothing else tells where the loop shows its metrics, or why nowhere.
    logging.getLogger("cronless_dagster.telemetry").addHandler(_LINES)


def _json(ran: ClaimReport) -> dict[str, Any]:
    return {
        "claim_id": ran.claim_id,
        "job_type": ran.job_type,
        "status": ran.status,
        "jobs": ran.job_count,
        "recorded": ran.recorded,
        "discarded": ran.discarded,
        "paused": ran.paused,
        "latest_seconds": round(max(ran.lateness, default=0.0), 3),
        "seconds": ran.seconds,
        "failures": [
            {
                "job_id": one.job_id,
                "tenant_id": one.tenant_id,
                "name": one.name,
                "scheduled_for": iso(one.scheduled_for),
                "try": one.tries,
                "error": one.error,
                "follows": one.follows,
            }
            for one in ran.failures
        ],
    }


def _print(report: TickReport, ran: list[ClaimReport]) -> None:
    at = utc_text(report.now.replace(microsecond=0))
    say(f"{at}  {report.summary()}", "red" if report.errors else "")
    for one in ran:
        failed = f", {one.failed:,} failed" if one.failed else ""
        say(f"  {one.job_type}: {one.succeeded:,} done{failed}, {one.seconds:.1f} s {one.message}".rstrip())
        for job in one.failures:
            name = "/".join(filter(None, (job.tenant_id, one.job_type, job.name)))
            say(f"    {name}: {job.error} ({job.follows})", "yellow")
