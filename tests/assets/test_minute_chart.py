"""The chart: well-formed, small, and at the scale of what it shows."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree as ET

from cronless_dagster.assets.minute_chart import as_image, svg

NOW = datetime(2026, 3, 2, 12, 34, 56, tzinfo=UTC)
NOON = NOW.replace(minute=0, second=0)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


def texts(drawing: str) -> list[str]:
    """Return all words of the chart; a drawing that is no XML raises."""
    return [one.text or "" for one in ET.fromstring(drawing).iter("{http://www.w3.org/2000/svg}text")]  # noqa: S314


def test_marks_and_names() -> None:
    """A mark every three hours, the axis ends with an even number, the busiest minutes are named."""
    words = texts(svg({NOON + 6 * HOUR: {"digest": 2_310}, NOON + 18 * HOUR: {"a": 400, "b": 500}}, NOW))
    assert [word for word in words if re.fullmatch(r"\d\d:00", word)] == [
        "15:00", "18:00", "21:00", "00:00", "03:00", "06:00", "09:00", "12:00",
    ]  # fmt: skip
    assert "5000" in words
    assert {"18:00 · 2,310", "06:00 · 900"} <= set(words)
    assert "3,210 jobs due in 24 h from 2026-03-02 12:34 UTC, by minute" in words


def test_names_that_would_cover_each_other() -> None:
    """Of neighbours the busiest is named."""
    words = texts(svg({NOON + HOUR + n * MINUTE: {"digest": 100 - n} for n in range(5)}, NOW))
    assert [word for word in words if "·" in word] == ["13:00 · 100"]


def test_heights() -> None:
    """As high as its share of the axis; a single job is seen beside thousands; equal neighbours are one bar."""
    minutes = {NOON + HOUR: {"a": 10_000}, NOON + 2 * HOUR: {"a": 1}, NOON + 2 * HOUR + MINUTE: {"a": 1}}
    [path] = re.findall(r'class="b" d="([^"]*)"', svg(minutes, NOW))
    assert re.findall(r"v-(\d+)", path) == ["150", "1"]


def test_nothing_and_everything() -> None:
    """An empty day is a chart too, and a day of 1,440 different minutes stays small."""
    assert "0 jobs due in 24 h from 2026-03-02 12:34 UTC, by minute" in texts(svg({}, NOW))
    full = svg({NOON + n * MINUTE: {"a": 1 + n * 7919 % 10_007} for n in range(1_500)}, NOW)
    assert len(full) < 50_000


def test_as_an_image() -> None:
    """Markdown with the drawing in it, which needs no server to be shown."""
    found = re.fullmatch(
        r"!\[by minute\]\(data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)\)", as_image("<svg/>", "by minute")
    )
    assert found is not None
    assert base64.b64decode(found[1]) == b"<svg/>"
