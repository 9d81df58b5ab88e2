"""The bookkeeping of published messages: whatever is answered in whatever order, each has exactly one outcome."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cronless_dagster.rabbitmq.confirms import STORED, Confirms, Delivery

ANSWERED = [Delivery.STORED, Delivery.UNROUTABLE, Delivery.NACKED]


class SimulatedBroker:
    """Answers tags as a broker may: in any order, alone or all up to one, each once, after what comes back."""

    def __init__(self, confirms: Confirms, data: st.DataObject) -> None:
        self.confirms, self.data = confirms, data
        self.fates: dict[int, tuple[str, Delivery]] = {}

    def receive(self, index: int, message_id: str, fate: Delivery) -> None:
        """Take a message; one that no queue takes comes back at once, and is answered later."""
        self.confirms.sent(index, message_id)
        self.fates[self.confirms.last_tag] = message_id, fate
        if fate is Delivery.UNROUTABLE:
            self.confirms.returned(message_id, "nobody")

    def answer_some(self) -> None:
        """Answer a tag, or all up to one that have the same answer."""
        due = [tag for tag, (_, fate) in self.fates.items() if fate in ANSWERED]
        if not due:
            return
        tag = self.data.draw(st.sampled_from(due), label="tag")
        stored = self.fates[tag][1] is not Delivery.NACKED
        older = [one for one in self.fates if one <= tag]
        alike = all(
            self.fates[one][1] in ANSWERED and (self.fates[one][1] is not Delivery.NACKED) == stored
            for one in older
        )
        multiple = alike and self.data.draw(st.booleans(), label="multiple")
        whole = multiple and len(older) == len(self.fates) and self.data.draw(st.booleans(), label="all")
        self.confirms.answered(0 if whole else tag, multiple=multiple, stored=stored)
        for one in older if multiple else [tag]:
            del self.fates[one]


@given(
    fates=st.lists(st.sampled_from(list(Delivery)), max_size=30), last_tag=st.integers(0, 5), data=st.data()
)
def test_each_message_ends_as_it_fared(fates: list[Delivery], last_tag: int, data: st.DataObject) -> None:
    """Sent, sent back, confirmed, refused, unanswered or never sent: that is its outcome, at its own place."""
    confirms = Confirms(len(fates), last_tag)
    broker = SimulatedBroker(confirms, data)
    # Few ids, so that several messages under way share one; those of one id fare alike, as they have one key.
    ids = [f"{fate}-{data.draw(st.integers(0, 2), label='id')}" for fate in fates]
    for index, fate in enumerate(fates):
        if fate is Delivery.INVALID:
            confirms.invalid(index, "not writable")
        elif fate is not Delivery.NOT_SENT:
            broker.receive(index, ids[index], fate)
        for _ in range(data.draw(st.integers(0, 2), label="answers")):
            broker.answer_some()
    while any(fate in ANSWERED for _, fate in broker.fates.values()):
        broker.answer_some()

    assert confirms.waiting == fates.count(Delivery.UNKNOWN)
    outcomes = confirms.finish("the end")
    assert [outcome.delivery for outcome in outcomes] == fates
    reasons = {Delivery.STORED: None, Delivery.UNROUTABLE: "nobody", Delivery.INVALID: "not writable"}
    for outcome in outcomes:
        if outcome.delivery is not Delivery.NACKED:
            assert outcome.error == reasons.get(outcome.delivery, "the end")
    sent = sum(fate not in (Delivery.INVALID, Delivery.NOT_SENT) for fate in fates)
    assert confirms.last_tag == last_tag + sent
    assert confirms.waiting == 0


def test_an_answer_to_nobody_changes_nothing() -> None:
    """A tag that was answered before, or never sent, and an id that isn't under way are left alone."""
    confirms = Confirms(2, last_tag=7)
    confirms.sent(0, "a")
    confirms.answered(8, multiple=False, stored=True)
    confirms.answered(8, multiple=True, stored=False)
    confirms.answered(9, multiple=False, stored=False)
    confirms.returned("b", "nobody")
    confirms.sent(1, "b")
    confirms.answered(9, multiple=False, stored=True)
    assert confirms.finish("") == [STORED, STORED]


def test_of_two_with_one_id_the_older_one_came_back() -> None:
    """A message that comes back has no tag, and they come back in order."""
    confirms = Confirms(2)
    confirms.sent(0, "same")
    confirms.returned("same", "no queue yet")
    confirms.sent(1, "same")
    confirms.answered(2, multiple=True, stored=True)
    assert [outcome.delivery for outcome in confirms.finish("")] == [Delivery.UNROUTABLE, Delivery.STORED]


def test_two_with_one_id_that_both_came_back() -> None:
    """Each of them did, though both did so before either was answered."""
    confirms = Confirms(2)
    confirms.sent(0, "same")
    confirms.sent(1, "same")
    confirms.returned("same", "no queue")
    confirms.returned("same", "no queue")
    confirms.answered(2, multiple=True, stored=True)
    assert [outcome.delivery for outcome in confirms.finish("")] == [Delivery.UNROUTABLE] * 2
