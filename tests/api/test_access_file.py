"""The access file: read whole, refused in one sentence that never shows what may be a secret."""

from __future__ import annotations

from ipaddress import ip_network
from typing import TYPE_CHECKING

import pytest

from cronless_dagster.api.access_file import AccessError, load_access, parse_access, refuse_unknown_checks
from cronless_dagster.api.secrets import digest_of, hash_of

if TYPE_CHECKING:
    from pathlib import Path

A, B, C, D = (hash_of(text) for text in "abcd")
CALLER = f'[callers.eu]\ntokens = ["{B}"]\nkeys = ["{C}"]\nchecks = ["dispatch"]\n'
GOOD = f'paths = ["{A}"]\n{CALLER}'
SECRET = "made-up-secret-that-must-not-be-shown"


def test_a_whole_file() -> None:
    """With every member there is."""
    access = parse_access(f'{GOOD}now = true\nnetworks = ["10.0.0.0/8", "::1"]\n')
    (caller,) = access.callers
    assert access.paths == (digest_of(b"a"),)
    assert (caller.name, caller.tokens, caller.keys) == ("eu", (digest_of(b"b"),), (digest_of(b"c"),))
    assert (caller.checks, caller.now) == ({"dispatch"}, True)
    assert caller.networks == (ip_network("10.0.0.0/8"), ip_network("::1/128"))


def test_what_may_be_left_out() -> None:
    """Nobody sets the clock unless told, and any network will do."""
    (caller,) = parse_access(GOOD).callers
    assert (caller.now, caller.networks) == (False, ())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "`paths`"),
        ("paths = nothing", "line 1"),
        (f'paths = ["{A}"]', "no callers"),
        (f'paths = ["{A}"]\ncallers = 1', "no callers"),
        (f'paths = ["{A}"]\n[callers]\neu = 1', "[callers.eu]"),
        (f"paths = []\n{CALLER}", "`paths`"),
        (f'paths = "{A}"\n{CALLER}', "list of texts"),
        (f'paths = ["{SECRET}"]\n{CALLER}', "number 1 of `paths`"),
        (f'paths = ["{A}", "{SECRET}"]\n{CALLER}', "number 2 of `paths`"),
        (f'paths = ["{A.upper()}"]\n{CALLER}', "small letters"),
        (GOOD.replace(B, SECRET), "caller 'eu' has as number 1 of `tokens`"),
        (GOOD.replace(C, SECRET), "caller 'eu' has as number 1 of `keys`"),
        (GOOD.replace(f'["{B}"]', f'"{SECRET}"'), "list of texts"),
        (GOOD.replace(C, B), "each secret is used once"),
        (GOOD.replace(C, A), "each secret is used once"),
        (GOOD + CALLER.replace("eu", "us"), "each secret is used once"),
        (GOOD.replace('["dispatch"]', "[]"), "may call no check"),
        (GOOD.replace('checks = ["dispatch"]', ""), "may call no check"),
        (GOOD.replace("keys", "key"), "did you mean keys?"),
        (GOOD + "other = 1", "it may hold tokens"),
        (f"path = 1\n{GOOD}", "did you mean paths?"),
        (GOOD + "now = 1", "true or false"),
        (GOOD + 'networks = ["10.0.0.1/8"]', "'10.0.0.1/8'"),
        (GOOD + 'networks = "10.0.0.0/8"', "list of texts"),
        (GOOD.replace("callers.eu", "callers.'a b'"), "'a b'"),
        (GOOD.replace("callers.eu", "callers.''"), "named"),
        (GOOD.replace("callers.eu", f"callers.{'e' * 64}"), "up to 63"),
        (f"a = {'[' * 2_000}", "the access file"),
    ],
)
def test_what_cant_be_used_is_told(text: str, words: str) -> None:
    """One sentence: where, what, and what to write instead."""
    with pytest.raises(AccessError) as error:
        parse_access(text)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert SECRET not in str(error.value)


def test_a_file_that_isnt_there_says_how_to_make_one(tmp_path: Path) -> None:
    """And one that is no text says so."""
    with pytest.raises(AccessError, match="cronless api caller"):
        load_access(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(AccessError, match="UTF-8"):
        load_access(tmp_path / "bytes.toml")
    (tmp_path / "good.toml").write_text(GOOD)
    assert load_access(tmp_path / "good.toml").callers[0].name == "eu"


def test_a_misspelt_check_is_told() -> None:
    """It would be a 404 each minute."""
    access = parse_access(GOOD)
    refuse_unknown_checks(access, ["dispatch", "rescue"])
    with pytest.raises(AccessError, match="did you mean 'dispatchx'"):
        refuse_unknown_checks(access, ["dispatchx"])
    with pytest.raises(AccessError, match="there are analytics, rescue"):
        refuse_unknown_checks(access, ["rescue", "analytics"])
    refuse_unknown_checks(parse_access(GOOD.replace("dispatch", "*")), [])
