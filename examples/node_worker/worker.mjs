// A worker of the queue route in JavaScript: `node worker.mjs JOB_TYPE`. README.md tells the reason of each rule.
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import amqp from 'amqplib';
import { Fence, mayPass } from './fence.mjs';
import { work } from './work.mjs';

const { CRONLESS_BROKER_URL: brokerUrl, CRONLESS_DATABASE_URL: databaseUrl } = process.env;
const prefix = process.env.CRONLESS_BROKER_PREFIX || 'cronless';
const concurrency = Number(process.env.WORKER_CONCURRENCY) || 4;
const leaseSeconds = Number(process.env.WORKER_LEASE_SECONDS) || 60;
const drainSeconds = Number(process.env.WORKER_DRAIN_SECONDS) || 30;
const jobType = process.argv[2];
if (!jobType || !brokerUrl || !databaseUrl) {
  console.error('usage: CRONLESS_BROKER_URL=amqp://… CRONLESS_DATABASE_URL=postgresql://… node worker.mjs JOB_TYPE');
  process.exit(2);
}
const queue = `${prefix}.${jobType}`;
const fence = new Fence(databaseUrl, { connections: concurrency + 1, leaseSeconds });
const running = new Set();
let alone = false; // a job runs that nothing may run beside
let taking = Promise.resolve(); // the message that is between the queue and its start
let [stopping, hangUp, roomAgain] = [false, () => {}, () => {}];

/** Do a started job and report how it went. Never rejects: what can't be reported is rescued by its lease. */
async function run(message, execution, row) {
  const lost = new AbortController();
  const renewal = setInterval(() => {
    fence.renew(message, execution).then((ours) => ours || lost.abort(), () => {});
  }, (leaseSeconds * 1000) / 3);
  const job = {
    id: message.id, tenant: row.tenant_id, name: row.name, payload: row.payload,
    scheduledFor: row.scheduled_for, attempt: row.attempt, manual: row.manual,
    // The text that Python's handlers get, so that both may serve one job type.
    idempotencyKey: `${message.id}:${message.scheduled_for.replace(/Z$/, '+00:00')}`,
  };
  let result;
  try {
    const answer = await work(job, lost.signal);
    result = { outcome: 'success', nextAt: answer?.nextAt?.toISOString() };
  } catch (error) {
    result = { outcome: 'failure', error: String(error?.message ?? error).replaceAll('\0', '\\0') };
  }
  clearInterval(renewal);
  try {
    const answer = await fence.finish(message, execution, result).catch((error) => {
      if (mayPass(error)) throw error;
      // An instant that the database can't hold, say: the job has failed then, instead of hanging until rescued.
      result = { outcome: 'failure', error: error.message };
      return fence.finish(message, execution, result);
    });
    console.log(`${job.tenant} ${job.name}: ${result.outcome} ${answer}`);
  } catch (error) {
    console.error(`job ${job.id}: its result could not be written (${error.message})`);
  }
}

/** Read a message; throws for everything that this version doesn't know. */
function read({ content, properties }) {
  const message = JSON.parse(content.toString('utf8'));
  const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
  if ((properties.type ?? 'cronless.job.v1') !== 'cronless.job.v1' || message?.version !== 1) {
    throw new Error('it is no job of version 1');
  }
  if (message.type !== jobType) throw new Error(`job type ${message.type} on the queue of ${jobType}`);
  if (!uuid.test(message.id) || !uuid.test(message.token)) throw new Error('id or token is no UUID');
  if (!Number.isFinite(Date.parse(message.scheduled_for))) throw new Error('scheduled_for is no instant');
  return message;
}

/** Consume until the connection is lost or the worker stops; returns the error that ended it. */
async function consume() {
  const clientProperties = { connection_name: `node worker of ${jobType}` };
  const connection = await amqp.connect(brokerUrl, { timeout: 5000, clientProperties });
  let [reason, consuming] = [null, false];
  const closed = new Promise((resolve) => { connection.on('close', resolve); });
  const end = (error) => { reason ??= error; connection.close().catch(() => {}); };
  connection.on('error', end);
  const channel = await connection.createConfirmChannel();
  channel.on('error', end);
  channel.on('close', () => end(new Error('the channel was closed')));
  // One message at a time is unacknowledged: no other arrives before the fence has answered for it.
  await channel.prefetch(1);

  const room = () => !alone && running.size < concurrency;
  async function resume() {
    if (consuming || stopping || reason || !room()) return;
    consuming = true;
    await channel.consume(queue, (delivery) => { taking = take(delivery).catch(end); }, { consumerTag: 'it' });
  }

  async function take(delivery) {
    if (delivery === null) throw new Error(`queue ${queue} was deleted`);
    let message;
    try {
      message = read(delivery);
    } catch (error) {
      await putAside(delivery, error.message);
      return;
    }
    // Suspected of killing its worker: what runs ends first.
    if (message.alone) await Promise.all(running);
    if (stopping) return; // unacknowledged, it goes back to the queue
    const execution = randomUUID();
    const row = await fence.start(message, execution);
    if (row) {
      alone = message.alone === true;
      const job = run(message, execution, row).then(() => {
        running.delete(job);
        alone = false;
        roomAgain();
      });
      running.add(job);
      if (!room()) {
        // Before the acknowledgement: no message shall wait here that an idle worker could take.
        await channel.cancel('it');
        consuming = false;
      }
    } else {
      console.log(`job ${message.id}: dropped, the message is out of date or doubled`);
    }
    channel.ack(delivery);
    await resume();
  }

  /** Keep a message that can't be read, with the reason, and only then let go of it. */
  async function putAside(delivery, why) {
    const { contentType, messageId, type } = delivery.properties;
    const kept = { contentType, messageId, type, headers: { 'x-cronless-error': why.slice(0, 1000) } };
    channel.publish(`${prefix}.dlx`, '', delivery.content, { ...kept, persistent: true });
    await channel.waitForConfirms();
    console.error(`message ${messageId}: put aside, ${why}`);
    channel.ack(delivery);
  }

  [hangUp, roomAgain] = [() => end(new Error('stopped')), () => { resume().catch(end); }];
  await channel.checkQueue(queue).then(resume).catch(end);
  const last = await closed;
  return reason ?? last ?? new Error('the broker closed it');
}

const asked = new Promise((resolve) => {
  for (const signal of ['SIGTERM', 'SIGINT']) {
    process.on(signal, () => {
      if (stopping) process.exit(1);
      stopping = true;
      resolve();
    });
  }
});
for (let tries = 0; !stopping; tries++) {
  const began = Date.now();
  const error = await Promise.race([consume().catch((failed) => failed), asked]);
  if (stopping) break;
  console.error(`connection lost: ${error.message}`);
  if (!mayPass(error) || /ACCESS.REFUSED|NOT.ALLOWED|Expected amqp/.test(error.message)) {
    process.exitCode = 1; // refused for good: trying again would only hide it
    break;
  }
  if (Date.now() - began > 30_000) tries = 0;
  await Promise.race([sleep(Math.random() * Math.min(30_000, 500 * 2 ** tries)), asked]);
}
hangUp();
const drained = taking.then(() => Promise.all(running)).then(() => true);
if (!(await Promise.race([drained, sleep(drainSeconds * 1000)]))) {
  console.error(`${running.size} jobs still run: their leases will give them to others`);
}
process.exit();
