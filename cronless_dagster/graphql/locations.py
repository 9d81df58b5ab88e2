"""In which code location a Dagster job is, where nobody has said so."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cronless_dagster.graphql import questions
from cronless_dagster.graphql.errors import DagsterRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cronless_dagster.graphql.transport import Transport

_KEPT_SECONDS = 60.0


class Locations:
    """Knows the code locations of Dagster jobs for a minute; then it asks again."""

    def __init__(self, transport: Transport, repository: str) -> None:
        """Look in repositories of this name."""
        self._transport, self._repository = transport, repository
        self._found: Mapping[str, list[str]] = {}
        self._until = 0.0

    def of(self, job: str) -> str:
        """Return the only code location that has a Dagster job.

        Raises:
            DagsterRefused: None has it, or several have.
            DagsterUnavailable, DagsterFailed: Dagster can't say.
        """
        if time.monotonic() >= self._until or len(self._found.get(job, ())) != 1:
            self._found = self._ask()
            self._until = time.monotonic() + _KEPT_SECONDS
        match self._found.get(job, []):
            case [only]:
                return only
            case []:
                raise DagsterRefused(
                    "no code location that Dagster could load has it: deploy it, or repair the location"
                )
            case several:
                raise DagsterRefused(
                    f"the code locations {', '.join(several)} all have it: name one by CRONLESS_DAGSTER_LOCATION"
                )

    def forget(self) -> None:
        """Ask again next time: what was found is out of date."""
        self._until = 0.0

    def _ask(self) -> dict[str, list[str]]:
        answer = questions.checked(
            self._transport.ask(questions.JOBS, {}).get("found"), "RepositoryConnection"
        )
        found: dict[str, list[str]] = {}
        for repository in answer["nodes"]:
            if repository["name"] == self._repository:
                for job in repository["jobs"]:
                    found.setdefault(job["name"], []).append(repository["location"]["name"])
        return found
