"""Addresses of the web: which are read, and what messages show of them."""

from __future__ import annotations

import pytest

from cronless_dagster.assets.fetching import FetchRefused
from cronless_dagster.assets.fetching.urls import host_of, origin_of, parsed, shown_url


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        (" https://Example.org/a b?q=ü#part ", "https://example.org/a%20b?q=%C3%BC"),
        ("http://example.org", "http://example.org"),
        ("http://bücher.example/", "http://xn--bcher-kva.example/"),
    ],
)
def test_read(text: str, sent: str) -> None:
    """People's addresses are brought into the form in which they are sent, without their fragment."""
    assert str(parsed(text)) == str(parsed(sent))
    assert parsed(text).raw_host == parsed(sent).raw_host
    assert "#" not in str(parsed(text))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "example.org/feed",
        "//example.org/feed",
        "ftp://example.org/feed",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "http://",
        "http:///path",
        "http://example.org:99999/",
        "http://example.org:0/",
        "http://example.org:port/",
        "http://exa\nmple.org/",
        "http://example.org/\r\nX-Injected: yes",
        "http://[::1/",
        "http://xn--a.example\udcff/",
        "http://example.org/" + "a" * 3_000,
    ],
)
def test_refused(text: str) -> None:
    """What is no address of the web is refused in one line of a message."""
    with pytest.raises(FetchRefused) as caught:
        parsed(text)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "text",
    [
        "http://user:hunter2@example.org/",
        "http://hunter2@example.org/",
        "ftp://user:hunter2@example.org/",
        "http://user:hunter2@exa\nmple.org/",
        "http://user:hunter2@example.org:99999/",
        "gopher://example.org/?key=hunter2",
    ],
)
def test_secrets_stay_hidden(text: str) -> None:
    """A login or a key in what is refused isn't repeated by the message."""
    with pytest.raises(FetchRefused) as caught:
        parsed(text)
    assert "hunter2" not in str(caught.value)


def test_shown() -> None:
    """Messages show an address without its query, in ASCII, and cut."""
    assert shown_url(parsed("https://example.org:8443/ä?key=secret")) == "https://example.org:8443/%C3%A4"
    assert len(shown_url(parsed("https://example.org/" + "a" * 1_000))) == 200


def test_host_and_origin() -> None:
    """A host is counted with its port, written or not; an origin is a scheme, host and port."""
    assert host_of(parsed("http://Example.org/a")) == host_of(parsed("http://example.org:80/b"))
    assert host_of(parsed("http://[2001:DB8::1]/")) == host_of(parsed("http://[2001:db8::1]/"))
    assert host_of(parsed("https://example.org/")) == "example.org:443"
    assert origin_of(parsed("https://example.org:8443/a?b")) == "https://example.org:8443"
