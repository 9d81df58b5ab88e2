"""Making the calls of a minute: at once, within a time, again where it may help."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING

from .connecting import Answer, Connection, NoAnswer, tls_context
from .judging import Judged, judge, one_line, retry_after, wait_before
from .outcomes import Outcome, Summary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .addresses import Target
    from .calls import Call
    from .config import Config
    from .credentials import Credentials


def send(
    config: Config,
    credentials: Credentials,
    minute: datetime,
    calls: Sequence[Call],
    *,
    seconds: float | None = None,
    missed: int = 0,
) -> Summary:
    """Make the calls and return what became of them, at the latest when their time is up.

    Args:
        config: As it was read.
        credentials: Who calls.
        minute: Whose calls they are; its beginning, UTC.
        calls: Of `calls_of`.
        seconds: How long they may take in all, where that is less than the configuration says.
        missed: How many minutes before it were passed over, for the summary.

    Raises:
        ClientError: The configured certificates can't be read.
    """
    began = monotonic()
    budget = min(
        config.sending.deadline_seconds, config.sending.deadline_seconds if seconds is None else seconds
    )
    sender = _Sender(config, credentials, began + budget)
    waiting = {target.name: _Waiting(target) for target in config.targets}
    for number, call in enumerate(calls):
        waiting[call.target].calls.append((number, call))
    for one in waiting.values():
        sender.start(one)
    outcomes = dict(enumerate(Outcome(call=call, answered=False, problem=_NO_TIME) for call in calls))
    outcomes |= sender.ended(len(calls))
    return Summary(minute, tuple(outcomes.values()), monotonic() - began, missed)


_NO_TIME = "the minute's time was up"


class _Waiting:
    """The calls of a target that nobody has taken yet."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.calls: deque[tuple[int, Call]] = deque()


class _Sender:
    """Threads that make calls. They are left behind when the time is up, whatever they wait for."""

    def __init__(self, config: Config, credentials: Credentials, until: float) -> None:
        self._sending, self._credentials, self._until = config.sending, credentials, until
        self._context = (
            tls_context(config.sending.ca_file) if any(one.secure for one in config.called) else None
        )
        self._ended: SimpleQueue[tuple[int, Outcome]] = SimpleQueue()

    def start(self, waiting: _Waiting) -> None:
        """Begin with the calls of a target."""
        for _ in range(min(self._sending.concurrency, len(waiting.calls))):
            Thread(target=self._work, args=(waiting,), name="cronless-client", daemon=True).start()

    def ended(self, count: int) -> dict[int, Outcome]:
        """Wait for so many calls, or until the time is up, and return what ended, by number."""
        ended: dict[int, Outcome] = {}
        while len(ended) < count:
            try:
                number, outcome = self._ended.get(timeout=max(0.0, self._until - monotonic()))
            except Empty:
                break
            ended[number] = outcome
        return ended

    def _work(self, waiting: _Waiting) -> None:
        connection = Connection(waiting.target, self._sending, self._context)
        try:
            while monotonic() < self._until:
                try:
                    number, call = waiting.calls.popleft()
                except IndexError:
                    return
                self._ended.put((number, self._called(connection, waiting.target, call)))
        finally:
            connection.close()

    def _called(self, connection: Connection, target: Target, call: Call) -> Outcome:
        """Make one call until it is answered, or hopeless, or no time is left."""
        began = monotonic()
        outcome = Outcome(call=call, answered=False)
        for retry in range(self._sending.retries.most + 1):
            judged, answer = self._tried(connection, target, call)
            outcome = replace(
                outcome,
                answered=judged.answered,
                status=answer.status if answer else None,
                acted=judged.acted,
                tries=retry + 1,
                seconds=monotonic() - began,
                problem=one_line(self._credentials.hidden(judged.problem)),
            )
            asked = retry_after(answer.retry_after if answer else None, datetime.now(UTC))
            wait = wait_before(retry, self._sending.retries, random.random(), asked)  # noqa: S311 - no secret
            if not judged.again or retry == self._sending.retries.most or monotonic() + wait >= self._until:
                break
            sleep(wait)
        return outcome

    def _tried(self, connection: Connection, target: Target, call: Call) -> tuple[Judged, Answer | None]:
        path = f"{target.base}/{self._credentials.path}/checks/{call.check}?{call.query}"
        seconds = max(0.0, min(self._sending.timeout_seconds, self._until - monotonic()))
        try:
            answer = connection.post(path, self._credentials.headers(), seconds)
        except NoAnswer as error:
            return Judged(answered=False, again=error.again, problem=str(error)), None
        return judge(call, answer), answer
