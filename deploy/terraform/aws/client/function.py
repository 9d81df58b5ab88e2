# ruff: noqa: INP001 - a module of its own, at the root of the function's code
"""The Lambda function: read the secrets, then do what the client does.

Read at each call, once a minute, so that a rotated secret is used at once and no variable of the function, which many
people may read, ever holds one. boto3 comes with Lambda's Python.
"""

from __future__ import annotations

import json
import os

import boto3
from client.handlers import lambda_handler

_secrets = boto3.client("secretsmanager")


def handler(event: object, context: object) -> dict[str, object]:
    """Make the calls of the minute that the event names; raises where a group was answered nowhere."""
    found = json.loads(_secrets.get_secret_value(SecretId=os.environ["SECRET_NAME"])["SecretString"])
    for name in ("path", "token", "key"):
        os.environ[f"CRONLESS_CLIENT_{name.upper()}"] = found[name]
    return lambda_handler(event, context)
