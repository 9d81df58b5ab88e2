"""Dagster resources: thin, without logic of their own."""
