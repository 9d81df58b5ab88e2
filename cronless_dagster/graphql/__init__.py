"""Dagster's web server as the executor of the run route, asked through GraphQL."""
