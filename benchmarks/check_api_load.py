"""The load process of the check API's benchmark: `python -m benchmarks.check_api_load`, its orders as JSON on stdin.

Sockets and nothing else: a client of comfort would be measured rather than the node. Each connection asks anew as soon
as it is answered; the answers' times are printed as JSON, in milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import sys
from time import perf_counter
from typing import Any

_END_OF_HEAD = b"\r\n\r\n"


async def _connection(orders: dict[str, Any], number: int, until: float, times: list[float]) -> None:
    reader, writer = await asyncio.open_connection(orders["host"], orders["port"])
    asked = 0
    while (began := perf_counter()) < until:
        group = f"{(number * 31 + asked * 7) % 256:02x}"
        writer.write(orders["request"].replace("GROUP", group).encode())
        head = await reader.readuntil(_END_OF_HEAD)
        status, *headers = head.decode().lower().splitlines()
        length = next(line.partition(":")[2] for line in headers if line.startswith("content-length:"))
        await reader.readexactly(int(length))
        if f" {orders['status']} " not in status:
            raise RuntimeError(f"the node answered {status!r}")
        times.append((perf_counter() - began) * 1_000)
        asked += 1
    writer.close()


async def _load(orders: dict[str, Any]) -> list[float]:
    times: list[float] = []
    until = perf_counter() + orders["seconds"]
    await asyncio.gather(*(_connection(orders, n, until, times) for n in range(orders["connections"])))
    return times


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_load(json.load(sys.stdin)))))
