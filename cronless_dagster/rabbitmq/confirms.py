"""Who waits for which of the broker's answers: the bookkeeping of a batch of published messages; no I/O.

A broker in confirm mode numbers what it receives on a channel from 1, and answers each number (its delivery tag)
once, alone or all up to it. A message that no queue takes comes back before its answer, without its number.

Source: https://www.rabbitmq.com/docs/confirms
"""

from __future__ import annotations

from enum import StrEnum
from itertools import takewhile
from typing import NamedTuple


class Delivery(StrEnum):
    """What became of a message that was to be published."""

    STORED = "stored"
    """A queue has it, and keeps it over a restart of the broker."""
    UNROUTABLE = "unroutable"
    """No queue takes its type, and it is nowhere: declare the queue, then publish it once more."""
    NACKED = "nacked"
    """The broker refused it for now, as a full queue does."""
    INVALID = "invalid"
    """It can't be written as a message, and never will."""
    NOT_SENT = "not sent"
    """It never left this process."""
    UNKNOWN = "unknown"
    """Written, but never answered: it may be stored, so it is to be published again with the same id and token."""


class Outcome(NamedTuple):
    """A delivery, and why it isn't `STORED`; None where it is."""

    delivery: Delivery
    error: str | None = None


STORED = Outcome(Delivery.STORED)


class Confirms:
    """Takes down what was sent and what was answered, so that each message ends with exactly one outcome."""

    def __init__(self, count: int, last_tag: int = 0) -> None:
        """Prepare.

        Args:
            count: How many messages the batch has; they go by their index in it.
            last_tag: The delivery tag of the last message sent on the channel before.
        """
        self.last_tag = last_tag
        self._outcomes: list[Outcome | None] = [None] * count
        self._waiting: dict[int, tuple[int, str]] = {}  # in the order of the tags
        self._returned: dict[int, str] = {}

    @property
    def waiting(self) -> int:
        """How many of the messages sent haven't been answered."""
        return len(self._waiting)

    def sent(self, index: int, message_id: str) -> None:
        """Take down that a message was written, which gave it the channel's next tag."""
        self.last_tag += 1
        self._waiting[self.last_tag] = index, message_id

    def invalid(self, index: int, why: str) -> None:
        """Take down that a message can't be written; it has no tag."""
        self._outcomes[index] = Outcome(Delivery.INVALID, why)

    def returned(self, message_id: str, why: str) -> None:
        """Take down that a message came back; its answer follows.

        Messages come back in the order they were sent in, so of several with the same id it is the oldest.
        """
        for tag, (_, waiting_id) in self._waiting.items():
            if waiting_id == message_id and tag not in self._returned:
                self._returned[tag] = why
                return

    def answered(self, tag: int, *, multiple: bool, stored: bool) -> None:
        """Take down the broker's answer to a tag, or to all that wait up to it; tag 0 with `multiple` means all.

        A tag that doesn't wait changes nothing.
        """
        tags = list(takewhile(lambda one: one <= tag or tag == 0, self._waiting)) if multiple else [tag]
        for one in tags:
            waiting = self._waiting.pop(one, None)
            if waiting is not None:
                self._outcomes[waiting[0]] = self._outcome(one, stored=stored)

    def finish(self, why: str) -> list[Outcome]:
        """Close the batch: what waits is `UNKNOWN`, what was never sent `NOT_SENT`, for the reason given.

        Returns:
            One outcome for each message, in their order.
        """
        for index, _ in self._waiting.values():
            self._outcomes[index] = Outcome(Delivery.UNKNOWN, why)
        self._waiting.clear()
        return [outcome or Outcome(Delivery.NOT_SENT, why) for outcome in self._outcomes]

    def _outcome(self, tag: int, *, stored: bool) -> Outcome:
        why = self._returned.pop(tag, None)
        if not stored:
            return Outcome(Delivery.NACKED, "refused by the broker, as a full queue does")
        return STORED if why is None else Outcome(Delivery.UNROUTABLE, why)
