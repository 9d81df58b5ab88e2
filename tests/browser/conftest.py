"""Dagster's UI over a small made-up product, and a real Chromium that looks at it.

With CRONLESS_SCREENSHOTS=directory the pictures of the documentation are written there.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.dagster.conftest import ground  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from playwright.sync_api import Browser

    from tests.browser.product import Product
    from tests.browser.screen import Screen
    from tests.dagster.conftest import Ground
    from tests.dagster.stack import Stack

PICTURES_VARIABLE = "CRONLESS_SCREENSHOTS"
NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A Chromium without a window; for one module, since its event loop would disturb those of other tests."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        missing = (
            f"none of {', '.join(NAMES)} is installed: on Debian and Ubuntu, install the package chromium"
        )
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    from playwright.sync_api import sync_playwright

    # As root Chromium has no sandbox to offer.
    as_root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=as_root)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def dagster_ui(chromium: Browser, ground: Ground) -> Iterator[tuple[Stack, Product]]:  # noqa: F811
    """All of Dagster over the product, whose accounts have been refreshed once and whose reader has a mail."""
    from cronless_dagster.assets.migrate import upgrade_assets
    from tests.assets.web import WebServer
    from tests.browser.product import Product
    from tests.dagster.stack import Stack

    with ground() as (url, directory, spawn), WebServer() as web:
        upgrade_assets(url)
        stack = Stack(
            url,
            directory,
            spawn,
            module="tests.browser.location",
            daemon="tests.browser.daemon",
            environment={"CRONLESS_HOME": str(directory), "CRONLESS_FETCH_NETWORKS": "127.0.0.0/8"},
        )
        product = Product(stack.engine, web, directory / "maildir")
        try:
            stack.start_all()
            product.start()
        except (AssertionError, TimeoutError) as error:
            error.add_note(stack.logs())
            raise
        yield stack, product
        stack.engine.dispose()


@pytest.fixture
def product(dagster_ui: tuple[Stack, Product]) -> Product:
    """The product."""
    return dagster_ui[1]


@pytest.fixture
def screen(
    request: pytest.FixtureRequest, chromium: Browser, dagster_ui: tuple[Stack, Product], tmp_path: Path
) -> Iterator[Screen]:
    """A fresh page; where the test fails, what was seen and what Dagster wrote are kept."""
    from tests.browser.screen import Screen

    pictures = os.environ.get(PICTURES_VARIABLE)
    context = chromium.new_context(viewport={"width": 1280, "height": 800}, locale="en-US", timezone_id="UTC")
    made = Screen(context.new_page(), dagster_ui[0].address, Path(pictures) if pictures else None)
    yield made
    if getattr(request.node, "failed", False):
        made.page.screenshot(path=tmp_path / "screen.png")
        (tmp_path / "dagster.log").write_text(dagster_ui[0].logs())
    context.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Tell the fixtures of a test that it failed, and the reader where to look."""
    report = yield
    if report.when == "call" and report.failed and "screen" in getattr(item, "funcargs", {}):
        item.failed = True  # type: ignore[attr-defined]
        report.sections.append(("Seen", f"{item.funcargs['tmp_path']}/screen.png"))  # type: ignore[attr-defined]
    return report
