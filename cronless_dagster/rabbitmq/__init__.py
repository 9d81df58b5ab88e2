"""The transport of the queue route: addresses, topology, messages, publisher and consumer of RabbitMQ."""

from __future__ import annotations

import logging

# pika logs each failure several times over, with tracebacks; ours are raised and say it once. A level that was set
# before, or is set later, counts.
if (_pika := logging.getLogger("pika")).level == logging.NOTSET:
    _pika.setLevel(logging.CRITICAL)

DEAD = "dead"
"""The dead letters among the queues; no job type of the queue route may have this name."""
