"""What lies around the scheduler in the demo: a stand-in for the web, and the callbacks that its hub reaches."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import TYPE_CHECKING

from cronless_dagster.demo.processes import Processes, free_port

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class Surroundings:
    """Addresses first, since rows name them; the processes once the database is there."""

    def __init__(self) -> None:
        """Choose free ports of loopback."""
        self._web_port, self._callbacks_port = free_port(), free_port()

    @property
    def web(self) -> str:
        """Where feeds and the hub are."""
        return f"http://127.0.0.1:{self._web_port}"

    @property
    def callbacks(self) -> str:
        """Where `cronless callbacks` is."""
        return f"http://127.0.0.1:{self._callbacks_port}"

    def environment(self, home: Path) -> dict[str, str]:
        """Return the settings of all processes: they fetch from this machine, and mail to a Maildir in `home`."""
        return {
            "CRONLESS_HOME": str(home),
            "CRONLESS_FETCH_NETWORKS": "127.0.0.0/8,::1/128",
            "CRONLESS_MAIL_FROM": "Made-up digests <digests@example.com>",
            "CRONLESS_PUBLIC_URL": self.callbacks,
        }

    def start(self, logs: Path, environment: Mapping[str, str]) -> Processes:
        """Return both processes, running and answering; leave them to end them.

        Raises:
            DemoError: One ended, or did not answer in time.
        """
        processes = Processes(logs, environment)
        try:
            processes.start(
                "web", "python", "-m", "cronless_dagster.demo.web", str(self._web_port), restart=True
            )
            processes.start(
                "callbacks", "cronless", "callbacks", "--port", str(self._callbacks_port), restart=True
            )
            processes.wait_for(self.web, lambda: _answers(self.web))
            processes.wait_for(self.callbacks, lambda: _answers(f"{self.callbacks}/healthz"))
        except BaseException:
            processes.stop()
            raise
        return processes


def _answers(address: str) -> bool:
    """Tell whether a web server is there, whatever it answers."""
    try:
        with urllib.request.urlopen(address, timeout=2):  # noqa: S310
            return True
    except urllib.error.HTTPError:
        return True
    except (urllib.error.URLError, OSError):
        return False
