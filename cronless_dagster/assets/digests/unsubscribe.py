"""Where the link at a digest's end leads. Opening it changes nothing, since scanners open every link of a mail."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from sqlalchemy import text

from cronless_dagster.assets.digests.users import unsubscribe
from cronless_dagster.store.database import transaction

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

PATH = "/unsubscribe/{user_id}"
# The address is the whole secret: it is told to no other page, kept by no cache, found by no search.
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'",
    "Referrer-Policy": "no-referrer",
    "X-Robots-Tag": "noindex",
}
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>E-mail digest</title>
<style>
body {{ margin: 15vh auto; max-width: 28rem; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif; color: #1f2937 }}
button {{ font: inherit; padding: .5rem 1rem; border: 0; border-radius: 6px; background: #1d4ed8; color: #fff }}
</style></head><body><h1>E-mail digest</h1>{body}</body></html>
"""
_ASK = '<p>Do you want to stop your e-mail digest?</p><form method="post"><button>Unsubscribe</button></form>'
_DONE = "<p>You are unsubscribed: no further digests will be sent to you.</p>"
_UNKNOWN = "<p>This link isn't known, or no longer. Please use the one in your latest digest.</p>"


def routes(engine: Engine) -> list[Route]:
    """Return the routes of one ASGI application: GET shows a button, POST unsubscribes (RFC 8058, 3.2).

    Neither asks for a cookie or a login, as that RFC demands of the one-click POST.
    """
    from starlette.routing import Route

    # Plain functions: starlette calls them in a thread, where the database may take its time.
    def show(request: Request) -> Response:
        user_id = _user_id(request)
        with transaction(engine) as connection:
            row = connection.execute(
                text("SELECT unsubscribed_at FROM cronless_assets.digest_user WHERE id = :id"),
                {"id": user_id},
            ).one_or_none()
        if row is None:
            return _page(_UNKNOWN, 404)
        return _page(_ASK if row.unsubscribed_at is None else _DONE)

    def accept(request: Request) -> Response:
        user_id = _user_id(request)
        with transaction(engine) as connection:
            known = user_id is not None and unsubscribe(connection, user_id)
        return _page(_DONE) if known else _page(_UNKNOWN, 404)

    return [Route(PATH, show, methods=["GET"]), Route(PATH, accept, methods=["POST"])]


def _user_id(request: Request) -> UUID | None:
    try:
        return UUID(request.path_params["user_id"])
    except ValueError:
        return None


def _page(body: str, status: int = 200) -> Response:
    from starlette.responses import HTMLResponse

    return HTMLResponse(_PAGE.format(body=body), status, _HEADERS)
