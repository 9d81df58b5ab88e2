"""The store's database as a Dagster resource."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from cronless_dagster.settings import Settings, SettingsError
from cronless_dagster.store.database import shared_engine

if TYPE_CHECKING:
    from sqlalchemy import Engine


class CronlessResource(dg.ConfigurableResource):  # type: ignore[type-arg]  # has no inner resource of its own
    """Where the scheduled jobs are.

    A sensor's resources are set up anew at every tick, so the connections belong to the process, not to this.
    """

    database_url: str = Field(
        default="",
        description=(
            "Address of the PostgreSQL that holds the jobs. Empty: CRONLESS_DATABASE_URL, or the file named by"
            " CRONLESS_DATABASE_URL_FILE. Dagster's UI shows what is written here, so give an EnvVar rather than"
            " a text with a password in it."
        ),
    )

    def engine(self) -> Engine:
        """Return this process's engine.

        Raises:
            SettingsError: No address is given, here or in the environment.
            DatabaseUnavailable: The address is none of PostgreSQL's.
        """
        settings = Settings.from_env(os.environ)
        url = self.database_url or settings.database_url
        if not url:
            raise SettingsError(
                "CRONLESS_DATABASE_URL is not set: give the address of the PostgreSQL that holds the jobs, such as"
                " postgresql://user@host/database"
            )
        return shared_engine(url, settings.statement_timeout_ms)
