"""Cases from public reports, each with the policy names under which its answer holds.

`any` holds under every policy. What this package doesn't offer is left out by the reasons below, never silently.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from cronless_dagster.scheduling.base import DST_POLICIES
from cronless_dagster.scheduling.errors import ScheduleError
from cronless_dagster.scheduling.schedules import parse_schedule

CASES = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "recurrence_cases.jsonl").read_text("utf-8").splitlines()
]

LEFT_OUT_POLICIES = {
    "gapend-last": "a daemon that runs the second pass of a repeated hour is not offered",
    "dom-and-dow": "both day fields always meaning AND is another cron dialect",
    "posix-or-unless-bare-star": "only a bare star meaning AND is another cron dialect",
    "rfc5545-shift": "a rule's instance in a gap is left out, not shifted",
    "calendar-skip": "an interval counts elapsed time, not calendar days",
    "calendar-gap-end": "an interval counts elapsed time, not calendar days",
}
LEFT_OUT_KINDS = {
    "cron-seconds-first": "six fields with seconds are refused",
    "hash-property": "Jenkins' H is not offered; @window has properties of its own",
}
ONE_RULE = {"elapsed", "rfc5545-skip", "refuse-or-none"}


def _reason_left_out(case: dict[str, Any]) -> str | None:
    if case["kind"] in LEFT_OUT_KINDS:
        return LEFT_OUT_KINDS[case["kind"]]
    names = case["policy"].split("|")
    if set(names) & ({"any", *DST_POLICIES} | ONE_RULE):
        return None
    return LEFT_OUT_POLICIES[names[0]]


def _policies(case: dict[str, Any]) -> list[str]:
    names = set(case["policy"].split("|"))
    return [policy for policy in DST_POLICIES if policy in names or names & ({"any"} | ONE_RULE)]


def _runs() -> list[Any]:
    offered = [case for case in CASES if _reason_left_out(case) is None]
    return [pytest.param(c, policy, id=f"{c['id']}-{policy}") for c in offered for policy in _policies(c)]


def _text_and_anchor(case: dict[str, Any]) -> tuple[str, datetime | None]:
    if case["kind"] != "interval":
        return case["expr"], None
    interval, _, anchor = case["expr"].partition("; anchor=")
    return f"@{interval}", datetime.fromisoformat(anchor)


@pytest.mark.parametrize(("case", "policy"), _runs())
def test_reported_case(case: dict[str, Any], policy: str) -> None:
    """The instants strictly after the base are the report's, or the schedule is refused or never fires."""
    text, anchor = _text_and_anchor(case)
    expected = [datetime.fromisoformat(text) for text in case["expected_utc"]]
    try:
        schedule = parse_schedule(text, case["tz"], policy)
    except ScheduleError:
        assert case["policy"] == "refuse-or-none"
        return
    after = schedule.instants_after(datetime.fromisoformat(case["base_utc"]), anchor=anchor)
    assert list(islice(after, max(1, len(expected)))) == expected


def test_every_case_is_run_or_left_out_for_a_stated_reason() -> None:
    """Of the 137 cases 107 are run; the other 30 are left out by these reasons, in these numbers."""
    reasons = Counter(_reason_left_out(case) for case in CASES)
    assert len(CASES) == 137
    assert reasons == {
        None: 107,
        LEFT_OUT_POLICIES["gapend-last"]: 9,
        LEFT_OUT_POLICIES["dom-and-dow"]: 4,
        LEFT_OUT_POLICIES["posix-or-unless-bare-star"]: 4,
        LEFT_OUT_POLICIES["rfc5545-shift"]: 5,
        LEFT_OUT_POLICIES["calendar-skip"]: 4,
        LEFT_OUT_KINDS["cron-seconds-first"]: 1,
        LEFT_OUT_KINDS["hash-property"]: 3,
    }
