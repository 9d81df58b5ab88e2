"""The program: plain Python that knows `dagster_pipes` and nothing else of Dagster.

What it forecasts is made up: the mean of the payload's `demand`.
"""

import sys

from dagster_pipes import open_dagster_pipes

with open_dagster_pipes() as pipes:
    tenant, payload = pipes.get_extra("tenant_id"), pipes.get_extra("payload")
    demand = payload.get("demand", [])
    if payload.get("crash"):
        sys.exit(3)
    if demand:
        pipes.log.info("the forecast of %s is %.1f", tenant, sum(demand) / len(demand))
        pipes.report_custom_message({"outcome": "success"})
    else:
        # Nothing that another try would mend.
        pipes.report_custom_message(
            {"outcome": "failure", "error": "its payload has no demand to forecast from", "retry": False}
        )
