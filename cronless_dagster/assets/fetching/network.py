"""Connections for httpcore that go only where they may, and never take longer than their fetch has left.

The check and the connection use the same resolved address: a name that is looked up again for connecting can have
another answer by then (DNS rebinding). It holds for every connection, so for every redirect.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpcore

from cronless_dagster.assets.fetching.addresses import allowed, networks_of
from cronless_dagster.assets.fetching.budgets import within
from cronless_dagster.assets.fetching.errors import FetchRefused
from cronless_dagster.scheduling.errors import shown

if TYPE_CHECKING:
    import ssl

Resolve = Callable[[str, int], Sequence[str]]
"""Takes a host's name and a port, returns its addresses in the order in which to try them."""
_RESOLVERS = 64
"""Threads that look up names: the system's resolver knows no time-out, so it is left behind in its thread."""


def resolve(host: str, port: int) -> list[str]:
    """Return a host's addresses as the system knows them, in its order of preference (RFC 6724).

    Raises:
        OSError: The name is unknown, or nobody could be asked.
        UnicodeError: It can't be a name.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class CheckedNetwork(httpcore.NetworkBackend):
    """Resolves a host once, leaves out the addresses that may not be reached, and tries the others in order."""

    def __init__(self, networks: Sequence[str] = (), resolve: Resolve = resolve) -> None:
        self._networks = networks_of(networks)
        self._resolve = resolve
        self._resolvers = ThreadPoolExecutor(_RESOLVERS, thread_name_prefix="resolve")
        self._plain = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first address that may be reached and accepts.

        Raises:
            FetchRefused: No address of the host may be reached.
            httpcore.ConnectError: None accepted, or the name is unknown.
            httpcore.TimeoutException: None accepted in time.
        """
        reachable = [one for one in self._addresses(host, port, timeout) if allowed(one, self._networks)]
        if not reachable:
            raise FetchRefused(
                f"The host {shown(host)} has no public address, and others are reached only in the networks that"
                " CRONLESS_FETCH_NETWORKS names: correct the host, or name its network."
            )
        for address in reachable[:-1]:
            try:
                return self._connected(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return self._connected(reachable[-1], port, timeout, local_address, socket_options)

    def close(self) -> None:
        """End the threads that look up names; one that still waits for an answer ends when it has it."""
        self._resolvers.shutdown(wait=False, cancel_futures=True)

    def _connected(self, address: str, port: int, timeout: float | None, *how: Any) -> httpcore.NetworkStream:
        return _TimedStream(self._plain.connect_tcp(address, port, within(timeout), *how))

    def _addresses(self, host: str, port: int, timeout: float | None) -> Sequence[str]:
        lookup = self._resolvers.submit(self._resolve, host, port)
        try:
            return lookup.result(within(timeout))
        except TimeoutError:
            lookup.cancel()
            raise httpcore.ConnectTimeout("its name wasn't resolved in time") from None
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"its name can't be resolved: {error}") from error


class _TimedStream(httpcore.NetworkStream):
    """A stream none of whose steps takes longer than is left."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, within(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, within(timeout))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _TimedStream(self._stream.start_tls(ssl_context, server_hostname, within(timeout)))

    def close(self) -> None:
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
