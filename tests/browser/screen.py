"""Dagster's UI as a person uses it: what is clicked and read there, found by roles and texts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from playwright.sync_api import expect

from tests.dagster.site import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from playwright.sync_api import Locator, Page

GUARD_MILLISECONDS = 120_000.0
"""A guard against a hang, no measure of speed."""
WIDTH, HEIGHT = 1280, 800
"""Of the window, in pixels."""
NAVIGATION = 240
"""Width of the UI's own navigation: the same in every picture, so it is left out of them."""
IS_DRAWN = (
    "canvas => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some(Boolean)"
)


class Screen:
    """A page of the browser, opened at the UI's address.

    Everything waits for what it needs, none for a length of time. With a directory for pictures, `picture` keeps what
    is seen at that moment.
    """

    def __init__(self, page: Page, address: str, pictures: Path | None = None) -> None:
        self.page, self._address, self._pictures = page, address, pictures
        self.takes_pictures = pictures is not None
        page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
        page.set_default_timeout(GUARD_MILLISECONDS)
        expect.set_options(timeout=GUARD_MILLISECONDS)

    def open(self, path: str) -> None:
        """Open a page of the UI."""
        self.page.goto(f"{self._address}{path}")

    def open_asset(self, asset: str, view: str = "overview") -> None:
        """Open an asset's tab: overview, partitions, events, checks, lineage."""
        self.open(f"/assets/{asset}?view={view}")

    def materialize(self, asset: str, day: str | None = None) -> None:
        """Press "Materialize" on an asset's page, for one day if it has days, and wait until the run has succeeded."""
        self.open_asset(asset)
        if day is None:
            self._button(r"Materialize$").click()
        else:
            self._button(r"Materialize…$").click()
            chosen = self.page.get_by_role("dialog").get_by_role("textbox")
            chosen.fill(day)
            chosen.press("Enter")
            self._button("Launch 1 run").click()
        self._follow("Launched run")
        ended = self.page.get_by_text(re.compile("^(Success|Failure|Canceled)$")).first
        expect(ended).to_be_visible()
        assert ended.inner_text() == "Success", self.text()

    def see_materialized(self, asset: str) -> None:
        """Wait on an asset's page until it says when it was materialized."""
        self.open_asset(asset)
        expect(self._exactly("Latest materialization").locator("xpath=../..")).to_contain_text("ago")

    def launch_backfill(self, asset: str, partitions: Iterable[str]) -> None:
        """Press "Materialize…", choose partitions by clicking each, launch, and go to the backfill's page."""
        self.open_asset(asset)
        self._button(r"Materialize…$").click()
        self.page.get_by_text("Select a partition or create one").click()
        for partition in partitions:
            self.page.get_by_role("menuitem").filter(has=self._exactly(partition)).click()
        self.picture("backfill-dialog")
        self.page.keyboard.press("Escape")
        self._button("Launch backfill").click()
        self._follow("Created backfill")
        expect(self.page).to_have_url(re.compile("/runs/b/"))

    def see_backfill_succeed(self, partitions: int) -> None:
        """Wait on a backfill's page until it has ended, and see that all partitions succeeded."""
        status = self._exactly("Status").locator("xpath=..")
        expect(status).to_have_text(re.compile("Succeeded|Failed|Canceled"))
        assert "Succeeded" in status.inner_text(), self.text()
        expect(self.page.get_by_text("100% completed")).to_be_visible()
        # Targeted, in progress, succeeded, failed.
        assert f"completed {partitions} 0 {partitions} 0" in self.text()

    def text(self) -> str:
        """Return all that is written on the page, in one line."""
        return " ".join(self.page.locator("body").inner_text().split())

    def open_partition(self, asset: str, partition: str) -> None:
        """Click a partition in the list of an asset's partitions."""
        self.open_asset(asset, "partitions")
        self._exactly(partition).first.click()

    def see_metadata(self, name: str, value: object) -> None:
        """See a metadata entry of the partition that is open."""
        expect(self._entry(name)).to_have_text(re.compile(rf"^{name}\s*{value}\s*$"))

    def read(self, name: str, says: str) -> None:
        """Click a metadata entry that is a longer text, see what it says and its pictures if it has any."""
        self._entry(name).get_by_text("[Show Markdown]").click()
        dialog = self.page.get_by_role("dialog")
        expect(dialog).to_contain_text(name)
        # The text comes after its frame.
        expect(dialog).to_contain_text(says)
        for image in dialog.get_by_role("img").and_(self.page.locator("img")).all():
            assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0

    def see_checks(self, asset: str, **expected: str) -> None:
        """See what an asset's checks came to: each by name, as "Succeeded", "Failed" or "Warning"."""
        self.open_asset(asset, "checks")
        expect(self._exactly(f"Checks ({len(expected)})")).to_be_visible()
        for name, status in expected.items():
            expect(self.page.locator("body")).to_contain_text(re.compile(rf"{name}\s*{status}"))

    def open_check(self, name: str, says: str) -> None:
        """Click a check in the list, and see what its latest evaluation says."""
        self._exactly(name).first.click()
        expect(self.page.locator("body")).to_contain_text(says)

    def see_plots(self, asset: str, *names: str) -> None:
        """Press "Plots" on an asset's page, and see that these numbers are drawn; the first is at the top then."""
        self.open_asset(asset)
        self._button("Plots").click()
        for name in reversed(names):
            title = self._exactly(name)
            title.evaluate("title => { title.style.scrollMarginTop = '24px'; title.scrollIntoView() }")
            canvas = title.locator("xpath=ancestor::*[.//canvas][1]").locator("canvas").first
            eventually(lambda drawn=canvas: drawn.evaluate(IS_DRAWN), f"a plot of {name}")

    def picture(self, name: str, *, height: int | None = None) -> None:
        """Keep a picture, where pictures are wanted: of the dialog if one is open, else without the navigation."""
        if self._pictures is None:
            return
        clip = {"x": NAVIGATION, "y": 0, "width": WIDTH - NAVIGATION, "height": HEIGHT}
        dialog = self.page.get_by_role("dialog")
        if dialog.count():
            clip = cast("dict[str, int]", dialog.first.bounding_box())
        self.page.mouse.move(WIDTH - 1, HEIGHT - 1)
        self.page.screenshot(
            path=self._pictures / f"dagster-{name}.png",
            animations="disabled",
            clip={**clip, "height": height or min(clip["height"], HEIGHT - clip["y"])},
        )

    def _follow(self, said: str) -> None:
        """Click the link beside a message that stands in a corner for some seconds."""
        message = self.page.locator("div").filter(has_text=said).filter(has=self._exactly("View")).last
        message.get_by_text("View", exact=True).click()

    def _button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=re.compile(name))

    def _exactly(self, text: str) -> Locator:
        return self.page.get_by_text(text, exact=True)

    def _entry(self, name: str) -> Locator:
        return self.page.get_by_role("row").filter(has=self._exactly(name)).first
