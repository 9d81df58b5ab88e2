-- Since when each of the given job types has something to claim: one index probe a type, whatever the table's
-- size; NULL where nothing waits. And whether more than one batch is due, which walks at most one batch of index
-- entries and is asked here, once a tick, rather than at each claim.
SELECT asked.name,
       (SELECT due.next_run_at FROM cronless.scheduled_job AS due
        WHERE due.status = 'PENDING' AND due.paused_at IS NULL
          AND due.job_type = asked.name AND due.next_run_at <= :now
          AND due.id BETWEEN :id_low AND :id_high
        ORDER BY due.job_type, due.next_run_at, due.id LIMIT 1) AS due_since,
       (SELECT due.trigger_requested_at FROM cronless.scheduled_job AS due
        WHERE due.status = 'PENDING' AND due.trigger_requested_at IS NOT NULL
          AND due.job_type = asked.name AND due.trigger_requested_at <= :now
          AND due.id BETWEEN :id_low AND :id_high
        ORDER BY due.job_type, due.trigger_requested_at, due.id LIMIT 1) AS triggered_since,
       EXISTS (SELECT 1 FROM cronless.scheduled_job AS due
               WHERE due.status = 'PENDING' AND due.paused_at IS NULL
                 AND due.job_type = asked.name AND due.next_run_at <= :now
                 AND due.id BETWEEN :id_low AND :id_high
               ORDER BY due.job_type, due.next_run_at, due.id
               OFFSET asked.batch_size LIMIT 1) AS backlog
FROM unnest(CAST(:job_types AS text[]), CAST(:batch_sizes AS bigint[])) AS asked (name, batch_size)
