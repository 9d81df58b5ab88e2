"""The tick as a Dagster sensor."""
