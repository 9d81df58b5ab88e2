"""The configuration: what is read, what is refused, and in which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from cronless_dagster.client.config import load_config, parse_config
from cronless_dagster.client.errors import ClientError

EXAMPLE = Path(__file__).parents[2] / "examples" / "client" / "checks.toml"
SMALLEST = '[targets]\neu = "https://eu.example.org"\n[[check]]\nname = "dispatch"\n'


def refusal(text: str) -> str:
    """The one sentence that a configuration is refused with."""
    with pytest.raises(ClientError) as caught:
        parse_config(text)
    message = str(caught.value)
    assert "\n" not in message
    assert message.isascii()
    return message


def test_the_smallest_configuration() -> None:
    """A target and a check are enough: each minute, all ids."""
    config = parse_config(SMALLEST)
    assert [one.address for one in config.called] == ["https://eu.example.org"]
    assert [(one.name, one.window.groups, one.window.spread) for one in config.checks] == [("dispatch", 1, 1)]


def test_the_example_is_usable() -> None:
    """The file that people copy is read, in each region that it names."""
    config = load_config(EXAMPLE)
    assert {one.name for one in config.checks} == {"dispatch", "rescue", "analytics", "garbage-collect"}
    for target in config.targets:
        assert config.seen_from(target.name).own == target.name


def test_every_region_or_all_but_its_own() -> None:
    """`skip_self` leaves the own target out, and the same file serves each region."""
    text = 'skip_self = true\nself = "eu"\n' + SMALLEST.replace(
        "[[check]]", 'us = "https://us.example.org"\n[[check]]'
    )
    config = parse_config(text)
    assert [one.name for one in config.called] == ["us"]
    assert [one.name for one in config.seen_from("us").called] == ["eu"]
    every = parse_config(text.replace("skip_self = true", ""))
    assert [one.name for one in every.called] == ["eu", "us"]


def test_an_address_may_have_a_port_and_a_path() -> None:
    """What stands before the secret path is kept; a slash at the end isn't."""
    for text, address in {
        "https://eu.example.org:8443/scheduler/": "https://eu.example.org:8443/scheduler",
        "https://[2001:db8::1]": "https://[2001:db8::1]",
        "http://127.0.0.1:8088": "http://127.0.0.1:8088",
        "http://localhost": "http://localhost",
        "HTTPS://EU.example.org:443": "https://eu.example.org",
    }.items():
        assert parse_config(SMALLEST.replace("https://eu.example.org", text)).targets[0].address == address


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("[targets]", "[target]"), "no key 'target': did you mean targets?"),
        (('name = "dispatch"', 'name = "dispatch"\nprefix_lenght = 1'), "did you mean prefix_length?"),
        (('name = "dispatch"', 'nam = "dispatch"'), "did you mean name?"),
        (('name = "dispatch"', ""), "has no name"),
        (('"dispatch"', "5"), "name in [[check]] is 5: write a check's name"),
        (('"dispatch"', '"../dispatch?x"'), "has no usable name"),
        (("eu = ", '"e u" = '), "has no usable name"),
        (('eu = "https://eu.example.org"', ""), "no target is named"),
        (('[[check]]\nname = "dispatch"', ""), "no check is named"),
        (("[[check]]", "[check]"), "no check is named"),
        (("https://eu.example.org", "ftp://eu.example.org"), "can't be used: write an address such as"),
        (("https://eu.example.org", "https://eu.example.org?a=b"), "can't be used"),
        (("https://eu.example.org", "https://eu.example.org:99999"), "can't be read"),
        (("https://eu.example.org", "https://eu example.org"), "can't be used"),
        (("https://eu.example.org", "http://eu.example.org"), "plain_http = true"),
        (('"https://eu.example.org"', "[]"), "eu in [targets] is []: write an address"),
        (("[[check]]", "[sending]\nconcurrency = 0\n[[check]]"), "whole number from 1 to 256"),
        (("[[check]]", "[sending]\nconcurrency = true\n[[check]]"), "whole number from 1 to 256"),
        (("[[check]]", '[sending]\ntimeout_seconds = "5"\n[[check]]'), "a number from 0.1 to 600"),
        (("[[check]]", "[sending]\ntimeout_seconds = nan\n[[check]]"), "a number from 0.1 to 600"),
        (("[[check]]", '[sending]\nproxy = "http://proxy"\n[[check]]'), "write HOST:PORT"),
        (("[[check]]", "[retries]\nmost = -1\n[[check]]"), "whole number from 0 to 20"),
        (("[[check]]", "[retries]\nmax = 1\n[[check]]"), "no key 'max' in [retries]"),
        (("[targets]", "sending = 5\n[targets]"), "[sending] is 5, which is no table"),
        (("[targets]", "skip_self = 1\n[targets]"), "skip_self is 1: write true or false"),
        (("[targets]", 'self = "asia"\n[targets]'), "self is 'asia', which is no target: write one of eu"),
        (("[targets]", 'self = "eu"\nskip_self = true\n[targets]'), "leaves no target to call"),
        (('name = "dispatch"', 'name = "d"\nminutes = [0, 60]'), "minutes of the hour from 0 to 59"),
        (('name = "dispatch"', 'name = "d"\nminutes = [true]'), "minutes of the hour from 0 to 59"),
        (('name = "dispatch"', 'name = "d"\nminutes = []'), "minutes of the hour from 0 to 59"),
        (('name = "dispatch"', 'name = "d"\ngroups = 65537'), "whole number from 1 to 65536"),
        (('name = "dispatch"', 'name = "d"\nprefix_length = 5'), "whole number from 1 to 4"),
        (('name = "dispatch"', 'name = "d"\ngroups = 4\nprefix_length = 1'), "both groups and prefix_length"),
        (
            ('name = "dispatch"', 'name = "d"\nminutes = [1]\nspread_minutes = 60'),
            "both minutes and spread_minutes",
        ),
        (("[[check]]", '[secrets]\ntoken = "a"\n[[check]]'), "did you mean token_env?"),
        (("[[check]]", '[secrets]\nkey_env = "not a name"\n[[check]]'), "is no variable's name"),
        (("[[check]]", '[secrets]\nkey_env = "A"\nkey_file = "b"\n[[check]]'), "both key_env and key_file"),
        (("[targets]", "[targets"), "is no TOML"),
    ],
)
def test_what_cannot_be_used_is_refused(change: tuple[str, str], words: str) -> None:
    """Each mistake is named with its key and value, and with what to write."""
    assert words in refusal(SMALLEST.replace(*change))


def test_an_address_with_a_password_is_refused_without_showing_it() -> None:
    """What may be a secret stays out of the message."""
    for address in ("https://user:hunter2@eu.example.org", "https://user:hunter2@eu.example.org:x"):
        assert "hunter2" not in refusal(SMALLEST.replace("https://eu.example.org", address))


def test_a_secret_in_place_of_its_variable_is_not_shown() -> None:
    """Whoever writes the token where its variable's name belongs doesn't find it in a log."""
    message = refusal(SMALLEST.replace("[[check]]", '[secrets]\ntoken_env = "hunter-2"\n[[check]]'))
    assert "hunter" not in message


def test_plain_http_is_for_those_who_ask_for_it() -> None:
    """Inside a network of one's own it may be written, on purpose."""
    text = "plain_http = true\n" + SMALLEST.replace("https://", "http://")
    assert parse_config(text).targets[0].address == "http://eu.example.org"
    proxied = text.replace("[[check]]", '[sending]\nproxy = "proxy.example.org:3128"\n[[check]]')
    assert "https:// only" in refusal(proxied)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A wrong path and a file that is no text are refused in a sentence."""
    with pytest.raises(ClientError, match=r"absent\.toml.*No such file"):
        load_config(tmp_path / "absent.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ClientError, match="no UTF-8"):
        load_config(tmp_path / "bytes.toml")
