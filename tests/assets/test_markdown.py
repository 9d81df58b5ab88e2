"""Anybody's text in Markdown."""

from __future__ import annotations

from cronless_dagster.assets.markdown import as_text, fenced


def test_markup_is_shown_as_it_is() -> None:
    """No link, no emphasis, no HTML, no second line."""
    assert as_text("[a](javascript:b) *c*") == r"\[a\]\(javascript:b\) \*c\*"
    assert as_text("<img src=x>\n# head & tail") == r"&lt;img src=x&gt; \# head &amp; tail"


def test_a_fence_longer_than_what_it_holds() -> None:
    """A name with a fence in it ends no block."""
    assert fenced("plain", "sql") == "```sql\nplain\n```"
    assert fenced("a ``` b ```` c").splitlines()[0] == "`````"
