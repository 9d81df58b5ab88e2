"""Job types, the tick and the running of a claim; knows no Dagster."""
