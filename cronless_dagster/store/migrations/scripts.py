"""Running a revision's SQL files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def run_files(connection: Any, directory: Path) -> None:
    """Run the files of a directory in the order of their numbers, in the caller's transaction.

    Through the driver: the files hold percent signs and many statements each.
    """
    with connection.connection.driver_connection.cursor() as cursor:
        for file in sorted(directory.glob("*.sql")):
            cursor.execute(file.read_text(encoding="utf-8"))
