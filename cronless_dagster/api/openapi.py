"""The API's description: OpenAPI 3.1, made from the checks, for those who may see it."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from cronless_dagster.api.calls import PREFIX_PATTERN, RANGE_PATTERN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cronless_dagster.checks.declaring import Check

_PREFIX = {
    "name": "prefix",
    "in": "query",
    "description": "Ids that begin with these hexadecimal digits. Give either this or `range`.",
    "schema": {"type": "string", "pattern": f"^{PREFIX_PATTERN}$"},
    "example": "b",
}
_RANGE = {
    "name": "range",
    "in": "query",
    "description": "Ids from LOW to HIGH, both included; LOW is filled up with 0, HIGH with f. 0-f is all of them.",
    "schema": {"type": "string", "pattern": f"^{RANGE_PATTERN}$"},
    "example": "00-7f",
}
_NOW = {
    "name": "now",
    "in": "query",
    "description": "An instant with its offset in place of the clock, where the database's clock is virtual.",
    "schema": {"type": "string", "format": "date-time"},
}
_DIGITS = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
_SCHEMAS = {
    "Answer": {
        "type": "object",
        "required": ["check", "now", "range", "acted", "counts", "notes", "seconds"],
        "properties": {
            "check": {"type": "string"},
            "now": {"type": "string", "format": "date-time"},
            "range": {"type": "array", "items": _DIGITS, "minItems": 2, "maxItems": 2},
            "acted": {
                "type": "integer",
                "minimum": 0,
                "description": "How much was done; 0: there was nothing to do.",
            },
            "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
            "notes": {"type": "array", "items": {"type": "string"}},
            "seconds": {"type": "number", "minimum": 0},
        },
    },
    "Error": {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {"type": "string", "description": "One sentence: what is wrong, what to do."}
        },
        "additionalProperties": False,
    },
}
_LATER = {
    "Retry-After": {"required": True, "schema": {"type": "integer", "minimum": 1}, "description": "Seconds."}
}


def description(checks: Iterable[Check], *, now: bool) -> dict[str, Any]:
    """Return the description of these checks; `now`: with the parameter that takes the clock's place.

    Its paths are relative to where it was read from, so it holds no secret.
    """
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "cronless checks",
            "version": version("cronless-dagster"),
            "description": "Each call looks at the state and acts only if it is time: a call too many does nothing.",
        },
        "servers": [{"url": "./"}],
        "security": [{"token": [], "key": []}],
        "paths": {f"/checks/{one.name}": {"post": _operation(one, now=now)} for one in checks},
        "components": {
            "schemas": _SCHEMAS,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "X-Cronless-Key"},
            },
        },
    }


def _operation(check: Check, *, now: bool) -> dict[str, Any]:
    return {
        "operationId": check.name,
        "summary": f"Check {check.name} for a part of the ids of {check.ids}.",
        "parameters": [_PREFIX, _RANGE, *([_NOW] if now else [])],
        "responses": {
            "200": _response("It was checked, and what it was time for is done.", "Answer"),
            "400": _response("The call can't be carried out as it is.", "Error"),
            "404": {
                "description": "Not authorised, or nothing is there: no telling which.",
                "content": {"text/plain": {"schema": {"type": "string", "const": "Not Found"}}},
            },
            "429": _response("This caller calls too often.", "Error") | {"headers": _LATER},
            "500": _response("The check failed.", "Error"),
            "503": _response("Something that it needs is away, or it is busy.", "Error")
            | {"headers": _LATER},
        },
    }


def _response(words: str, schema: str) -> dict[str, Any]:
    return {
        "description": words,
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}},
    }
