"""An engine that explains each statement just before it runs, with the very settings and parameters it runs with."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from sqlalchemy import event

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

GROWING = ("scheduled_job", "job_claim", "job_execution")


@cache
def _files_by_first_line() -> dict[str, str]:
    folder = files("cronless_dagster.store").joinpath("sql")
    texts = {
        one.name.removesuffix(".sql"): one.read_text()
        for one in folder.iterdir()
        if one.name.endswith(".sql")
    }
    return {content.splitlines()[0]: name for name, content in texts.items()}


@dataclass
class Explained:
    """A statement with its plan, as PostgreSQL executed it."""

    name: str
    plan: dict[str, Any]

    def nodes(self) -> Iterator[dict[str, Any]]:
        """Walk the plan from the top."""
        waiting = [self.plan]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.get("Plans", [])

    def scans_of(self, table: str) -> list[dict[str, Any]]:
        """Return the nodes that read a table or one of its partitions."""
        return [
            node
            for node in self.nodes()
            if node.get("Relation Name", "").startswith(table) and "Scan" in node["Node Type"]
        ]

    @property
    def indexes(self) -> set[str]:
        """Names of the indexes that the plan uses."""
        return {node["Index Name"] for node in self.nodes() if "Index Name" in node}

    @property
    def faults(self) -> list[str]:
        """What makes the statement's time grow with the table or with the square of the array."""
        found = []
        for table in GROWING:
            for node in self.scans_of(table):
                read = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
                # The partitions of days to come are empty, and reading nothing is best done in order.
                if node["Node Type"] == "Seq Scan" and (table != "job_execution" or read > 100):
                    found.append(f"{self.name}: Seq Scan on {node['Relation Name']}")
        for node in self.nodes():
            read = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
            if (
                node["Actual Loops"] > 20
                and node["Node Type"] in ("CTE Scan", "Function Scan")
                and read > 20_000
            ):
                found.append(
                    f"{self.name}: {node['Node Type']} read {read:,.0f} rows in {node['Actual Loops']:,} loops"
                )
        return found


@contextmanager
def explaining(engine: Engine) -> Iterator[list[Explained]]:
    """Explain all that the engine runs within the block; each statement is run twice, the first time undone."""
    found: list[Explained] = []

    @event.listens_for(engine, "before_cursor_execute")
    def explain(connection, cursor, statement, parameters, _context, _many) -> None:
        if connection.get_execution_options().get("aside") or not any(
            f"cronless.{table}" in statement for table in GROWING
        ):
            return
        if not re.match(r"\s*(--.*\n\s*)*(SELECT|WITH|UPDATE|INSERT|DELETE)", statement):
            return
        driver = cursor.connection
        with driver.cursor() as own:
            own.execute("SAVEPOINT explained")
            own.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + statement, parameters)
            plan = own.fetchone()[0][0]["Plan"]
            own.execute("ROLLBACK TO SAVEPOINT explained")
        first_line = statement.splitlines()[0]
        found.append(
            Explained(_files_by_first_line().get(first_line, " ".join(statement.split())[:70]), plan)
        )

    try:
        yield found
    finally:
        event.remove(engine, "before_cursor_execute", explain)
