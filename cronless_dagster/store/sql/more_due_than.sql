-- Is more than one batch due? Walks at most one batch of index entries.
SELECT EXISTS (
    SELECT 1 FROM cronless.scheduled_job AS due
    WHERE due.status = 'PENDING' AND due.paused_at IS NULL
      AND due.job_type = :job_type AND due.next_run_at <= :now
      AND due.id BETWEEN :id_low AND :id_high
    ORDER BY due.job_type, due.next_run_at, due.id
    OFFSET :batch_size LIMIT 1)
