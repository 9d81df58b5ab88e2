"""The demo's stand-in for the web, on loopback: feeds of made-up accounts, a page for each item, and a hub.

`python -m cronless_dagster.demo.web PORT` serves it.
"""

from __future__ import annotations

import html
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from cronless_dagster.demo.feeds import HUB_PATH, Feed
from cronless_dagster.demo.hub import Hub

if TYPE_CHECKING:
    from starlette.requests import Request

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>
<body style="max-width: 40rem; margin: 15vh auto; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif">
<h1>{title}</h1><p>This page is made up, and so is the account that it tells of: it shows that a digest's links lead
somewhere.</p></body></html>
"""


def app() -> Starlette:
    """Return the application."""
    return Starlette(
        routes=[
            Route("/feeds/{tenant}/{account}.xml", feed),
            Route("/news/{tenant}/{account}/{number:int}", page),
            Route(HUB_PATH, Hub().take, methods=["POST"]),
        ]
    )


async def feed(request: Request) -> Response:
    """Serve a feed, any that is asked for; 304 where the reader has its newest item already."""
    found, now = _feed(request), datetime.now(UTC)
    tag = f'"{found.newest(now)}"'
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"ETag": tag})
    return Response(found.xml(now), media_type="application/xml", headers={"ETag": tag})


async def page(request: Request) -> Response:
    """Serve an item's page."""
    title = f"Made-up news {request.path_params['number']:,} of {_feed(request).account}"
    return HTMLResponse(_PAGE.format(title=html.escape(title)))


def _feed(request: Request) -> Feed:
    server = str(request.base_url).rstrip("/")
    return Feed(server, request.path_params["tenant"], request.path_params["account"])


def main() -> None:
    """Serve until a signal ends it."""
    import uvicorn

    uvicorn.run(app(), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
