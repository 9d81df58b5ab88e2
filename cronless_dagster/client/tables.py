"""Reading a TOML table strictly: each key has a kind, and one that nobody knows is refused."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from .errors import ClientError, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Table:
    """A table of the configuration, and where it stands, for messages."""

    def __init__(self, values: object, where: str, keys: Iterable[str] | None = None) -> None:
        """Take a table with these keys, or with any.

        Args:
            values: What TOML gave.
            where: What messages call it, such as `[retries]`; nothing for the file's top.
            keys: The keys that there are.

        Raises:
            ClientError: It is no table, or has a key that isn't among them.
        """
        if not isinstance(values, dict):
            raise ClientError(f"{where} is {shown(values)}, which is no table: write it as {where} with keys")
        self.values: Mapping[str, Any] = values
        self._inside = f" in {where}" if where else ""
        known = values.keys() if keys is None else list(keys)
        for key in values:
            if key not in known:
                near = get_close_matches(key, known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
                raise ClientError(f"there is no key {shown(key)}{self._inside}: {hint}")

    def refusal(self, key: str, write: str) -> ClientError:
        """Return the error that says what to write for a key."""
        return ClientError(f"{key}{self._inside} is {shown(self.values[key])}: {write}")

    def text(self, key: str, write: str, default: str | None = None) -> str | None:
        """Return a text that isn't empty."""
        if key not in self.values:
            return default
        value = self.values[key]
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            raise self.refusal(key, write)
        return value.strip()

    def flag(self, key: str) -> bool:
        """Return true or false; false where it isn't there."""
        value = self.values.get(key, False)
        if not isinstance(value, bool):
            raise self.refusal(key, "write true or false")
        return value

    def whole(self, key: str, low: int, high: int, default: int | None = None) -> int | None:
        """Return a whole number from `low` to `high`."""
        if key not in self.values:
            return default
        value = self.values[key]
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.refusal(key, f"write a whole number from {low} to {high}")
        return value

    def number(self, key: str, low: float, high: float, default: float) -> float:
        """Return a number from `low` to `high`."""
        value = self.values.get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
            raise self.refusal(key, f"write a number from {low:g} to {high:g}")
        return float(value)
