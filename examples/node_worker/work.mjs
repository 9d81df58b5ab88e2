// What a job does: put your own here. A job that throws has failed, and is tried again by its own retry policy;
// what it returns may name the next instant of an `@handler` job.
import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Wait, fail or print as the payload says.
 *
 * @param job {id, tenant, name, payload, scheduledFor (Date), attempt, manual, idempotencyKey}
 * @param signal aborted when the claim was lost: the result would be discarded, so stop
 * @returns nothing, or {nextAt: Date}
 */
export async function work(job, signal) {
  const { seconds = 0, fail, next_at: nextAt } = job.payload;
  await sleep(seconds * 1000, undefined, { signal });
  if (fail) throw new Error(fail);
  const keys = Object.keys(job.payload).join(', ') || 'nothing';
  console.log(`${job.tenant} ${job.name} (try ${job.attempt}, key ${job.idempotencyKey}): payload has ${keys}`);
  return nextAt && { nextAt: new Date(nextAt) };
}
