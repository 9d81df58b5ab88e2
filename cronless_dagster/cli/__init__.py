"""The command line; every command imports what it needs only when it runs."""

from __future__ import annotations


def main() -> None:
    """Run `cronless` with the arguments of this process, and exit with its status."""
    from cronless_dagster.cli.app import cli

    cli()
