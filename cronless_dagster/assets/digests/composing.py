"""From what is new to what a person reads: subject, HTML and plain text. No I/O but the templates, and no clock."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cronless_dagster.scheduling.zones import zone

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    import jinja2

    from cronless_dagster.assets.digests.news import Item
    from cronless_dagster.assets.digests.users import DigestUser

MAX_SHOWN = 50
MAX_SUMMARY = 240
MAX_SUBJECT = 120
TEXT_WIDTH = 72
TEMPLATES = Path(__file__).parent / "templates"
_BLANKS_AND_CONTROLS = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029]+")


@dataclass(frozen=True, slots=True)
class Digest:
    """A digest as it is read."""

    subject: str
    html: str
    text: str


@dataclass(frozen=True, slots=True)
class _Line:
    title: str
    link: str | None
    summary: str
    when: str


@dataclass(frozen=True, slots=True)
class _Account:
    name: str
    lines: tuple[_Line, ...]
    more: int


def compose(
    user: DigestUser,
    items: Sequence[Item],
    occurrence: datetime,
    *,
    counts: Mapping[str, int],
    unsubscribe_url: str,
    templates: Path | None = None,
) -> Digest:
    """Return a user's digest.

    Args:
        user: Times are in their zone.
        items: Those to show, the newest first; an account's place is that of its newest item.
        occurrence: The nominal instant; its local date is the digest's.
        counts: How many new items each account has, shown or not.
        unsubscribe_url: Where the link at the end leads.
        templates: A directory whose `digest.html.j2` and `digest.txt.j2` are used in place of ours.

    Raises:
        TimezoneError: The user's zone is unknown.
        jinja2.TemplateError: A template of one's own can't be used.
    """
    tz = zone(user.timezone)
    by_account: dict[str, list[_Line]] = {}
    for item in items:
        line = _Line(
            title=one_line(item.title) or "(untitled)",
            link=web_link(item.url),
            summary=shortened(item.summary, MAX_SUMMARY),
            when=f"{item.at.astimezone(tz):%a %-d %b, %H:%M}",
        )
        by_account.setdefault(item.account, []).append(line)
    accounts = [
        _Account(one_line(name), tuple(lines), max(counts.get(name, 0) - len(lines), 0))
        for name, lines in by_account.items()
    ]
    hidden = sum(count for name, count in counts.items() if name not in by_account)
    values = {
        "user_name": one_line(user.name),
        "date": f"{occurrence.astimezone(tz):%A, %-d %B %Y}",
        "timezone": user.timezone,
        "accounts": accounts,
        "total": max(sum(counts.values()), len(items)),
        "hidden": hidden,
        "subject": _subject(counts or {account.name: len(account.lines) for account in accounts}, accounts),
        "unsubscribe_url": unsubscribe_url,
    }
    html = _environment(templates).get_template("digest.html.j2").render(values)
    text = _environment(templates).get_template("digest.txt.j2").render(values)
    return Digest(str(values["subject"]), html, text)


def one_line(words: str) -> str:
    """Return a text on one line, without control characters: what feeds say ends up in headers too."""
    return _BLANKS_AND_CONTROLS.sub(" ", words).strip()


def shortened(words: str, longest: int) -> str:
    """Return a text on one line of at most so many characters, cut between words."""
    line = one_line(words)
    if len(line) <= longest:
        return line
    cut = line[: longest - 1]
    return f"{cut.rpartition(' ')[0] or cut}…"


def web_link(url: str | None) -> str | None:
    """Return a web address as it may be linked to, or None: `javascript:` and its like never become a link."""
    if not url or _BLANKS_AND_CONTROLS.search(url):
        return None
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return url if parts.scheme in ("http", "https") and parts.netloc else None


def _subject(counts: Mapping[str, int], accounts: Sequence[_Account]) -> str:
    total = sum(counts.values())
    things = f"{total:,} new {'item' if total == 1 else 'items'}"
    others = max(len(counts), len(accounts)) - 1
    name = shortened(accounts[0].name, 60) if accounts else ""
    if others > 0:
        return f"{things} from {name} and {others:,} {'other' if others == 1 else 'others'}"
    return shortened(f"{things} from {name}" if name else things, MAX_SUBJECT)


def _wrapped(words: str, indent: int = 0) -> str:
    blanks = " " * indent
    return textwrap.fill(
        words,
        TEXT_WIDTH,
        initial_indent=blanks,
        subsequent_indent=blanks,
        break_long_words=False,
        break_on_hyphens=False,
    )


@lru_cache(maxsize=8)
def _environment(templates: Path | None) -> jinja2.Environment:
    import jinja2

    directories: list[Any] = [TEMPLATES] if templates is None else [templates, TEMPLATES]
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(directories),
        autoescape=jinja2.select_autoescape(enabled_extensions=("html.j2",)),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["wrapped"] = _wrapped
    return made
