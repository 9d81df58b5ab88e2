"""How many due rows of a job type one tick may claim."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from cronless_dagster.scheduling.errors import CronlessError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


class LimitError(CronlessError, ValueError):
    """A limit that would let nothing run, ever."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a job type; None lifts one.

    Dispatchers that run side by side each read the counts before they claim, so each may go over a limit by
    one batch.

    Attributes:
        open_claims: Claims of the type that are not closed.
        in_flight: Rows of the type that are QUEUED or RUNNING.
        per_tenant: The same, of one tenant. Rows that a person asked to run now are not held back by it,
            but count in it: what is due waits for them.

    Raises:
        LimitError: A limit below 1.
    """

    open_claims: int | None = 3
    in_flight: int | None = None
    per_tenant: int | None = None

    def __post_init__(self) -> None:
        for name in ("open_claims", "in_flight", "per_tenant"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise LimitError(f"The limit {name} is {value}; give at least 1, or None for no limit.")


class Allowance(NamedTuple):
    """How many rows to claim, and the reason when that is none."""

    rows: int
    reason: str | None


def rows_to_claim(due: int, in_flight: int, open_claims: int, batch_size: int, limits: Limits) -> Allowance:
    """Decide how many rows of one type the next claim takes.

    Args:
        due: Rows that are due; a probe that stops counting above ``batch_size`` will do.
        in_flight: Rows of the type that are QUEUED or RUNNING.
        open_claims: Claims of the type that are not closed.
        batch_size: The most rows of one claim.
        limits: The type's limits; ``per_tenant`` is kept by ``rows_for_tenant``.
    """
    if due <= 0:
        return Allowance(0, "nothing is due")
    if limits.open_claims is not None and open_claims >= limits.open_claims:
        return Allowance(0, f"{open_claims} claims are open and the limit is {limits.open_claims}")
    if limits.in_flight is None:
        return Allowance(min(due, batch_size), None)
    room = limits.in_flight - in_flight
    if room <= 0:
        return Allowance(0, f"{in_flight} jobs are in flight and the limit is {limits.in_flight}")
    return Allowance(min(due, batch_size, room), None)


def rows_for_requests(
    rows: int, open_claims: int, limits: Limits, requested_since: datetime, due_since: datetime | None
) -> int:
    """Decide how many of the rows that may be claimed go to people's requests; 0: what is due comes first.

    Where something is due, requests take neither the last free place for a claim nor more than half of the room
    for rows in flight. A type that has only one of either serves what has waited longer.

    Args:
        rows: How many rows the next claim may take, above 0.
        open_claims: Claims of the type that are not closed.
        limits: The type's limits.
        requested_since: The earliest request.
        due_since: The earliest due instant; None when nothing is due.
    """
    if due_since is None:
        return rows
    share = rows if limits.in_flight is None else rows // 2
    if limits.open_claims == 1 or share == 0:
        return max(share, 1) if requested_since < due_since else 0
    if limits.open_claims is not None and limits.open_claims - open_claims <= 1:
        return 0
    return share


def equal_shares(most: Mapping[str, int], rows: int) -> dict[str, int]:
    """Share rows out among tenants: equal parts, and what one can't use goes to those that can.

    Args:
        most: How many rows each tenant can use, in the order in which a remainder is given out.
        rows: How many there are; together the shares are no more.
    """
    shares = dict.fromkeys(most, 0)
    wanting = [tenant for tenant, limit in most.items() if limit > 0]
    while rows > 0 and wanting:
        equal, rest = divmod(rows, len(wanting))
        for place, tenant in enumerate(wanting):
            given = min(equal + (place < rest), most[tenant] - shares[tenant])
            shares[tenant] += given
            rows -= given
        wanting = [tenant for tenant in wanting if shares[tenant] < most[tenant]]
    return shares


def rows_for_tenant(due: int, in_flight: int, limits: Limits) -> int:
    """Decide how many of a tenant's due rows may be claimed.

    Args:
        due: The tenant's rows of the type that are due.
        in_flight: The tenant's rows of the type that are QUEUED or RUNNING.
        limits: The type's limits.
    """
    if limits.per_tenant is None:
        return max(due, 0)
    return max(min(due, limits.per_tenant - in_flight), 0)
