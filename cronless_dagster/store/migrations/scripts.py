"""Running a revision's SQL files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent


def run_files(connection: Any, directory: str) -> None:
    """Run the files of a directory beside this one, in the order of their numbers, in the caller's transaction.

    Through the driver: the files hold percent signs and many statements each.
    """
    with connection.connection.driver_connection.cursor() as cursor:
        for file in sorted((_HERE / directory).glob("*.sql")):
            cursor.execute(file.read_text(encoding="utf-8"))
