"""A process that is killed while it sends a digest: whatever the moment, no second try mails it again."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from cronless_dagster.assets.digests import ledger
from cronless_dagster.assets.digests.errors import Uncertain
from cronless_dagster.assets.digests.sending import Digests
from cronless_dagster.assets.digests.smtp import SmtpMailer
from cronless_dagster.store.database import transaction
from tests.assets.digests.conftest import TENANT
from tests.conftest import VIRTUAL_NOW

if TYPE_CHECKING:
    from pathlib import Path

    from tests.assets.digests.conftest import MailServer, World
    from tests.processes import Spawner


@pytest.mark.crash
@pytest.mark.parametrize(("point", "mails"), [("begun", 0), ("handed over", 1), ("accepted", 1)])
def test_killed_while_sending(
    world: World, pg_url: str, mail_server: MailServer, spawn: Spawner, tmp_path: Path, point: str, mails: int
) -> None:
    """SIGKILL with `sending` committed, with the text handed over and unanswered, and with the mail accepted."""
    world.add_item("First", 5)
    user = world.add_user()
    if point == "handed over":
        mail_server.postbox.go_on = threading.Event()
    reached, log = tmp_path / "reached", tmp_path / "log"
    process = spawn(
        *(sys.executable, "-m", "tests.assets.digests.dying", pg_url, mail_server.url),
        *(str(user), VIRTUAL_NOW.isoformat(), point, str(reached)),
        output=log,
    )
    while not (reached.exists() or (point == "handed over" and mail_server.postbox.arrived.is_set())):
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    process.kill()
    process.wait()
    mail_server.postbox.go_on = None

    mailer = SmtpMailer(mail_server.url)
    digests = Digests(public_url="https://mail.example.org")
    for _ in range(2):
        with pytest.raises(Uncertain, match=f"cronless digests settle {user} 2026-03-02T12:00:00Z"):
            digests.deliver(
                world.engine,
                mailer,
                tenant_id=TENANT,
                user_id=user,
                occurrence=VIRTUAL_NOW,
                execution=f"again/{uuid4()}",
            )
    assert len(mail_server.postbox.mails) == mails
    world.at(-1)
    with transaction(world.engine) as connection:
        [left] = ledger.uncertain(connection, before=world.now)
    assert (left.user_id, left.execution) == (user, "dying/1")
