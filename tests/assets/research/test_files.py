"""CSV and Parquet files below one directory."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from cronless_dagster.assets.research.files import Files, read_table
from cronless_dagster.assets.research.found import Found, SourceError

if TYPE_CHECKING:
    from pathlib import Path

CSV = """key,title,url,summary,author,published_at,other
007,First,http://x.example/1,A summary,N. Nobody,2026-02-01T10:00:00+02:00,1
8,Second,javascript:alert(1),,,31 Feb,2
,No key,,,,,3
9,,,,,2026-02-01,4
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory of files beside one that isn't ours."""
    (tmp_path / "home" / "sub").mkdir(parents=True)
    (tmp_path / "outside.csv").write_text(CSV)
    (tmp_path / "home" / "a.csv").write_text(CSV)
    (tmp_path / "home" / "sub" / "b.csv").write_text(CSV)
    return tmp_path / "home"


def table(content: bytes, kind: Any = "csv", **options: Any) -> list[Found]:
    """Take a table apart."""
    return read_table(content, kind=kind, location="a.csv", **{"largest": 1_000_000, **options})


def parquet(path: Path, frame: pd.DataFrame, **options: Any) -> bytes:
    """Write a frame as Parquet."""
    frame.to_parquet(path / "t.parquet", index=False, **options)
    return (path / "t.parquet").read_bytes()


class TestPlaces:
    """Only what lies below the directory is read."""

    def test_files_below_are_read(self, home: Path) -> None:
        """Also in directories below."""
        assert Files(home, 10_000).read("a.csv") == Files(home, 10_000).read("sub/b.csv") == CSV.encode()

    @pytest.mark.parametrize(
        "location",
        [
            "/etc/passwd",
            "../outside.csv",
            "sub/../../outside.csv",
            "..",
            "sub\\b.csv",
            "",
            " ",
            "a\x00b",
            "a\nb",
        ],
    )
    def test_paths_that_lead_elsewhere_are_refused(self, home: Path, location: str) -> None:
        """Absolute, upwards, or no path at all."""
        with pytest.raises(SourceError, match=r"leads out of the directory|is no path"):
            Files(home, 10_000).read(location)

    def test_links_that_lead_out_are_refused(self, home: Path) -> None:
        """Of files and of directories; one that stays inside is followed."""
        (home / "out.csv").symlink_to(home.parent / "outside.csv")
        (home / "dir").symlink_to(home.parent)
        (home / "in.csv").symlink_to(home / "sub" / "b.csv")
        for location in ("out.csv", "dir/outside.csv"):
            with pytest.raises(SourceError, match="a link that leads out of"):
                Files(home, 10_000).read(location)
        assert Files(home, 10_000).read("in.csv") == CSV.encode()

    def test_what_is_no_file_is_refused(self, home: Path) -> None:
        """A directory, nothing at all, and a pipe, which would never end."""
        os.mkfifo(home / "pipe.csv")
        (home / "loop.csv").symlink_to(home / "loop.csv")
        for location in ("sub", "none.csv", "pipe.csv", "loop.csv", "a" * 300):
            with pytest.raises(SourceError, match="there is no file"):
                Files(home, 10_000).read(location)

    def test_a_file_that_is_too_large_is_refused(self, home: Path) -> None:
        """By the bytes read, so that it may grow meanwhile."""
        assert Files(home, len(CSV)).read("a.csv")
        with pytest.raises(SourceError, match=f"larger than {len(CSV) - 1:,} bytes"):
            Files(home, len(CSV) - 1).read("a.csv")

    def test_without_a_directory_no_file_is_read(self) -> None:
        """It is switched on by naming one."""
        with pytest.raises(SourceError, match="CRONLESS_FILES_HOME names no directory"):
            Files(None, 10).read("a.csv")


class TestCsv:
    """Comma-separated values, all of them texts."""

    def test_columns_are_read(self) -> None:
        """A key keeps its zeros, a bad date and a bad link are none, a row without a key is left out."""
        first, second, third = table(CSV.encode())
        assert (first.key, first.title, first.url, first.summary, first.author) == (
            "007",
            "First",
            "http://x.example/1",
            "A summary",
            "N. Nobody",
        )
        assert first.published_at == datetime(2026, 2, 1, 8, 0, tzinfo=UTC)
        assert (second.url, second.published_at, second.author) == (None, None, None)
        assert (third.title, third.published_at) == ("(untitled)", datetime(2026, 2, 1, tzinfo=UTC))

    def test_a_byte_order_mark_is_no_part_of_a_name(self) -> None:
        """Spreadsheets write one."""
        assert len(table(b"\xef\xbb\xbf" + CSV.encode())) == 3

    def test_missing_columns_are_named(self) -> None:
        """With those that are there."""
        with pytest.raises(SourceError, match=r"has no column key and no column title \(columns: id, name\)"):
            table(b"id,name\n1,a\n")

    @pytest.mark.parametrize(
        "content", [b"", b"\xff\xfe\x00", b'key,title\n"1,a', b"key,title\n1,a,b,c\n2,d\n3,e,f\n"]
    )
    def test_what_cannot_be_read_is_said_in_a_sentence(self, content: bytes) -> None:
        """Empty, another encoding, an open quote, rows of different lengths."""
        with pytest.raises(SourceError, match=r"^file 'a.csv'"):
            table(content)

    def test_too_many_rows_are_refused(self) -> None:
        """Cutting would drop rows that somebody counts on."""
        content = b"key,title\n" + b"".join(b"%d,t\n" % number for number in range(11))
        assert len(table(content, most=11)) == 11
        with pytest.raises(SourceError, match="more than 10 rows"):
            table(content, most=10)

    def test_headers_alone_are_no_items(self) -> None:
        """A file that has nothing to tell yet."""
        assert table(b"key,title,published_at\n") == []


class TestParquet:
    """The same columns, of any type."""

    def test_columns_are_read(self, tmp_path: Path) -> None:
        """Whole numbers as keys, instants with a zone, missing values."""
        frame = pd.DataFrame(
            {
                "key": [1, 2],
                "title": ["a", None],
                "published_at": pd.to_datetime(["2026-02-01T10:00Z", None], utc=True),
                "huge": ["x", "y"],
            }
        )
        first, second = table(parquet(tmp_path, frame), "parquet")
        assert (first.key, first.title, first.published_at) == (
            "1",
            "a",
            datetime(2026, 2, 1, 10, tzinfo=UTC),
        )
        assert (second.title, second.published_at, second.url) == ("(untitled)", None, None)

    def test_missing_columns_are_named(self, tmp_path: Path) -> None:
        """As for CSV."""
        with pytest.raises(SourceError, match=r"no column title \(columns: key\)"):
            table(parquet(tmp_path, pd.DataFrame({"key": [1]})), "parquet")

    def test_what_unpacks_too_far_is_refused_unread(self, tmp_path: Path) -> None:
        """A hundred megabytes of one letter take a few hundred bytes."""
        frame = pd.DataFrame({"key": [str(one) for one in range(100)], "title": ["x" * 100_000] * 100})
        content = parquet(tmp_path, frame, compression="zstd", use_dictionary=False)
        assert len(content) < 100_000
        with pytest.raises(SourceError, match="bytes when unpacked"):
            table(content, "parquet", largest=100_000)

    def test_too_many_rows_are_refused(self, tmp_path: Path) -> None:
        """Before they are read."""
        with pytest.raises(SourceError, match="more than 2 rows"):
            table(parquet(tmp_path, pd.DataFrame({"key": [1, 2, 3], "title": "t"})), "parquet", most=2)

    def test_what_is_none_is_said_in_a_sentence(self) -> None:
        """A CSV file under the wrong name."""
        with pytest.raises(SourceError, match="can't be read as parquet"):
            table(CSV.encode(), "parquet")
