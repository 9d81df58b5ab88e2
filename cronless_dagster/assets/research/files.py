"""CSV and Parquet files below one directory, as sources."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from cronless_dagster.assets.research.found import Found, SourceError, found, unique

if TYPE_CHECKING:
    import pandas as pd

MAX_ROWS = 10_000
REQUIRED = ("key", "title")
OPTIONAL = ("url", "summary", "author", "published_at")


@dataclass(frozen=True, slots=True)
class Files:
    """Where files may lie, and how large one may be.

    Attributes:
        home: The directory; None: sources can't be files.
        largest: Bytes, of a Parquet file also after decompression.
    """

    home: Path | None
    largest: int

    def read(self, location: str) -> bytes:
        """Return the content of a file below the directory.

        Raises:
            SourceError: It is outside, missing, too large, or no file.
        """
        path = self._path(location)
        try:
            with path.open("rb") as file:
                content = file.read(self.largest + 1)
        except OSError as error:
            raise SourceError(
                f"file {location[:200]!r} can't be read ({error.strerror}): check its permissions"
            ) from error
        if len(content) > self.largest:
            raise SourceError(
                f"file {location[:200]!r} is larger than {self.largest:,} bytes: split it, or raise"
                " CRONLESS_FETCH_BYTES"
            )
        return content

    def _path(self, location: str) -> Path:
        check_location(location)
        if self.home is None:
            raise SourceError(
                f"file {location[:200]!r} can't be read, since CRONLESS_FILES_HOME names no directory: set it"
            )
        home = self.home.resolve()
        try:
            # Resolved, so that a link that leads out is seen; a pipe or a device would never end.
            path = (home / location).resolve()
            there = path.is_file()
        except (OSError, RuntimeError):
            # A name that is too long, or links in a circle.
            path, there = home, False
        if not path.is_relative_to(home):
            raise SourceError(
                f"file {location[:200]!r} is a link that leads out of the directory of files: copy the file there"
            )
        if not there:
            raise SourceError(
                f"there is no file {location[:200]!r} in the directory of files: check the name, or put it there"
            )
        return path


def check_location(location: str) -> None:
    """Refuse a location that is no plain path below a directory.

    Raises:
        SourceError: Absolute, with `..`, or with characters that no path has.
    """
    path = PurePosixPath(location)
    if not location.strip() or not location.isprintable() or "\\" in location:
        raise SourceError(f"file {location[:200]!r} is no path: give one such as accounts/acme.csv")
    if path.is_absolute() or ".." in path.parts:
        raise SourceError(
            f"file {location[:200]!r} leads out of the directory of files: give a path below it"
        )


def read_table(
    content: bytes, *, kind: Literal["csv", "parquet"], location: str, largest: int, most: int = MAX_ROWS
) -> list[Found]:
    """Return the rows of a table as items.

    Columns are `key` and `title`, and `url`, `summary`, `author` and `published_at` where there are any. A row without
    a key is left out; a date that can't be read is None, one without a zone is UTC.

    Raises:
        SourceError: It can't be read as what it is called, a required column is missing, or it has too many rows.
    """
    try:
        frame = _csv(content, location, most) if kind == "csv" else _parquet(content, location, largest, most)
    except SourceError:
        raise
    except Exception as error:
        # Of pandas and pyarrow alike: a broken file makes them raise a dozen classes.
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SourceError(
            f"file {location!r} can't be read as {kind} ({said[:200]}): write it anew"
        ) from error
    if len(frame) > most:
        raise SourceError(f"file {location!r} has more than {most:,} rows: split it")
    missing = [name for name in REQUIRED if name not in frame.columns]
    if missing:
        has = ", ".join(map(str, frame.columns[:20])) or "none"
        raise SourceError(
            f"file {location!r} has no column {' and no column '.join(missing)} (columns: {has}): add it"
        )
    return unique(_items(frame), most)


def _csv(content: bytes, location: str, most: int) -> pd.DataFrame:
    import pandas as pd

    # All as text: a key of 007 is no 7.
    frame = pd.read_csv(
        BytesIO(content), dtype=str, keep_default_na=False, nrows=most + 1, encoding="utf-8-sig"
    )
    # Rows that are longer than the header would silently be read with their first fields as names of rows.
    if not isinstance(frame.index, pd.RangeIndex):
        raise SourceError(f"file {location!r} has rows with more fields than its header: write it anew")
    return frame


def _parquet(content: bytes, location: str, largest: int, most: int) -> pd.DataFrame:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(BytesIO(content))
    size = sum(
        file.metadata.row_group(number).total_byte_size for number in range(file.metadata.num_row_groups)
    )
    if file.metadata.num_rows > most:
        raise SourceError(f"file {location!r} has more than {most:,} rows: split it")
    if size > 10 * largest:
        raise SourceError(
            f"file {location!r} takes {size:,} bytes when unpacked, more than {10 * largest:,}: split it"
        )
    names = [name for name in (*REQUIRED, *OPTIONAL) if name in file.schema_arrow.names]
    # Without the required ones all names are shown, and nothing is read.
    frame: pd.DataFrame = (
        file.read(columns=names, use_threads=False).to_pandas()
        if set(REQUIRED) <= set(names)
        else file.schema_arrow.empty_table().to_pandas()
    )
    return frame


def _items(frame: pd.DataFrame) -> list[Found]:
    import pandas as pd

    texts = {
        name: frame[name].astype("string").fillna("").tolist() if name in frame.columns else [""] * len(frame)
        for name in (*REQUIRED, "url", "summary", "author")
    }
    dates: list[Any] = [None] * len(frame)
    if "published_at" in frame.columns:
        dates = pd.to_datetime(frame["published_at"], utc=True, errors="coerce", format="mixed").tolist()
    return [
        found(
            key,
            title,
            url=url,
            summary=summary,
            author=author,
            published_at=None if date is None or pd.isna(date) else date.to_pydatetime(),
        )
        for key, title, url, summary, author, date in zip(*texts.values(), dates, strict=True)
        if key.strip()
    ]
