"""What people see of the schedule's health: numbers that the UI plots, tables, the chart, the verdict of each check."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import dagster as dg

from cronless_dagster.assets.markdown import as_text, fenced
from cronless_dagster.assets.minute_chart import as_image, svg
from cronless_dagster.assets.minute_waves import busiest, propose_spread
from cronless_dagster.store.health import Lateness, Recent
from cronless_dagster.store.status import NUMBERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cronless_dagster.store.health import Health

TYPES_LISTED = 100
ERROR_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Limits:
    """From where on a check fails.

    Attributes:
        lateness: How late a job may start.
        failing_share: Which share of a job type's tries of the last hour may fail.
        failing_tries: With fewer tries than that the share says nothing.
    """

    lateness: timedelta
    failing_share: float
    failing_tries: int


class Verdict(NamedTuple):
    """A check's outcome: what is wrong and what to do about it, empty where nothing is."""

    name: str
    complaint: str
    grave: bool
    metadata: dict[str, Any]


def health_metadata(health: Health) -> dict[str, Any]:
    """Return the metadata of a materialization; its size doesn't follow the number of jobs, tenants or types."""
    status, now = health.status, health.status.now
    total = {name: sum(getattr(one, name) for one in status.types) for name in NUMBERS}
    metadata: dict[str, Any] = {
        "due": total["due"],
        "pending": total["due"] + total["unplanned"] + sum(health.ahead.values()),
        **{name: total[name] for name in NUMBERS if name != "due"},
        "done": _ended(health, "DONE"),
        "failed": _ended(health, "FAILED"),
        "stuck_claims": len(health.stuck),
        "failing_jobs": health.failing_count,
        **_lateness("due", health.due),
        **_lateness("started", health.recent.started),
        "started_last_quarter_hour": health.recent.started.number,
        "tries_last_hour": health.recent.tried,
        "failed_tries_last_hour": health.recent.failed,
        "missed_last_hour": health.recent.missed,
        "oldest_due_age_seconds": _age(status.oldest_due_at, now) or 0.0,
        "oldest_unstarted_age_seconds": _age(health.unstarted_since, now) or 0.0,
    }
    if (tick_age := _age(_last_tick(health), now)) is not None:
        metadata["last_tick_age_seconds"] = tick_age
    cut = sorted({*health.at_least, *(name for one in status.types for name in one.at_least)})
    if cut:
        metadata["at_least"] = dg.MetadataValue.text(f"counted up to a bound, so at least: {', '.join(cut)}")
    # In the order in which the UI lists them: the chart on top.
    return {
        "minute_waves": dg.MetadataValue.md(waves_markdown(health)),
        **metadata,
        "by_type": _table(_type_rows(health), TYPES_LISTED),
        "waiting_by_tenant": _table(
            {"tenant": name, "due": one.number, "oldest_seconds": round(one.longest or 0)}
            for name, one in health.due_by_tenant.items()
        ),
        "failing_by_tenant": _table(
            {"tenant": name, "tries": one.tried, "failed": one.failed, "missed": one.missed}
            for name, one in health.recent_by_tenant.items()
        ),
        "stuck_and_failing": _table(_trouble_rows(health)),
    }


def waves_markdown(health: Health) -> str:
    """Return the chart of the next day's minutes, the busiest of them, and how to spread them."""
    parts = [as_image(svg(health.minutes, health.status.now), "Jobs becoming due by minute")]
    if not health.minutes:
        return "\n\n".join([*parts, "Nothing becomes due in the next 24 hours."])
    parts.append("**Busiest minutes (UTC)**")
    parts.append(
        "\n".join(
            f"- {wave.minute:%H:%M}: {wave.jobs:,} jobs ({as_text(_named(list(wave.by_type.items())))})"
            for wave in busiest(health.minutes)
        )
    )
    if "ahead" in health.at_least:
        parts.append("Of a job type with very many jobs only the next ones are counted.")
    proposals = propose_spread(health.minutes)
    if not proposals:
        return "\n\n".join([*parts, "No minute stands out, so there is nothing to spread."])
    parts.append("**To spread them**")
    parts.append("\n".join(f"- {as_text(one.text)}" for one in proposals))
    parts.append(fenced("\n".join(one.sql for one in proposals), "sql"))
    parts.append(
        "The next tick plans these rows anew. Where the minute doesn't matter at all, the schedule `@window 1h` gives"
        " each hourly job a minute of its own."
    )
    return "\n\n".join(parts)


def verdicts(health: Health, limits: Limits) -> list[Verdict]:
    """Judge: nothing stuck, lateness within its limit, no type failing, no row invalid."""
    return [_stuck(health), _late(health, limits), _failing(health, limits), _invalid(health)]


def check_results(health: Health, limits: Limits, key: dg.AssetKey) -> list[dg.AssetCheckResult]:
    """Return the verdicts as Dagster shows them."""
    return [
        dg.AssetCheckResult(
            check_name=one.name,
            asset_key=key,
            passed=not one.complaint,
            severity=dg.AssetCheckSeverity.ERROR if one.grave else dg.AssetCheckSeverity.WARN,
            description=one.complaint or None,
            metadata=one.metadata,
        )
        for one in verdicts(health, limits)
    ]


def _stuck(health: Health) -> Verdict:
    jobs = sum(one.jobs for one in health.stuck)
    complaint = ""
    if health.stuck:
        by_type: dict[str, int] = {}
        for one in health.stuck:
            by_type[one.job_type] = by_type.get(one.job_type, 0) + one.jobs
        complaint = (
            f"{_counted(jobs, 'job')} of {_named(list(by_type.items()))} lost their holder"
            f" {_span(health.status.now - health.stuck[0].since)} ago and nobody has rescued them: see that the tick"
            " sensor is on and its ticks succeed."
        )
    return Verdict("nothing_stuck", complaint, True, {"stuck_jobs": jobs, "stuck_claims": len(health.stuck)})


def _late(health: Health, limits: Limits) -> Verdict:
    now = health.status.now
    limit = limits.lateness.total_seconds()
    waiting = max(_age(health.status.oldest_due_at, now) or 0.0, _age(health.unstarted_since, now) or 0.0)
    started = health.recent.started.p95 or 0.0
    unclaimable = [(one.job_type, one.unclaimable) for one in health.status.types if one.unclaimable]
    complaint = ""
    if waiting > limit:
        tick = _age(_last_tick(health), now)
        ticked = (
            "there has been no tick"
            if tick is None
            else f"the last tick was {_span(timedelta(seconds=tick))} ago"
        )
        complaint = (
            f"A job has waited for {_span(timedelta(seconds=waiting))}, more than {_span(limits.lateness)}, and"
            f" {ticked}: see that the daemon runs, that its tick sensor is on, and that runs and workers keep up."
        )
        if unclaimable:
            named = _named(unclaimable)
            complaint += f" No running code declares {named}: deploy the code that does, or remove the rows."
    elif started > limit:
        complaint = (
            f"One in twenty jobs started {_span(timedelta(seconds=started))} late or more in the last quarter of an"
            f" hour, above {_span(limits.lateness)}: give the type more runs or workers, or spread its minutes."
        )
    return Verdict(
        "lateness_within_limit",
        complaint,
        waiting > limit,
        {"longest_wait_seconds": round(waiting, 3), "started_p95_seconds": started, "limit_seconds": limit},
    )


def _failing(health: Health, limits: Limits) -> Verdict:
    shares = {
        name: one.failed / one.tried
        for name, one in health.recent_by_type.items()
        if one.tried >= max(limits.failing_tries, 1)
    }
    above = sorted(
        (name for name, share in shares.items() if share > limits.failing_share), key=lambda n: -shares[n]
    )
    complaint = ""
    if above:
        told = ", ".join(
            f"{name} ({health.recent_by_type[name].failed:,} of {health.recent_by_type[name].tried:,})"
            for name in above[:5]
        )
        more = f" and {len(above) - 5:,} more types" if len(above) > 5 else ""
        complaint = (
            f"More than {limits.failing_share:.0%} of the tries of the last hour failed of {told}{more}: read the"
            " errors in the failed_jobs table of the type's last materialization."
        )
    return Verdict(
        "no_type_failing",
        complaint,
        False,
        {"failing_types": len(above), "highest_share": round(max(shares.values(), default=0.0), 4)},
    )


def _invalid(health: Health) -> Verdict:
    found = [(one.job_type, one.invalid) for one in health.status.types if one.invalid]
    number = sum(count for _, count in found)
    metadata: dict[str, Any] = {"invalid": number}
    complaint = ""
    if found:
        complaint = (
            f"{_counted(number, 'job')} can't be used as written ({_named(found)}): `cronless list --status invalid`"
            " says why; an edit of the row brings it back."
        )
        metadata["invalid_jobs"] = _table(
            {
                "tenant": one.tenant_id,
                "type": one.job_type,
                "name": one.name,
                "reason": _cut(one.reason),
                "job_id": str(one.id),
            }
            for one in health.invalid
        )
    return Verdict("no_row_invalid", complaint, False, metadata)


def _type_rows(health: Health) -> Iterable[dict[str, Any]]:
    # In trouble first: of very many types only some are shown.
    for one in sorted(health.status.types, key=lambda one: (-one.stuck, -one.late, -one.due, one.job_type)):
        recent = health.recent_by_type.get(one.job_type, Recent())
        yield {
            "type": one.job_type,
            **{name: getattr(one, name) for name in NUMBERS},
            "ahead": health.ahead.get(one.job_type, 0),
            "done": health.ended.get((one.job_type, "DONE"), 0),
            "failed": health.ended.get((one.job_type, "FAILED"), 0),
            "late_p95_seconds": _rounded(health.due_by_type.get(one.job_type, Lateness()).p95),
            "started_p95_seconds": _rounded(recent.started.p95),
            "tries_last_hour": recent.tried,
            "failed_last_hour": recent.failed,
            "missed_last_hour": recent.missed,
        }


def _trouble_rows(health: Health) -> Iterable[dict[str, Any]]:
    for claim in health.stuck:
        yield {
            "what": f"stuck claim of {_counted(claim.jobs, 'job')}",
            "type": claim.job_type,
            "tenant": "",
            "name": f"{claim.route} route, {claim.state}",
            "since": f"{claim.since:%Y-%m-%d %H:%M:%SZ}",
            "error": f"run {claim.run_id}" if claim.run_id else "",
            "id": str(claim.id),
        }
    for job in health.failing:
        yield {
            "what": f"failed {job.failures:,} times in a row{', paused' if job.paused else ''}",
            "type": job.job_type,
            "tenant": job.tenant_id,
            "name": job.name,
            "since": f"{job.at:%Y-%m-%d %H:%M:%SZ}" if job.at else "",
            "error": _cut(job.error),
            "id": str(job.id),
        }


def _table(rows: Iterable[dict[str, Any]], most: int = 50) -> dg.TableMetadataValue:
    records = [dg.TableRecord(row) for _, row in zip(range(most), rows, strict=False)]
    if records:
        return dg.MetadataValue.table(records)
    # Without a row there is nothing to tell the columns from, and Dagster asks for some.
    return dg.MetadataValue.table([], schema=dg.TableSchema([dg.TableColumn("none", "string")]))


def _lateness(what: str, late: Lateness) -> dict[str, float]:
    values = {"p50": late.p50, "p95": late.p95, "max": late.longest}
    return {f"{what}_lateness_{name}_seconds": _rounded(value) for name, value in values.items()}


def _ended(health: Health, state: str) -> int:
    return sum(number for (_, status), number in health.ended.items() if status == state)


def _last_tick(health: Health) -> datetime | None:
    tick = health.status.last_tick
    return None if tick is None else datetime.fromisoformat(tick["at"])


def _age(at: datetime | None, now: datetime) -> float | None:
    return None if at is None else round(max((now - at).total_seconds(), 0.0), 3)


def _rounded(seconds: float | None) -> float:
    return 0.0 if seconds is None else round(seconds, 3)


def _cut(words: str | None) -> str:
    return (words or "")[:ERROR_CHARACTERS]


def _named(counts: Sequence[tuple[str, int]]) -> str:
    """Name the five with most; a description is a sentence, not a list of a thousand."""
    most = sorted(counts, key=lambda one: (-one[1], one[0]))
    told = ", ".join(f"{name} {number:,}" for name, number in most[:5])
    return f"{told} and {len(most) - 5:,} more types" if len(most) > 5 else told


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _span(length: timedelta) -> str:
    seconds = round(length.total_seconds())
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.1f} h"
