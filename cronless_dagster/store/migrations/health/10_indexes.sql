-- What schedule_health asks for every quarter of an hour. Each is small: rows that fail, rows that have ended, and one
-- entry for each 128 pages of the history, which is only ever appended to. Autosummarize: without, what was written since
-- the last vacuum is read whole.
CREATE INDEX scheduled_job_failing ON cronless.scheduled_job (consecutive_failures DESC, id)
    WHERE consecutive_failures >= 3;
CREATE INDEX scheduled_job_over ON cronless.scheduled_job (status, job_type) WHERE status IN ('DONE', 'FAILED');
CREATE INDEX job_execution_recorded ON cronless.job_execution USING brin (recorded_at) WITH (autosummarize = on);
