"""The command line under a clock that is wrong by so many seconds: `python -m tests.outside.skewed -180 serve`."""

from __future__ import annotations

import datetime as dt
import sys
import time
from typing import Any

_real_datetime, _real_time = dt.datetime, time.time


class _LikeTheRealOne(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _real_datetime)


def set_wrong(seconds: float) -> None:
    """Let what this process imports from now on read a clock that is wrong by so much."""

    class Datetime(_real_datetime, metaclass=_LikeTheRealOne):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return _real_datetime.now(tz) + dt.timedelta(seconds=seconds)

    time.time = lambda: _real_time() + seconds
    dt.datetime = Datetime  # type: ignore[misc]


if __name__ == "__main__":
    set_wrong(float(sys.argv.pop(1)))
    from cronless_dagster.cli import main

    sys.exit(main())
