"""A claim of many research jobs against a local server: `python -m benchmarks.research`.

Held beside the server's own time: the same addresses fetched bare by the same number of threads, with nothing read but
the bytes. The first refresh finds everything new; before the second nothing changed, and the server says so (304).
Feeds of 30 made-up items with a paragraph each, on two hosts (ports of this machine). Both sides run in a process of
their own, and the claim's memory is measured. Beyond the server's time 500 jobs may take 20 s, and 400 MB.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import perf_counter
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from sqlalchemy import text

from benchmarks.support import Ratio, database, print_table, server
from cronless_dagster.assets.fetching import Fetcher, FetchLimits
from cronless_dagster.assets.migrate import upgrade_assets
from cronless_dagster.assets.research import Source, account_research, schedule_account
from cronless_dagster.engine.job_types import JobTypes
from cronless_dagster.engine.running import run_claim
from cronless_dagster.scheduling.shards import FULL
from cronless_dagster.store.claims import claim_due
from cronless_dagster.store.database import create_store_engine, transaction

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Engine

    from cronless_dagster.store.embedded import EmbeddedPostgres

ITEMS = 30
HOSTS = 2
PER_HOST = 4
THREADS = 16
BEYOND_SECONDS = 20.0
MEMORY_MB = 400.0
NETWORKS = ("127.0.0.0/8",)
_PARAGRAPH = "A sentence that nobody ever wrote about a company that never was. " * 8


class _Host(ThreadingHTTPServer):
    """Serves made-up feeds, and counts how many at once."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lock, self.now, self.highest = threading.Lock(), 0, 0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 65_536
    server: _Host

    def do_GET(self) -> None:
        """Answer with a feed, or that it is as it was."""
        with self.server.lock:
            self.server.now += 1
            self.server.highest = max(self.server.highest, self.server.now)
        try:
            self._answer()
        finally:
            with self.server.lock:
                self.server.now -= 1

    def _answer(self) -> None:
        number = self.path.rpartition("/")[2]
        etag = f'"{number}"'
        if not number.isdigit():
            status, body = 404, b""
        elif self.headers["If-None-Match"] == etag:
            status, body = 304, b""
        else:
            status, body = 200, _feed(int(number))
        self.send_response(status)
        self.send_header("ETag", etag)
        self.send_header("Content-Type", "application/rss+xml")
        if status != 304:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        """Say nothing."""


def _feed(number: int) -> bytes:
    items = "".join(
        f"<item><title>News {item} of made-up company {number}</title><link>http://x.example/{number}/{item}</link>"
        f'<guid isPermaLink="false">{number}-{item}</guid>'
        f"<pubDate>Mon, {1 + item % 28:02} Jun 2026 10:00:00 GMT</pubDate>"
        f"<description>&lt;p&gt;Some &lt;b&gt;text&lt;/b&gt;. {_PARAGRAPH}&lt;/p&gt;</description></item>"
        for item in range(ITEMS)
    )
    return (
        f'<?xml version="1.0"?><rss version="2.0"><channel><title>x</title>{items}</channel></rss>'.encode()
    )


@contextmanager
def hosts() -> Iterator[list[_Host]]:
    """Serve while the block lasts."""
    webs = [_Host() for _ in range(HOSTS)]
    threads = [threading.Thread(target=web.serve_forever, args=(0.2,), daemon=True) for web in webs]
    for thread in threads:
        thread.start()
    try:
        yield webs
    finally:
        for web, thread in zip(webs, threads, strict=True):
            web.shutdown()
            thread.join()
            web.server_close()


def measure(running: EmbeddedPostgres, *, quick: bool = False) -> list[Ratio]:
    """Return seconds beyond the server's own, the most fetches of one host at once, and the memory."""
    jobs = 40 if quick else 500
    ratios = []
    with hosts() as webs, database(running, "research") as engine:
        url = engine.url.render_as_string(hide_password=False)
        upgrade_assets(url)
        ports = [web.server_address[1] for web in webs]
        _schedule(engine, [f"http://127.0.0.1:{ports[one % HOSTS]}/feed/{one}" for one in range(jobs)])
        memory = 0.0
        for what, etags in (("first refresh", ""), ("second refresh, 304", "etags")):
            bare = _elsewhere("bare", json.dumps(ports), str(jobs), etags)["seconds"]
            for web in webs:
                web.highest = 0
            told = _elsewhere("claim", url, str(_claimed(engine, jobs)))
            assert told["succeeded"] == jobs, told
            ratios.append(
                Ratio(
                    f"{jobs} jobs, {what}: seconds beyond the server's {bare:.1f}",
                    max(told["seconds"] - bare, 0.001),
                    BEYOND_SECONDS * jobs / 500,
                    "s",
                    1.0,
                    "at most",
                )
            )
            ratios.append(
                Ratio(
                    f"{what}: fetches of one host at once",
                    max(web.highest for web in webs),
                    PER_HOST,
                    "fetches",
                    1.0,
                    "at most",
                )
            )
            memory = max(memory, told["memory_mb"])
        with engine.connect() as connection:
            found = connection.scalar(text("SELECT count(*) FROM cronless_assets.item"))
        assert found == jobs * ITEMS, found
    ratios.append(
        Ratio(f"claim of {jobs} research jobs: peak memory", memory, MEMORY_MB, "MB", 1.0, "at most")
    )
    return ratios


def _schedule(engine: Engine, urls: Sequence[str]) -> None:
    with engine.begin() as connection:
        for number, url in enumerate(urls):
            schedule_account(
                connection,
                tenant_id=f"tenant-{number % 50:02}",
                name=f"account-{number:04}",
                sources=[Source("feed", url)],
            )


def _claimed(engine: Engine, jobs: int) -> UUID:
    with transaction(engine) as connection:
        connection.execute(
            text(
                "UPDATE cronless.scheduled_job SET next_run_at = now() - interval '1 minute',"
                " scheduled_for = now() - interval '1 minute', plan_count = plan_count + 1"
            )
        )
    with transaction(engine) as connection:
        now = connection.execute(text("SELECT now()")).scalar_one()
        taken = claim_due(
            connection,
            job_type="account_research",
            route="run",
            batch_size=jobs,
            lease_seconds=600,
            now=now,
            ids=FULL,
        )
    assert taken is not None
    assert taken.count == jobs
    return taken.claim_id


def _elsewhere(*arguments: str) -> dict[str, Any]:
    """Do this in a process of its own, as a Dagster run does, and return its figures."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.research", *arguments],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={"CRONLESS_FETCH_NETWORKS": ",".join(NETWORKS), "CRONLESS_FETCH_PER_HOST": str(PER_HOST)},
    )
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def _bare(ports: str, number: str, etags: str) -> dict[str, Any]:
    """Fetch the same with as many threads, and do nothing with it."""
    of = json.loads(ports)
    urls = [f"http://127.0.0.1:{of[one % HOSTS]}/feed/{one}" for one in range(int(number))]
    tags = [f'"{one}"' if etags else None for one in range(int(number))]
    limits = FetchLimits(per_host=PER_HOST, networks=NETWORKS)
    with Fetcher(limits) as fetcher, ThreadPoolExecutor(THREADS) as pool:
        started = perf_counter()
        for _ in pool.map(lambda url, etag: fetcher.fetch(url, etag=etag), urls, tags):
            pass
        return {"seconds": perf_counter() - started}


def _claim(url: str, claim_id: str) -> dict[str, Any]:
    """Run a claim."""
    engine = create_store_engine(url)
    job_types = JobTypes((account_research(concurrency=THREADS),))
    started = perf_counter()
    report = run_claim(engine, job_types, UUID(claim_id), execution_id=uuid4())
    spent = perf_counter() - started
    for failure in report.failures[:3]:
        print(failure.error, file=sys.stderr)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024
    return {"succeeded": report.succeeded, "seconds": spent, "memory_mb": peak}


if __name__ == "__main__":
    if sys.argv[1:2] == ["bare"]:
        print(json.dumps(_bare(*sys.argv[2:])))
    elif sys.argv[1:2] == ["claim"]:
        print(json.dumps(_claim(*sys.argv[2:])))
    else:
        with server() as made:
            print_table(measure(made), "account research")
