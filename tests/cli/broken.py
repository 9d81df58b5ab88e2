"""A module whose import fails, as a user's may."""

from __future__ import annotations

raise RuntimeError("no such\nconfiguration")
