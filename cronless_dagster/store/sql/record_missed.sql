-- A stretch of missed instants is one history row.
INSERT INTO cronless.job_execution
    (recorded_at, job_id, tenant_id, job_type, outcome, scheduled_for, missed_last, missed_count, missed_reason)
SELECT :now, missed.job_id, missed.tenant_id, missed.job_type, 'missed', missed.first_at, missed.last_at,
       missed.how_many, missed.reason
FROM unnest(CAST(:ids AS uuid[]), CAST(:tenants AS text[]), CAST(:job_types AS text[]),
            CAST(:firsts AS timestamptz[]), CAST(:lasts AS timestamptz[]), CAST(:counts AS integer[]),
            CAST(:missed_reasons AS text[]))
    AS missed (job_id, tenant_id, job_type, first_at, last_at, how_many, reason)
