"""What the client prints: lines for people, objects for machines, and never a secret."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from .calls import Call
    from .config import Config
    from .outcomes import Summary
    from .parts import Part

_SHORT = 8


def lines_of(summary: Summary) -> Iterator[str]:
    """Give what became of a minute's calls: a line, and one more for each target and kind of failure."""
    failed = f", {len(summary.failed):,} failed" if summary.failed else ""
    lost = f", {_counted(len(summary.lost), 'group')} answered nowhere" if summary.lost else ""
    missed = f", {_counted(summary.missed, 'minute')} missed before" if summary.missed else ""
    yield (
        f"{_minute(summary.minute)}  {_counted(len(summary.outcomes), 'call')}{failed}{lost}{missed},"
        f" {summary.acted:,} acted, {summary.seconds:.1f} s"
    )
    alike: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for one in summary.failed:
        alike[one.call.target, one.problem][one.call.check] += 1
    for (target, problem), checks in alike.items():
        counts = ", ".join(f"{name} {count:,}" for name, count in checks.items())
        yield f"  {target} ({counts}): {problem}"


def calls_as_dict(config: Config, minute: datetime, calls: Sequence[Call]) -> dict[str, Any]:
    """Return the calls of a minute; their addresses have `***` where the secret path goes."""
    addresses = {one.name: one.address for one in config.targets}
    return {
        "minute": minute.isoformat().replace("+00:00", "Z"),
        "calls": [
            {
                "target": one.target,
                "check": one.check,
                one.parameter[0]: one.parameter[1],
                "url": f"{addresses[one.target]}/***/checks/{one.check}?{one.query}",
            }
            for one in calls
        ],
    }


def table_of(config: Config, minute: datetime, calls: Sequence[Call]) -> Iterator[str]:
    """Give the calls of a minute as lines: the targets, then a group on each."""
    to = _counted(len(config.called), "target")
    yield f"{_minute(minute)}  {_counted(len(calls), 'call')}, each group to {to}:"
    wide = max(len(one.name) for one in config.called)
    for one in config.called:
        yield f"  {one.name:<{wide}}  {one.address}"
    groups = dict.fromkeys((one.check, one.part) for one in calls)
    wide = max((len(check) for check, _ in groups), default=0)
    if groups:
        yield f"{'check':<{wide}}  ids"
    for check, part in groups:
        yield f"{check:<{wide}}  {_shortened(part)}"
    resting = [one.name for one in config.checks if one.name not in {check for check, _ in groups}]
    if resting:
        yield f"not in this minute: {', '.join(dict.fromkeys(resting))}"


def _shortened(part: Part) -> str:
    name, value = part.parameter()
    ends = (end if len(end) <= _SHORT else f"{end[:_SHORT]}..." for end in value.split("-"))
    return f"{name}={'-'.join(ends)}"


def _minute(minute: datetime) -> str:
    return f"{minute:%Y-%m-%d %H:%M}Z"


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
