"""`cronless status`: what is due, running, stuck and late, by job type."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from cronless_dagster.cli.invocation import Invocation, database_options, pass_invocation
from cronless_dagster.cli.output import (
    cell,
    counted,
    distance,
    facts,
    iso,
    print_json,
    say,
    show,
    table,
    utc_text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from cronless_dagster.rabbitmq.topology import QueueDepth
    from cronless_dagster.store.status import Status, TypeStatus

# Two lines a head, so that all ten columns fit in 80.
_HEADS = {"unclaimable": "un-\nclaimable", "unplanned": "un-\nplanned"}
_ALARMING = {"stuck": "red", "late": "yellow", "unclaimable": "red", "invalid": "red"}


@click.command()
@database_options
@pass_invocation
def status(invocation: Invocation, as_json: bool) -> None:
    """Count jobs by type: due, queued, running, stuck, late, unclaimable, invalid, paused, unplanned.

    With CRONLESS_BROKER_URL also how many messages wait in each queue, and how many consumers it has.

    Stuck: claimed, and the claim's lease has run out. Late: due for longer than the misfire grace. Unclaimable: due,
    and no running code declares the type. Unplanned: waiting for a tick to plan them.
    """
    from cronless_dagster.store.clock import current_time
    from cronless_dagster.store.database import transaction
    from cronless_dagster.store.status import read_status

    engine = invocation.engine()
    with transaction(engine) as connection:
        found = read_status(connection, current_time(connection))
    queues, away = _queues(invocation, found.queue_types)
    if as_json:
        shown = None if queues is None else {name: asdict(depth) for name, depth in queues.items()}
        print_json({**_json(found), "queues": shown, "broker_error": away})
        return
    if found.types:
        show(_table(found))
        say("")
    if queues:
        show(_queue_table(found.queue_types, queues))
        say("")
    show(facts({**_facts(found), "queues": None if away is None else cell(away, "red")}))


def _queues(invocation: Invocation, names: Sequence[str]) -> tuple[dict[str, QueueDepth] | None, str | None]:
    """Return how the queues stand; None where no broker is named or asked, with why it can't be asked."""
    broker = invocation.broker("cronless-status")
    if broker is None:
        return None, None
    from cronless_dagster.rabbitmq.errors import BrokerError
    from cronless_dagster.rabbitmq.publisher import Publisher

    try:
        with Publisher(broker) as publisher:
            return publisher.depths(names), None
    except BrokerError as error:
        return None, str(error)


def _queue_table(names: Sequence[str], queues: dict[str, QueueDepth]) -> Table:
    from cronless_dagster.rabbitmq import DEAD

    made = table(["queue", ("waiting", "right"), ("consumers", "right")])
    for name in names:
        depth = queues.get(name)
        if depth is None:
            made.add_row(cell(name), cell("not there yet", "dim"), "")
            continue
        unserved = depth.messages and not depth.consumers
        made.add_row(
            cell(name), f"{depth.messages:,}", cell(f"{depth.consumers:,}", "red" if unserved else "")
        )
    if DEAD in queues and queues[DEAD].messages:
        made.add_row(cell("dead letters", "red"), cell(f"{queues[DEAD].messages:,}", "red"), "")
    return made


def _json(found: Status) -> dict[str, Any]:
    from cronless_dagster.store.status import NUMBERS

    return {
        "now": iso(found.now),
        "types": [asdict(one) for one in found.types],
        "totals": {name: sum(getattr(one, name) for one in found.types) for name in NUMBERS},
        "oldest_due_at": iso(found.oldest_due_at),
        "open_claims": dict(found.open_claims),
        "last_tick": None if found.last_tick is None else {**found.last_tick, "at": iso(_tick_at(found))},
    }


def _table(found: Status) -> Table:
    from cronless_dagster.store.status import NUMBERS

    made = table(["type", *((_HEADS.get(name, name), "right") for name in NUMBERS)])
    for column in made.columns:
        column.vertical = "bottom"
    made.padding = (0, 1, 0, 0)
    for one in found.types:
        made.add_row(cell(one.job_type), *(_number(one, name) for name in NUMBERS))
    if len(found.types) > 1:
        made.add_section()
        made.add_row(cell("all", "bold"), *(cell(_total(found, name), "bold") for name in NUMBERS))
    return made


def _total(found: Status, name: str) -> str:
    more = any(name in one.at_least for one in found.types)
    return f"{sum(getattr(one, name) for one in found.types):,}{'+' if more else ''}"


def _number(one: TypeStatus, name: str) -> Any:
    number = getattr(one, name)
    if not number:
        return cell("0", "dim")
    return cell(f"{number:,}{'+' if name in one.at_least else ''}", _ALARMING.get(name, ""))


def _facts(found: Status) -> dict[str, Any]:
    oldest, claims = found.oldest_due_at, found.open_claims
    return {
        "oldest due": "nothing is due"
        if oldest is None
        else f"{utc_text(oldest)}, {distance(found.now - oldest)} ago",
        "open claims": f"{sum(claims.values()):,}"
        + "".join(f", {count:,} {state}" for state, count in claims.items() if count),
        "last tick": _tick(found),
    }


def _tick_at(found: Status) -> datetime | None:
    return None if found.last_tick is None else datetime.fromisoformat(found.last_tick["at"])


def _tick(found: Status) -> str:
    at = _tick_at(found)
    if at is None or found.last_tick is None:
        return "none yet: start Dagster with the tick sensor, or run `cronless tick`"
    errors = found.last_tick["errors"]
    words = f"{distance(found.now - at)} ago ({utc_text(at)}), claimed {found.last_tick['claimed']:,}"
    return f"{words}, {counted(errors, 'error')}" if errors else words
