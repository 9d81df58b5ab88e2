"""The Dagster job behind a report.

`dg` loads every job in the folder `defs` by itself; one that is named in a `defs.yaml` comes with the tick sensor, so
it has its place outside.
"""

import dagster as dg

tenant_report_job = dg.define_asset_job(
    "tenant_report_job", selection=["tenant_report"], executor_def=dg.in_process_executor
)
