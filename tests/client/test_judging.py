"""What answers mean, and when a call is made again."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronless_dagster.client.calls import Call
from cronless_dagster.client.config import Retries
from cronless_dagster.client.connecting import Answer
from cronless_dagster.client.judging import judge, one_line, retry_after, wait_before
from cronless_dagster.client.parts import FULL

CALL = Call("eu", "dispatch", FULL)
NINE = datetime(2026, 12, 1, 9, tzinfo=UTC)


def test_an_answer_of_the_check() -> None:
    """200 with the check's own name and a count is an answer."""
    judged = judge(CALL, Answer(200, None, b'{"check": "dispatch", "acted": 3}'))
    assert (judged.answered, judged.acted) == (True, 3)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"<html>log in first</html>", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"check": "dispatch"}',
        b'{"check": "rescue", "acted": 1}', b'{"check": "dispatch", "acted": true}',
    ],
)  # fmt: skip
def test_200_of_somebody_else_is_no_answer(body: bytes) -> None:
    """A page of a proxy or of another service doesn't pass for an answer."""
    judged = judge(CALL, Answer(200, None, body))
    assert (judged.answered, judged.again) == (False, False)
    assert "no check's answer" in judged.problem


@pytest.mark.parametrize(
    ("status", "again", "words"),
    [
        (204, False, "204"),
        (301, False, "write the final address"),
        (400, False, "400: the prefix is wrong"),
        (401, False, "401"),
        (404, False, "the access file"),
        (429, True, "429: the prefix is wrong"),
        (500, True, "500"),
        (503, True, "503"),
    ],
)
def test_only_what_may_change_is_tried_again(status: int, again: bool, words: str) -> None:
    """429 and 5xx are worth another try; a call that is wrong stays wrong."""
    judged = judge(CALL, Answer(status, None, json.dumps({"error": "the prefix is wrong"}).encode()))
    assert (judged.answered, judged.again) == (False, again)
    assert words in judged.problem


def test_what_a_server_says_stays_on_a_short_line() -> None:
    """Control characters and endless sentences of a server don't get into a log."""
    said = one_line("a\x1b[2J\n" + "b" * 10_000)
    assert said.isprintable()
    assert len(said) == 200


@given(st.integers(0, 20), st.floats(0, 1), st.floats(0, 3_600))
def test_waits_are_random_and_bounded(retry: int, chance: float, asked: float) -> None:
    """Never less than the server asked for, never more than the cap beyond it."""
    wait = wait_before(retry, Retries(base_seconds=0.5, cap_seconds=5), chance, asked)
    assert asked <= wait <= asked + min(5, 0.5 * 2**retry)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, 0),
        ("", 0),
        ("7", 7),
        ("-7", 0),
        ("soon", 0),
        ("Tue, 01 Dec 2026 09:00:30 +99999999999999", 0),
        ("Tue, 01 Dec 99999999999999999999 09:00:30 GMT", 0),
        ("Tue, 01 Dec 2026 09:00:30 GMT", 30),
        ("Tue, 01 Dec 2026 08:00:00 GMT", 0),
        ("Tue, 01 Dec 2026 09:00:30 -0000", 30),
    ],
)
def test_retry_after(text: str | None, seconds: float) -> None:
    """Seconds or a date; what can't be read asks for nothing."""
    assert retry_after(text, NINE) == seconds
