"""The chart of the minute waves: an SVG small enough to be kept with each materialization.

Its colours are its own, for a light and a dark page, and it is legible on either.
"""

from __future__ import annotations

import base64
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cronless_dagster.assets.minute_waves import DAY_MINUTES, busiest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cronless_dagster.assets.minute_waves import Minutes

_LEFT, _TOP, _HEIGHT = 56, 44, 150
_PER_MINUTE = 0.6
_WIDE = round(DAY_MINUTES * _PER_MINUTE)
_SIZE = (_LEFT + _WIDE + 20, _TOP + _HEIGHT + 30)
_LABEL_ROOM = 96
_STYLE = (
    "text{font:11px system-ui,sans-serif;fill:#5b6472}.t{font-weight:600;font-size:13px;fill:#1d2430}"
    ".c{fill:#fff;stroke:#d8dde5}.g{stroke:#e6e9ef}.b{fill:#4f6bed}.p{fill:#c4481c;font-weight:600}"
    "@media(prefers-color-scheme:dark){text{fill:#a9b2c0}.t{fill:#eef1f6}.c{fill:#171c26;stroke:#363e4c}"
    ".g{stroke:#2a313d}.b{fill:#8ea2ff}.p{fill:#ff9b73}}"
)


def svg(minutes: Minutes, start: datetime) -> str:
    """Draw the 24 hours from `start` (UTC): a bar a minute, a mark every three hours, the busiest minutes named.

    Holds numbers and times only, no name of a job type or tenant.
    """
    first = start.replace(second=0, microsecond=0)
    level = {minute: sum(by_type.values()) for minute, by_type in minutes.items()}
    top = _round_up(max(level.values(), default=0))
    width, height = _SIZE
    total = sum(level.values())
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
            f' role="img"><title>Jobs becoming due by minute</title><style>{_STYLE}</style>'
        ),
        f'<rect class="c" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8"/>',
        (
            f'<text class="t" x="{_LEFT}" y="22">{total:,} jobs due in 24 h from {first:%Y-%m-%d %H:%M} UTC, by minute'
            "</text>"
        ),
    ]
    for part in (0, 0.5, 1):
        y = _TOP + _HEIGHT * (1 - part)
        parts.append(f'<path class="g" d="M{_LEFT} {y:g}h{_WIDE}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:g}" text-anchor="end">{_short(top * part)}</text>')
    parts += [_hour(first, hour) for hour in range(25) if (first + timedelta(hours=hour)).hour % 3 == 0]
    parts.append(f'<path class="b" d="{_bars(level, first, top)}"/>')
    parts += _names(minutes, first, top)
    return "".join([*parts, "</svg>"])


def as_image(drawing: str, alt: str) -> str:
    """Return a drawing as an image in Markdown; no bracket may be in its description."""
    return f"![{alt}](data:image/svg+xml;base64,{base64.b64encode(drawing.encode()).decode()})"


def _hour(first: datetime, hour: int) -> str:
    at = (first + timedelta(hours=hour)).replace(minute=0)
    minute = (at - first) // timedelta(minutes=1)
    if not 0 <= minute <= DAY_MINUTES:
        return ""
    x, bottom = _x(minute), _TOP + _HEIGHT
    return (
        f'<path class="g" d="M{x:g} {_TOP}v{_HEIGHT + 5}"/>'
        f'<text x="{x:g}" y="{bottom + 18}" text-anchor="middle">{at:%H:%M}</text>'
    )


def _bars(level: Mapping[datetime, int], first: datetime, top: int) -> str:
    """Return one path for all minutes; neighbours of one height are one bar, and any job at all is seen."""
    heights = [
        max(round(level.get(first + timedelta(minutes=n), 0) / top * _HEIGHT), 1)
        if level.get(first + timedelta(minutes=n))
        else 0
        for n in range(DAY_MINUTES)
    ]
    path, begin = [], 0
    for n in range(1, DAY_MINUTES + 1):
        if n < DAY_MINUTES and heights[n] == heights[begin]:
            continue
        if height := heights[begin]:
            # A lone minute is widened to what a screen can show.
            wide = max((n - begin) * _PER_MINUTE, 1.2)
            path.append(f"M{_x(begin):g} {_TOP + _HEIGHT}v-{height}h{wide:g}v{height}z")
        begin = n
    return "".join(path)


def _names(minutes: Minutes, first: datetime, top: int) -> list[str]:
    """Label the busiest minutes, those that find room beside the busier ones."""
    placed: list[float] = []
    labels = []
    for wave in busiest(minutes):
        minute = (wave.minute - first) // timedelta(minutes=1)
        middle = min(max(_x(minute), _LEFT + _LABEL_ROOM / 2), _LEFT + _WIDE - _LABEL_ROOM / 2)
        if not 0 <= minute < DAY_MINUTES or any(abs(middle - other) < _LABEL_ROOM for other in placed):
            continue
        placed.append(middle)
        y = _TOP + _HEIGHT * (1 - wave.jobs / top) - 4
        labels.append(
            f'<text class="p" x="{middle:g}" y="{y:.0f}" text-anchor="middle">'
            f"{wave.minute:%H:%M} · {wave.jobs:,}</text>"
        )
    return labels


def _x(minute: float) -> float:
    return round(_LEFT + minute * _PER_MINUTE, 1)


def _round_up(number: int) -> int:
    """Return the next even 1, 2 or 5 times a power of ten: what an axis ends with."""
    step = 1
    while True:
        for times in (2, 5, 10):
            if number <= times * step:
                return times * step
        step *= 10


def _short(number: float) -> str:
    if number >= 1_000_000:
        return f"{number / 1_000_000:g} M"
    return f"{number / 1_000:g} k" if number >= 10_000 else f"{number:g}"
