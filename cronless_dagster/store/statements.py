"""Hot statements live one a file under `sql/`, with their reason on top; this reads them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from sqlalchemy import TextClause, text


@cache
def statement(name: str, package: str = "cronless_dagster.store") -> TextClause:
    """Return the statement of a package's `sql/<name>.sql`; parameters are written `:name`."""
    return text(files(package).joinpath("sql", f"{name}.sql").read_text(encoding="utf-8"))
