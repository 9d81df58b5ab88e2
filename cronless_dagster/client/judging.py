"""What an answer means, and whether and when a call is made again: functions without a clock."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .calls import Call
    from .config import Retries
    from .connecting import Answer

_NOT_THEIRS = (
    "404: the path, a token or the check is wrong, or the access file doesn't let this caller call it"
)
_MOVED = "it redirects elsewhere, and the tokens don't go with it: write the final address in [targets]"


@dataclass(frozen=True, slots=True)
class Judged:
    """What an answer means.

    Attributes:
        answered: The check was carried out.
        acted: What it did, as it counts.
        again: Whether the call may be made again.
        problem: Why it isn't answered, in a few words.
    """

    answered: bool
    acted: int = 0
    again: bool = False
    problem: str = ""


def judge(call: Call, answer: Answer) -> Judged:
    """Tell what an answer to a call means.

    Only 429 and 5xx are worth another try: a call that is wrong stays wrong.
    """
    content = _object(answer.body)
    status = answer.status
    if status == 200:
        acted = content.get("acted")
        if content.get("check") == call.check and type(acted) is int:
            return Judged(answered=True, acted=acted)
        return Judged(answered=False, problem="200, but what it said is no check's answer")
    if 300 <= status < 400:
        return Judged(answered=False, problem=f"{status}: {_MOVED}")
    if status == 404:
        return Judged(answered=False, problem=_NOT_THEIRS)
    words = content.get("error")
    said = f": {words}" if isinstance(words, str) else ""
    return Judged(answered=False, again=status == 429 or status >= 500, problem=f"{status}{said}")


def wait_before(retry: int, retries: Retries, chance: float, at_least: float = 0.0) -> float:
    """Return the seconds to wait before a repetition.

    Args:
        retry: Its number, from 0.
        retries: The settings.
        chance: A random number from 0 to 1: callers that failed together don't come back together ("full jitter").
        at_least: What the server asked for; the random part comes on top of it.
    """
    return at_least + chance * min(retries.cap_seconds, retries.base_seconds * 2.0**retry)


def retry_after(text: str | None, now: datetime) -> float:
    """Return the seconds of a Retry-After header (RFC 9110, section 10.2.3), 0 where it says none.

    Args:
        text: A number of seconds, or a date.
        now: What time it is, aware.
    """
    if text is None:
        return 0.0
    if re.fullmatch("[0-9]{1,9}", text.strip()):
        return float(text)
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        # The latter for numbers beyond any calendar's.
        return 0.0
    return max(0.0, ((at if at.tzinfo else at.replace(tzinfo=UTC)) - now).total_seconds())


def _object(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def one_line(words: str) -> str:
    """Return what a stranger said as it may be logged: on one line, of at most 200 signs."""
    line = "".join(sign if sign.isprintable() else " " for sign in words)
    return line if len(line) <= 200 else f"{line[:197]}..."
