-- What the open claims of the queue route wait for. The cost follows what is in flight, not the table.
-- Overtaken: jobs of a claim that was made a lease later have started, and queues are first in, first out. When the
-- later claim was made, not when its messages were confirmed: some may have started before the last was, or have been
-- published twice, and would overtake nobody.
SELECT claim.id, claim.submitted_at, held.queued, held.running, held.lapsed,
       coalesce((SELECT max(later.created_at) FROM cronless.job_claim AS later
                 WHERE later.route = 'queue' AND later.started_at IS NOT NULL AND later.job_type = claim.job_type)
                >= claim.submitted_at + make_interval(secs => claim.lease_seconds), false) AS overtaken
FROM cronless.job_claim AS claim
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE job.status = 'QUEUED') AS queued,
           count(*) FILTER (WHERE job.status = 'RUNNING') AS running,
           count(*) FILTER (WHERE job.status = 'RUNNING' AND job.report IS NULL AND job.lease_expires_at < :now)
               AS lapsed
    FROM cronless.scheduled_job AS job
    WHERE job.status IN ('QUEUED', 'RUNNING') AND job.claim_id = claim.id) AS held
WHERE claim.state IN ('CLAIMED', 'SUBMITTED', 'RUNNING') AND claim.route = 'queue'
