from __future__ import annotations

import pytest

from cronless_dagster.scheduling.limits import (
    LimitError,
    Limits,
    equal_shares,
    rows_for_requests,
    rows_for_tenant,
    rows_to_claim,
)
from tests.scheduling.jobs import at

FREE = Limits(open_claims=None)


class TestRowsToClaim:
    @pytest.mark.parametrize(
        ("due", "in_flight", "open_claims", "limits", "rows"),
        [
            (7, 0, 0, FREE, 7),
            (5000, 0, 0, FREE, 500),
            (5000, 10**6, 10**6, FREE, 500),
            (5000, 0, 2, Limits(), 500),
            (5000, 900, 0, Limits(in_flight=1000), 100),
            (50, 900, 0, Limits(in_flight=1000), 50),
            (5000, 100, 0, Limits(in_flight=1000), 500),
            (5000, 0, 0, Limits(per_tenant=1), 500),
        ],
    )
    def test_rows(self, due: int, in_flight: int, open_claims: int, limits: Limits, rows: int) -> None:
        """The smallest of what is due, the batch and the room that the limits leave."""
        assert rows_to_claim(due, in_flight, open_claims, 500, limits) == (rows, None)

    @pytest.mark.parametrize(
        ("due", "in_flight", "open_claims", "limits", "reason"),
        [
            (0, 0, 0, FREE, "nothing is due"),
            (5, 0, 3, Limits(), "3 claims are open and the limit is 3"),
            (5, 0, 4, Limits(), "4 claims are open and the limit is 3"),
            (5, 1000, 0, Limits(in_flight=1000), "1000 jobs are in flight and the limit is 1000"),
            (5, 1400, 0, Limits(in_flight=1000), "1400 jobs are in flight and the limit is 1000"),
        ],
    )
    def test_reason(self, due: int, in_flight: int, open_claims: int, limits: Limits, reason: str) -> None:
        """A tick that takes nothing can say why; going over a limit is no more than reaching it."""
        assert rows_to_claim(due, in_flight, open_claims, 500, limits) == (0, reason)


class TestRowsForRequests:
    EARLY, LATE = at("2026-03-02T09:00"), at("2026-03-02T10:00")

    @pytest.mark.parametrize(
        ("open_claims", "limits", "rows"),
        [
            (0, Limits(), 100),
            (1, Limits(), 100),
            (2, Limits(), 0),
            (99, FREE, 100),
            (0, Limits(in_flight=500), 50),
            (2, Limits(in_flight=500), 0),
        ],
    )
    def test_what_is_due_keeps_a_place(self, open_claims: int, limits: Limits, rows: int) -> None:
        """Beside what is due, requests get no last place and half of the room, however long they have waited."""
        assert rows_for_requests(100, open_claims, limits, self.EARLY, self.LATE) == rows
        assert rows_for_requests(100, open_claims, limits, self.EARLY, None) == 100

    @pytest.mark.parametrize(
        ("rows", "limits", "served"), [(100, Limits(open_claims=1), 100), (1, Limits(in_flight=9), 1)]
    )
    def test_the_only_place_goes_to_who_waits_longest(self, rows: int, limits: Limits, served: int) -> None:
        """Where there is room for one, neither requests nor what is due wait for ever."""
        assert rows_for_requests(rows, 0, limits, self.EARLY, self.LATE) == served
        assert rows_for_requests(rows, 0, limits, self.LATE, self.EARLY) == 0
        assert rows_for_requests(rows, 0, limits, self.EARLY, self.EARLY) == 0


class TestEqualShares:
    @pytest.mark.parametrize(
        ("most", "rows", "shares"),
        [
            ([9, 9, 9], 6, [2, 2, 2]),
            ([9, 9, 9], 7, [3, 2, 2]),
            ([9, 9, 9], 2, [1, 1, 0]),
            ([1, 9, 1], 6, [1, 4, 1]),
            ([1, 2, 9, 9], 12, [1, 2, 5, 4]),
            ([1, 2], 12, [1, 2]),
            ([0, 3], 2, [0, 2]),
            ([], 5, []),
        ],
    )
    def test_shares(self, most: list[int], rows: int, shares: list[int]) -> None:
        """Equal parts, and what one can't use goes to those that can, until the rows or the wants are out."""
        assert list(equal_shares({str(n): one for n, one in enumerate(most)}, rows).values()) == shares


class TestRowsForTenant:
    @pytest.mark.parametrize(
        ("due", "in_flight", "limits", "rows"),
        [
            (9, 4, Limits(), 9),
            (0, 4, Limits(), 0),
            (9, 4, Limits(per_tenant=10), 6),
            (3, 4, Limits(per_tenant=10), 3),
            (9, 12, Limits(per_tenant=10), 0),
        ],
    )
    def test_rows(self, due: int, in_flight: int, limits: Limits, rows: int) -> None:
        """A tenant gets what its own limit leaves."""
        assert rows_for_tenant(due, in_flight, limits) == rows


@pytest.mark.parametrize("name", ["open_claims", "in_flight", "per_tenant"])
def test_a_limit_of_nothing_is_refused(name: str) -> None:
    """A limit below 1 would stop the type for good, so it is refused by name."""
    with pytest.raises(LimitError, match=name):
        Limits(**{name: 0})
