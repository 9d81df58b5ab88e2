"""`cronless api`: make the secrets of the check API, and look at who may call what."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cronless_dagster.cli.failures import InputError
from cronless_dagster.cli.invocation import Invocation, json_option, pass_invocation
from cronless_dagster.cli.output import print_json, say, show, table
from cronless_dagster.cli.parameters import TEXT

if TYPE_CHECKING:
    from cronless_dagster.api.access import Access, Caller

NO_FILE = (
    "no access file is named: make one with `cronless api secrets` and `cronless api caller NAME`, and name it in"
    " CRONLESS_API_ACCESS_FILE"
)


@click.group(no_args_is_help=True)
def api() -> None:
    """Make the secrets of `cronless serve`, and look at who may call what."""


@api.command("secrets", short_help="Make a secret first part of the API's paths.")
@json_option
def secrets(as_json: bool) -> None:
    """Make a secret first part of the API's paths: the secret for clients, its hash for the access file.

    It is shown this once. To rotate it, list the hashes of both until every client has the new one.
    """
    from cronless_dagster.api.secrets import hash_of, new_secret

    secret = new_secret()
    line = f'paths = ["{hash_of(secret)}"]'
    if as_json:
        print_json({"path": secret, "hash": hash_of(secret), "toml": line})
        return
    say("For the clients, shown this once; their address ends in it:")
    say(f"  {secret}")
    say("For the access file, above all tables:")
    say(f"  {line}")


@api.command("caller", short_help="Make the two tokens of a caller.")
@click.argument("name", type=TEXT)
@click.option(
    "--check",
    "checks",
    multiple=True,
    type=TEXT,
    metavar="NAME",
    help="A check they may call, any number of times; without it: all.",
)
@json_option
def caller(name: str, checks: tuple[str, ...], as_json: bool) -> None:
    """Make the two tokens of a caller: the tokens for the client, their hashes for the access file.

    They are shown this once. To rotate them, list the hashes of both pairs until the client has the new ones.
    """
    from cronless_dagster.api.access_file import AccessError, parse_access
    from cronless_dagster.api.secrets import hash_of, new_secret

    token, key = new_secret(), new_secret()
    lines = [
        f"[callers.{_quoted(name)}]",
        f'tokens = ["{hash_of(token)}"]',
        f'keys = ["{hash_of(key)}"]',
        f"checks = [{', '.join(map(_quoted_always, checks or ('*',)))}]",
    ]
    toml = "\n".join(lines) + "\n"
    try:
        # A name that the file may not hold is refused here, before anybody relies on the tokens.
        parse_access(f'paths = ["{hash_of("")}"]\n{toml}')
    except AccessError as error:
        raise InputError(str(error)) from error
    if as_json:
        print_json({"caller": name, "token": token, "key": key, "toml": toml})
        return
    say("For the client, shown this once:")
    say(f"  Authorization: Bearer {token}")
    say(f"  X-Cronless-Key: {key}")
    say("For the access file:")
    for line in lines:
        say(f"  {line}")


@api.command("check", short_help="Say whether an access file can be used.")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@json_option
@pass_invocation
def check(invocation: Invocation, file: Path | None, as_json: bool) -> None:
    """Say whether an access file can be used, and who may call what by it; FILE: CRONLESS_API_ACCESS_FILE."""
    access = read_access(invocation, file)
    if as_json:
        print_json({"paths": len(access.paths), "callers": [_as_dict(one) for one in access.callers]})
        return
    shown = table(["caller", "checks", ("tokens", "right"), ("keys", "right"), "now", "networks"])
    for one in access.callers:
        shown.add_row(
            one.name,
            ", ".join(sorted(one.checks)),
            str(len(one.tokens)),
            str(len(one.keys)),
            "yes" if one.now else "no",
            ", ".join(map(str, one.networks)) or "any",
        )
    show(shown)


@api.command("openapi", short_help="Print the API's description.")
@json_option
@pass_invocation
def openapi(invocation: Invocation, as_json: bool) -> None:
    """Print the description of the API, OpenAPI 3.1, with all checks that are declared here."""
    import json

    from cronless_dagster.api.openapi import description

    found = description(invocation.checks().values(), now=True)
    if as_json:
        print_json(found)
    else:
        click.echo(json.dumps(found, indent=2))


def read_access(invocation: Invocation, file: Path | None = None) -> Access:
    """Return what an access file says, that of the settings unless one is named, checked against the checks here.

    Raises:
        InputError: There is none, or it can't be used.
    """
    from cronless_dagster.api.access_file import AccessError, load_access, refuse_unknown_checks

    file = file or invocation.settings().api_access_file
    if file is None:
        raise InputError(NO_FILE)
    try:
        access = load_access(file)
        refuse_unknown_checks(access, list(invocation.checks()))
    except AccessError as error:
        raise InputError(str(error)) from error
    return access


def _as_dict(one: Caller) -> dict[str, Any]:
    return {
        "name": one.name,
        "checks": sorted(one.checks),
        "tokens": len(one.tokens),
        "keys": len(one.keys),
        "now": one.now,
        "networks": [str(network) for network in one.networks],
    }


def _quoted(name: str) -> str:
    # A dot in a bare key would begin a table within.
    return (
        name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else _quoted_always(name)
    )


def _quoted_always(text: str) -> str:
    import json

    # JSON's strings are strings of TOML's too.
    return json.dumps(text)
