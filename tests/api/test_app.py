"""The application: what is authorised is answered in JSON, and all else by one 404."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from cronless_dagster.api.answers import NOT_FOUND
from cronless_dagster.checks.declaring import Answer
from cronless_dagster.engine.runs import LaunchFailed
from cronless_dagster.rabbitmq.errors import BrokerUnavailable
from cronless_dagster.store.errors import ClockError, DatabaseNotMigrated, DatabaseUnavailable
from tests.api.support import (
    ALL,
    CREDENTIALS,
    KEY,
    OTHER_KEY,
    OTHER_TOKEN,
    PATH,
    TOKEN,
    Asks,
    access_of,
    api_of,
    ask,
    checks_of,
)

if TYPE_CHECKING:
    from tests.api.support import Got

THE_404 = (NOT_FOUND.status, NOT_FOUND.headers, NOT_FOUND.body)
BEARER, SECOND = CREDENTIALS


def got(*arguments: Any, **options: Any) -> Got:
    """Ask once, from outside of any event loop."""
    return asyncio.run(ask(*arguments, **options))


class TestAnswers:
    def test_an_authorised_call_is_answered_in_json(self) -> None:
        """With all members that clients may rely on."""
        asks = Asks(lambda _: Answer(2, {"claimed": 2}, ("a note",)))
        answer = got(api_of(checks_of(dispatch=asks)))
        assert answer.status == 200
        assert answer.header(b"content-type") == b"application/json"
        assert answer.header(b"content-length") == str(len(answer.body)).encode()
        assert answer.json.pop("seconds") >= 0
        found = answer.json
        assert found.pop("now").endswith("Z")
        assert found.pop("seconds") < 60
        assert found == {
            "check": "dispatch",
            "range": ["b" + "0" * 31, "b" + "f" * 31],
            "acted": 2,
            "counts": {"claimed": 2},
            "notes": ["a note"],
        }

    @pytest.mark.parametrize(
        ("query", "low", "high"),
        [
            ("prefix=B", "b" + "0" * 31, "b" + "f" * 31),
            ("prefix=" + "a" * 32, "a" * 32, "a" * 32),
            ("range=0-f", "0" * 32, "f" * 32),
            ("range=00-7F", "0" * 32, "7" + "f" * 31),
            ("range=3-3", "3" + "0" * 31, "3" + "f" * 31),
        ],
    )
    def test_the_ids_are_a_prefix_or_a_range(self, query: str, low: str, high: str) -> None:
        """Both ends of a range are included, however few digits they have."""
        asks = Asks()
        assert got(api_of(checks_of(dispatch=asks)), query=query).json["range"] == [low, high]
        (call,) = asks.calls
        assert (call.ids.low, call.ids.high, call.now) == (UUID(low), UUID(high), None)

    @pytest.mark.parametrize(
        "query",
        [
            "",
            "prefix=",
            "prefix=g",
            "prefix=" + "a" * 33,
            "prefix=a-b",
            "prefix=%20a",
            "prefix=٣",
            "prefix=%D9%A3",
            "prefix=%ff",
            "prefix=a&prefix=b",
            "prefix=a&range=0-f",
            "range=",
            "range=f-0",
            "range=0",
            "range=0-f-f",
            "range=" + "0" * 33 + "-f",
            "prefix=a&other=1",
            "prefix=a&now=2026-03-02T12:00Z",
            "&".join(f"a{n}=" for n in range(50)),
            "prefix=%00",
        ],
    )
    def test_what_cant_be_read_is_one_sentence(self, query: str) -> None:
        """And nothing is asked."""
        asks = Asks()
        answer = got(api_of(checks_of(dispatch=asks)), query=query)
        assert answer.status == 400
        assert list(answer.json) == ["error"]
        assert answer.body.isascii()
        assert b"\n" not in answer.body.rstrip(b"\n")
        assert not asks.calls

    @pytest.mark.parametrize(
        "now",
        [
            "",
            "noon",
            "2026-03-02T12:00",
            "0001-01-01T00:00%2B14:00",
            "9999-12-31T23:59-14:00",
            "1970-01-01T00:00Z",
            "2026-02-30T00:00Z",
        ],
    )
    def test_an_instant_must_be_one(self, now: str) -> None:
        """With its offset, and from years that calendars know."""
        api = api_of(access=access_of(_with_now()))
        assert "now=" in got(api, query=f"prefix=a&now={now}").json["error"]

    def test_who_may_say_what_time_it_is(self) -> None:
        """Is a member of the access file; the instant is told in UTC."""
        asks = Asks()
        api = api_of(checks_of(dispatch=asks), access_of(_with_now()))
        answer = got(api, query="prefix=a&now=2026-03-02T13:00%2B01:00")
        assert answer.json["now"] == "2026-03-02T12:00:00Z"
        assert asks.calls[0].now.isoformat() == "2026-03-02T12:00:00+00:00"

    def test_a_body_within_its_limit_means_nothing(self) -> None:
        """Some schedulers can't leave it out."""
        assert got(api_of(body_bytes=10), body=(b"{", b'"a":1}')).status == 200

    def test_the_description_shows_a_caller_their_own_checks(self) -> None:
        """And holds no secret."""
        headers = _credentials(OTHER_TOKEN, OTHER_KEY)
        answer = got(api_of(), f"/{PATH}/openapi.json", method="GET", headers=headers)
        assert answer.status == 200
        assert list(answer.json["paths"]) == ["/checks/other"]
        assert PATH.encode() not in answer.body


class TestNotFound:
    @pytest.mark.parametrize(
        ("path", "method", "headers"),
        [
            pytest.param("/", "GET", CREDENTIALS, id="no path"),
            pytest.param("", "POST", CREDENTIALS, id="empty path"),
            pytest.param(f"/{PATH}", "POST", CREDENTIALS, id="secret alone"),
            pytest.param(f"/{PATH}/checks", "POST", CREDENTIALS, id="no check"),
            pytest.param(f"/{PATH}/checks/", "POST", CREDENTIALS, id="empty check"),
            pytest.param(f"/{PATH}/checks/nothing", "POST", CREDENTIALS, id="unknown check"),
            pytest.param(f"/{PATH}/checks/dispatch/", "POST", CREDENTIALS, id="slash"),
            pytest.param(f"/{PATH}/dispatch", "POST", CREDENTIALS, id="not below checks"),
            pytest.param(f"//{PATH}/checks/dispatch", "POST", CREDENTIALS, id="two slashes"),
            pytest.param(f"/{PATH[:-1]}/checks/dispatch", "POST", CREDENTIALS, id="short secret"),
            pytest.param("/wrong/checks/dispatch", "POST", CREDENTIALS, id="wrong secret"),
            pytest.param("/\udcff/checks/dispatch", "POST", CREDENTIALS, id="no unicode"),
            pytest.param("/healthz", "GET", CREDENTIALS, id="health"),
            pytest.param("/metrics", "GET", CREDENTIALS, id="metrics"),
            pytest.param("/openapi.json", "GET", CREDENTIALS, id="description without secret"),
            pytest.param(f"/{PATH}/openapi.json", "GET", (BEARER,), id="description unauthorised"),
            pytest.param(f"/{PATH}/openapi.json", "POST", CREDENTIALS, id="description posted"),
            *(
                pytest.param(f"/{PATH}/checks/dispatch", method, CREDENTIALS, id=method)
                for method in ("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE", "PATCH", "post", "X")
            ),
            pytest.param(f"/{PATH}/checks/dispatch", "POST", (), id="no headers"),
            pytest.param(f"/{PATH}/checks/dispatch", "POST", (BEARER,), id="no key"),
            pytest.param(f"/{PATH}/checks/dispatch", "POST", (SECOND,), id="no token"),
            pytest.param(f"/{PATH}/checks/dispatch", "POST", (BEARER, BEARER, SECOND), id="two tokens"),
            pytest.param(f"/{PATH}/checks/dispatch", "POST", (BEARER, SECOND, SECOND), id="two keys"),
        ],
    )
    def test_all_that_isnt_authorised_looks_alike(self, path: str, method: str, headers: Any) -> None:
        """Byte for byte, and nothing is asked."""
        asks = Asks()
        answer = got(api_of(checks_of(dispatch=asks, other=asks)), path, method=method, headers=headers)
        assert (answer.status, answer.headers, answer.body) == THE_404
        assert not asks.calls

    @pytest.mark.parametrize(
        ("token", "key"),
        [
            (TOKEN[:-1] + "x", KEY),
            ("x" + TOKEN[1:], KEY),
            (TOKEN, KEY[:-1] + "x"),
            (TOKEN, OTHER_KEY),
            (OTHER_TOKEN, KEY),
            (KEY, TOKEN),
            ("", ""),
            (TOKEN + " x", KEY),
            (TOKEN, KEY + " "),
        ],
    )
    def test_both_tokens_must_be_of_one_caller(self, token: str, key: str) -> None:
        """A right one does nothing for a wrong one."""
        answer = got(api_of(), headers=_credentials(token, key))
        assert (answer.status, answer.headers, answer.body) == THE_404

    def test_a_check_of_others_looks_like_none(self) -> None:
        """The caller "few" may call "other" alone."""
        headers = _credentials(OTHER_TOKEN, OTHER_KEY)
        assert got(api_of(), f"/{PATH}/checks/other", headers=headers).status == 200
        answer = got(api_of(), headers=headers)
        assert (answer.status, answer.headers, answer.body) == THE_404

    def test_a_body_too_large_is_not_read(self) -> None:
        """Neither by what it says of itself nor, in pieces, beyond the limit."""
        said = got(
            api_of(body_bytes=10), headers=(*CREDENTIALS, (b"content-length", b"11")), body=(b"a" * 11,)
        )
        assert (said.status, said.headers, said.body, said.received) == (*THE_404, 0)
        pieces = got(api_of(body_bytes=10), body=(b"a" * 6,) * 5)
        assert (pieces.status, pieces.headers, pieces.body, pieces.received) == (*THE_404, 2)

    @pytest.mark.parametrize("length", [b"", b"-1", b"4097", b"9" * 5_000])
    def test_a_length_that_cant_be_is_not_read(self, length: bytes) -> None:
        """Nor does it end in a fault of ours, whatever the server lets through."""
        answer = got(api_of(), headers=(*CREDENTIALS, (b"content-length", length)))
        assert (answer.status, answer.received) == (404, 0)

    def test_a_body_of_a_stranger_is_not_read(self) -> None:
        """However small."""
        assert got(api_of(), headers=(), body=(b"a",)).received == 0

    def test_websockets_are_refused(self) -> None:
        """Before they are accepted."""
        sent = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def run() -> None:
            await api_of()({"type": "websocket", "path": f"/{PATH}/checks/dispatch"}, None, send)  # type: ignore[arg-type]

        asyncio.run(run())
        assert sent == [{"type": "websocket.close"}]


class TestTrouble:
    @pytest.mark.parametrize(
        ("error", "status", "words"),
        [
            (DatabaseUnavailable("the database at db.internal is away"), 503, "the database"),
            (DatabaseNotMigrated("no schema"), 503, "the database"),
            (BrokerUnavailable("rabbit.internal is away"), 503, "the broker"),
            (LaunchFailed("dagster.internal is away", made=False), 503, "Dagster"),
            (ClockError("now is refused: the clock is real"), 400, "now is refused"),
            (ZeroDivisionError("secret detail"), 500, "ZeroDivisionError"),
        ],
    )
    def test_each_trouble_has_its_status(self, error: Exception, status: int, words: str) -> None:
        """And a sentence without what others need not know; what may pass says when to come again."""

        def fails(_: Any) -> Answer:
            raise error

        answer = got(api_of(checks_of(dispatch=Asks(fails))))
        assert answer.status == status
        assert words in answer.json["error"]
        assert b"internal" not in answer.body
        assert b"secret" not in answer.body
        assert (answer.header(b"retry-after") is not None) == (status == 503)

    def test_a_caller_that_calls_too_often_is_told_when_to_come_again(self) -> None:
        """Ten seconds' worth comes at once; one caller's haste is not another's."""
        api = api_of(calls_per_second=0.5)

        async def run() -> list[Got]:
            mine = [await ask(api) for _ in range(6)]
            other = await ask(api, f"/{PATH}/checks/other", headers=_credentials(OTHER_TOKEN, OTHER_KEY))
            return [*mine, other]

        answers = asyncio.run(run())
        assert [one.status for one in answers] == [200] * 5 + [429, 200]
        assert answers[5].header(b"retry-after") == b"2"

    def test_strangers_use_up_nobodys_rate(self) -> None:
        """Only who is authorised is counted."""
        api = api_of(calls_per_second=0.1)

        async def run() -> Got:
            for _ in range(20):
                await ask(api, headers=(BEARER,))
            return await ask(api)

        assert asyncio.run(run()).status == 200

    def test_too_many_at_once_are_told_to_come_again(self) -> None:
        """Those that run are not disturbed."""
        go = threading.Event()

        def waits(_: Any) -> Answer:
            assert go.wait(60)
            return Answer(1, {}, ())

        async def run() -> list[int]:
            api = api_of(checks_of(dispatch=Asks(waits)), threads=1, at_once=3)
            calls = [asyncio.create_task(ask(api)) for _ in range(3)]
            while api.asking.open < 3:
                await asyncio.sleep(0)
            surplus = await ask(api)
            go.set()
            answers = [surplus, *(await asyncio.gather(*calls))]
            assert api.asking.open == 0
            return [one.status for one in answers]

        assert asyncio.run(run()) == [503, 200, 200, 200]

    def test_what_nobody_waits_for_any_longer_does_not_begin(self) -> None:
        """A call that got no thread in time is not carried out after its caller was sent away."""
        go = threading.Event()

        def waits(_: Any) -> Answer:
            assert go.wait(60)
            return Answer(1, {}, ())

        async def run() -> list[int]:
            asks = Asks(waits)
            api = api_of(checks_of(dispatch=asks), threads=1, seconds=60)
            calls = [asyncio.create_task(ask(api)) for _ in range(3)]
            while api.asking.open < 3 or not asks.calls:
                await asyncio.sleep(0)
            api.asking.cut_off()
            statuses = [one.status for one in await asyncio.gather(*calls)]
            go.set()
            while api.asking.open:
                await asyncio.sleep(0)
            assert len(asks.calls) == 1
            return statuses

        assert asyncio.run(run()) == [503] * 3

    @pytest.mark.parametrize("cut_off", [True, False])
    def test_nobody_waits_for_ever(self, cut_off: bool) -> None:
        """Whether their time is up or the node's; the check goes on, and is counted as open until it ends."""
        go = threading.Event()

        def waits(_: Any) -> Answer:
            assert go.wait(60)
            return Answer(1, {}, ())

        async def run() -> int:
            api = api_of(checks_of(dispatch=Asks(waits)), seconds=60 if cut_off else 0.01)
            call = asyncio.create_task(ask(api))
            while api.asking.open < 1:
                await asyncio.sleep(0)
            if cut_off:
                api.asking.cut_off()
            status = (await call).status
            assert api.asking.open == 1
            go.set()
            while api.asking.open:
                await asyncio.sleep(0)
            return status

        assert asyncio.run(run()) == 503


class TestLog:
    def test_a_call_is_one_line_without_secrets(self, caplog: pytest.LogCaptureFixture) -> None:
        """Caller, check, range, status and milliseconds."""
        with caplog.at_level(logging.DEBUG):
            got(api_of())
        (line,) = _ours(caplog)
        assert line.startswith(
            f"check.answered caller=all check=dispatch range=b{'0' * 31}-b{'f' * 31} status=200"
        )
        assert "ms=" in line
        _holds_no_secret(caplog)

    def test_a_scan_does_not_fill_the_log(self, caplog: pytest.LogCaptureFixture) -> None:
        """The first is told at once, and the others in one line later."""
        api = api_of()

        async def run() -> None:
            for _ in range(50):
                await ask(api, f"/{PATH}/checks/nothing")
                await ask(api, headers=(BEARER,), peer="192.0.2.7")

        with caplog.at_level(logging.DEBUG):
            asyncio.run(run())
        (line,) = _ours(caplog)
        assert line.startswith("check.refused count=1")
        _holds_no_secret(caplog)

    @pytest.mark.parametrize("fails", [DatabaseUnavailable("away"), ValueError("bad")])
    def test_trouble_is_logged(self, caplog: pytest.LogCaptureFixture, fails: Exception) -> None:
        """With its cause, which the caller isn't told."""

        def raises(_: Any) -> Answer:
            raise fails

        with caplog.at_level(logging.DEBUG):
            got(api_of(checks_of(dispatch=Asks(raises))))
        assert str(fails) in caplog.text
        expected = "check.failed" if isinstance(fails, ValueError) else "check.unavailable"
        assert [getattr(one, "event", None) for one in caplog.records if one.levelno >= logging.WARNING] == [
            expected
        ]
        _holds_no_secret(caplog)


def _credentials(token: str, key: str) -> tuple[tuple[bytes, bytes], ...]:
    return ((b"authorization", f"Bearer {token}".encode()), (b"x-cronless-key", key.encode()))


def _with_now() -> Any:
    from dataclasses import replace

    return replace(ALL, now=True)


def _ours(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name.startswith("cronless_dagster")]


def _holds_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    text = caplog.text + json.dumps([str(record.__dict__) for record in caplog.records])
    for secret in (PATH, TOKEN, KEY):
        assert secret not in text
