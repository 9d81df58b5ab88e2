"""Words of others in Markdown: names of tenants and job types are anybody's text."""

from __future__ import annotations

import re
from html import escape

_MARKUP = re.compile(r"([\\`*_{}\[\]()#+\-.!|~])")


def as_text(words: str) -> str:
    """Return words so that Markdown shows them as they are: no markup, no HTML, one line.

    Source: CommonMark, "Backslash escapes": any ASCII punctuation may be escaped so.
    """
    return escape(_MARKUP.sub(r"\\\1", " ".join(words.split())), quote=False)


def fenced(code: str, language: str = "") -> str:
    """Return a code block whose fence is longer than any run of backticks in it (CommonMark, "Fenced code blocks")."""
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", code))])
    return f"{fence}{language}\n{code}\n{fence}"
