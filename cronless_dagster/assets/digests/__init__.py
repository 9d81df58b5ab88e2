"""E-mail digests: for each user, at the hour of their own zone, what is new since their last one.

The tables come with `cronless db upgrade --assets`. Users and their hours are set up by `users`; the rest is the job
type that `email_digest` returns.
"""

from cronless_dagster.assets.digests.job_type import email_digest

__all__ = ["email_digest"]
