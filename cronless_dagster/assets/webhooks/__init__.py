"""Webhook renewals: WebSub subscriptions whose leases are renewed before they end (W3C Recommendation WebSub).

`webhook_renewal()` is the job type, `subscribe` and `unsubscribe` make and end subscriptions in the caller's own
transaction, and `cronless callbacks` serves what hubs call.
"""

from cronless_dagster.assets.webhooks.job_type import webhook_renewal
from cronless_dagster.assets.webhooks.subscriptions import SubscriptionError, subscribe, unsubscribe

__all__ = ["SubscriptionError", "subscribe", "unsubscribe", "webhook_renewal"]
