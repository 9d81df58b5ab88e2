"""What people see and click in Dagster's own UI: backfills, plots, checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser.product import FIRST_ITEMS, TENANTS

if TYPE_CHECKING:
    from tests.browser.product import Product
    from tests.browser.screen import Screen

pytestmark = [pytest.mark.browser, pytest.mark.dagster, pytest.mark.slow]

CHECKS = ("lateness_within_limit", "no_row_invalid", "no_type_failing", "nothing_stuck")


def test_an_analyst_backfills_three_tenants(screen: Screen, product: Product) -> None:
    """Three of five tenants, chosen by clicking, get what is new; the others and all schedules stay as they were."""
    chosen = ("birch", "cedar", "dogwood")
    before = product.plans()
    product.publish(5)
    screen.launch_backfill("account_research", chosen)
    screen.see_backfill_succeed(len(chosen))
    screen.picture("backfill", height=320)
    assert product.items() == {
        tenant: FIRST_ITEMS + 5 if tenant in chosen else FIRST_ITEMS for tenant in TENANTS
    }
    assert product.plans() == before
    screen.open_partition("account_research", "elm")
    screen.see_metadata("new_items", FIRST_ITEMS)
    screen.open_partition("account_research", "cedar")
    screen.see_metadata("new_items", 5)
    screen.picture("research")


def test_a_day_of_digests_sends_nothing_again(screen: Screen, product: Product) -> None:
    """The partition of a day shows what was sent; to materialize it composes and shows, and sends nothing."""
    [delivery] = product.select("SELECT * FROM cronless_assets.digest_delivery")
    [mail] = product.mails()
    screen.open_partition("email_digest", str(delivery.local_date))
    screen.see_metadata("sent", 1)
    screen.materialize("email_digest", day=str(delivery.local_date))
    screen.open_partition("email_digest", str(delivery.local_date))
    screen.see_metadata("sent", 1)
    screen.picture("digests")
    screen.read("previews", says="Made-up item 0 of alder")
    assert product.select("SELECT * FROM cronless_assets.digest_delivery") == [delivery]
    assert product.mails() == [mail]


def test_health_is_plotted_and_checked(screen: Screen, product: Product) -> None:
    """All four checks are green and numbers are drawn; a schedule that nobody can read turns one check red."""
    product.add_waves()
    screen.materialize("schedule_health")
    screen.see_checks("schedule_health", **dict.fromkeys(CHECKS, "Succeeded"))
    for jobs in (40, 160, 90) if screen.takes_pictures else ():
        product.work(jobs)
        screen.materialize("schedule_health")
    product.add_unreadable()
    screen.materialize("schedule_health")
    screen.see_checks("schedule_health", **dict.fromkeys(CHECKS, "Succeeded") | {"no_row_invalid": "Failed"})
    screen.open_check("no_row_invalid", says="unreadable")
    screen.picture("health-checks")
    screen.see_plots("schedule_health", "started_last_quarter_hour", "started_lateness_p95_seconds")
    screen.picture("health-plots", height=560)
    screen.open_asset("schedule_health", "events")
    screen.read("minute_waves", says="Busiest minutes")
    screen.picture("health-minutes", height=620)


def test_the_overview_follows_by_itself(screen: Screen, product: Product) -> None:
    """Nobody asks for it: the asset downstream of research is made once research was, and shows its tenants."""
    screen.see_materialized("account_overview")
    assert {row.tenant_id for row in product.select("SELECT * FROM cronless_assets.tenant_overview")} == set(
        TENANTS
    )
