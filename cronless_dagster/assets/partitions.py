"""Tenants as partitions: which tenant ids can be the key of one, and the name under which Dagster keeps them."""

from __future__ import annotations

from cronless_dagster.scheduling.errors import CronlessError

TENANTS = "cronless_tenant"
"""The name of the dynamic partitions; assets that share it share the tenants."""

MAX_LENGTH = 200
# Dagster itself refuses "..." (a range) and control characters, and reads "|" as the border between dimensions;
# "/" and "\" would leave a directory wherever a key becomes a part of a path.
_REFUSED = ("|", "/", "\\", "...")


class TenantError(CronlessError):
    """A tenant id that can't be a partition key."""


def tenant_partition(tenant_id: str) -> str:
    r"""Return the partition key of a tenant, which is its id.

    Raises:
        TenantError: Empty, longer than 200 characters, with blanks around it, with a character that isn't
            printable, with one of `|`, `/`, `\`, `...`, or one of the paths `.` and `..`.
    """
    wrong = next((part for part in _REFUSED if part in tenant_id), None)
    if wrong is not None:
        raise TenantError(
            f"tenant {tenant_id[:80]!r} can't be a partition, since it contains {wrong!r}: rename it"
        )
    if not tenant_id or len(tenant_id) > MAX_LENGTH or tenant_id in (".", ".."):
        raise TenantError(
            f"tenant {tenant_id[:80]!r} can't be a partition: give 1 to {MAX_LENGTH} characters, more than dots"
        )
    if not tenant_id.isprintable() or tenant_id.strip() != tenant_id:
        raise TenantError(
            f"tenant {tenant_id[:80]!r} can't be a partition: leave out control characters and blanks around it"
        )
    return tenant_id
