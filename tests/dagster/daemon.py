"""One iteration of Dagster's sensor daemon in a process of its own, killed at a named point.

`python -m tests.dagster.daemon SOCKET POINT`
"""

from __future__ import annotations

import logging
import signal
import sys

import dagster as dg
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import GrpcServerTarget
from dagster._daemon.sensor import execute_sensor_iteration

LOCATION = "crash-tests"


def target(socket: str) -> GrpcServerTarget:
    """Return the code server as a workspace."""
    return GrpcServerTarget(host="localhost", port=None, socket=socket, location_name=LOCATION)


def main(socket: str, point: str) -> None:
    """Evaluate all sensors once and be killed."""
    with (
        dg.DagsterInstance.get() as instance,
        WorkspaceProcessContext(instance, target(socket)) as workspace,
    ):
        flags = {"cronless_tick": {point: signal.SIGKILL}}
        list(
            execute_sensor_iteration(
                workspace, logging.getLogger("daemon"), None, None, debug_crash_flags=flags
            )
        )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
