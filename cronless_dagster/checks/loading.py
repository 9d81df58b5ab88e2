"""Finding the checks that a user's module registers."""

from __future__ import annotations

from importlib import import_module

from cronless_dagster.checks.declaring import CheckError, Checks


def load_checks(module: str) -> Checks:
    """Import the checks of a module, its `checks`.

    Raises:
        CheckError: The module can't be imported, or has no `Checks` of that name.
    """
    try:
        found = getattr(import_module(module), "checks", None)
    except Exception as error:
        # Also what the module itself raises: it is the user's own, and its traceback is kept as the cause.
        raise CheckError(
            f"module {module!r} with checks can't be imported ({type(error).__name__}: {error}): correct it, or"
            " CRONLESS_CHECKS"
        ) from error
    if not isinstance(found, Checks):
        raise CheckError(
            f"{module}:checks is no Checks: write `checks = Checks()` there, and register yours with it"
        )
    return found
