"""Dagster assets: one for each job type, materialized by the runs of its claims."""
