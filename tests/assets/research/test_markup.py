"""Text out of HTML: the quick way says what the tree says."""

from __future__ import annotations

import pytest
from bs4 import BeautifulSoup
from hypothesis import given
from hypothesis import strategies as st

from cronless_dagster.assets.research import markup
from cronless_dagster.assets.research.markup import MAX_FRAGMENT, text_of, visible_text

WORDS = st.sampled_from(
    ["word", "x y", " ", "\u00e9", "\u00a0", '"', ">", "a\nb", "&amp;", "&lt;b&gt;", "&nbsp;", "&#39;"]
)
TAGS = st.sampled_from(["a", "b", "blockquote", "code", "div", "em", "h2", "li", "p", "span", "strong", "ul"])
ATTRIBUTES = st.sampled_from(["", ' href="http://x.example/?a=1"', ' class="a b" id="c"', '\n class=""'])


def element(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Draw an element around such content, or a list of such contents with a line break."""
    around = st.builds(lambda tag, more, text: f"<{tag}{more}>{text}</{tag}>", TAGS, ATTRIBUTES, inner)
    return around | st.lists(inner | st.sampled_from(["<br>", "<br />", "<img/>"]), max_size=3).map("".join)


@given(st.recursive(WORDS, element, max_leaves=12))
def test_the_quick_way_says_what_the_tree_says(fragment: str) -> None:
    """Of whatever feeds are mostly made of."""
    if "<" in fragment or "&" in fragment:
        assert markup._PLAIN.fullmatch(fragment)
        assert text_of(fragment) == visible_text(BeautifulSoup(fragment, "html.parser"))


@pytest.mark.parametrize(
    ("fragment", "read"),
    [
        ("<p>a<script>b</script>c</p>", "ac"),
        ("a<!-- b -->c", "ac"),
        ("<P>a</P>b", "a b"),
        ("a &copy; b", "a \u00a9 b"),
        ("<nav>menu</nav><p>a", "a"),
        ("5 < 6", "5 < 6"),
    ],
)
def test_whatever_else_is_left_to_the_tree(fragment: str, read: str) -> None:
    """What isn't shown, and what is no simple tag."""
    assert not markup._PLAIN.fullmatch(fragment)
    assert text_of(fragment) == read


def test_only_the_beginning_is_read() -> None:
    """However long it is."""
    assert len(text_of("<p>" + "x" * 5 * MAX_FRAGMENT)) < MAX_FRAGMENT
