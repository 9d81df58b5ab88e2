"""The demonstration behind `make demo`: real schedules, made-up tenants, everything on one machine."""

JOB_TYPES_MODULE = "cronless_dagster.demo.job_types"
"""What runs where CRONLESS_JOB_TYPES names nothing."""
