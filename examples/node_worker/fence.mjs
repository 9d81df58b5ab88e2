// The three functions in the database by which a job is started, held and finished; a worker needs nothing else.
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';

// A database that is away, restarting or too busy is worth asking again; a wrong statement or right is not.
export const mayPass = (error) => !(error instanceof pg.DatabaseError) || /^(08|40|53|55|57)/.test(error.code);

export class Fence {
  constructor(databaseUrl, { connections, leaseSeconds }) {
    this.leaseSeconds = leaseSeconds;
    this.pool = new pg.Pool({
      connectionString: databaseUrl, max: connections, connectionTimeoutMillis: 5000, query_timeout: 30_000,
    });
    this.pool.on('error', () => {}); // an idle connection died: the next query opens another
  }

  /** Start a job; returns its row, or undefined where somebody else has it or the message is out of date. */
  start({ id, token }, execution) {
    return this.#ask('SELECT * FROM cronless.cronless_start($1, $2, $3, $4)',
      [id, token, execution, this.leaseSeconds]);
  }

  /** Hold a running job for another lease; false: it was given to others, whose result counts. */
  async renew({ id, token }, execution) {
    const { ours } = await this.#ask('SELECT cronless.cronless_renew($1, $2, $3, $4) AS ours',
      [id, token, execution, this.leaseSeconds]);
    return ours;
  }

  /** Report "success" or "failure"; returns "accepted", "already accepted" or "claim lost". */
  async finish({ id, token }, execution, { outcome, error = null, nextAt = null }) {
    const { answer } = await this.#ask('SELECT cronless.cronless_finish($1, $2, $3, $4, $5, $6) AS answer',
      [id, token, execution, outcome, error, nextAt]);
    return answer;
  }

  // The same arguments again are harmless, also where only the answer to a COMMIT was lost.
  async #ask(statement, values) {
    for (const end = Date.now() + this.leaseSeconds * 1000; ;) {
      try {
        return (await this.pool.query(statement, values)).rows[0];
      } catch (error) {
        if (!mayPass(error) || Date.now() > end) throw error;
        await sleep(500 + Math.random() * 500);
      }
    }
  }
}
