// What outlives the server: each test has one of its own, ends it and starts another on its store.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, describe, test } from "node:test";

import { Destination, gate, somewhere, until } from "./destination.mjs";
import { Server } from "./server.mjs";

const destination = new Destination();
const MINUTE_MS = 60_000;

before(() => destination.start());
after(() => destination.stop());

// A server that ends with the test.
async function started(context, settings) {
  const server = await Server.start(settings);
  context.after(() => server.end());
  return server;
}

const letters = async ({ client }, label) =>
  (await client.dlq.listMessages({ filter: { label } })).messages;

// Until all of them are known to be delivered: nothing is sent after that.
const delivered = ({ client }, label, count) =>
  until(async () => {
    const { logs } = await client.logs({ filter: { label, state: "DELIVERED" } });
    return logs.length === count;
  }, `${count} messages with the label ${label} to be delivered`);

const bodies = (path) => destination.at(path).map(({ body }) => body.toString());

describe("after a restart", { concurrency: true }, () => {
  test("messages that waited are there, and each is delivered once", async (context) => {
    const server = await started(context);
    const [delayed, queued, held, failed] = [somewhere(), somewhere(), somewhere(), somewhere()];
    const label = randomUUID();
    const queueName = `q-${randomUUID()}`;
    const key = `k-${randomUUID()}`;
    let { client } = server;
    await client.queue({ queueName }).upsert({ parallelism: 1, paused: true });
    for (const body of ["1", "2", "3"]) {
      await client.queue({ queueName }).enqueue({ url: destination.url(queued), body, label });
    }
    const flowControl = { key, parallelism: 1, rate: 100 };
    const limited = { url: destination.url(held), flowControl, label };
    await client.publish({ ...limited, body: "first" });
    await delivered(server, label, 1);
    await client.flowControl.pause(key);
    for (const body of ["x", "y"]) await client.publish({ ...limited, body });
    destination.answer(failed, { status: 500 }, { status: 200 });
    const retried = await client.publish({
      url: destination.url(failed),
      retryDelay: "5000",
      deduplicationId: label,
      label,
    });
    const filter = { label, state: "RETRY" };
    await until(async () => (await client.logs({ filter })).logs.length === 1, "a retry");
    const url = destination.url(delayed);
    const publishDelayed = (body) => client.publish({ url, body, delay: 4, label });
    const later = await Promise.all(["a", "b", "c", "d", "e"].map(publishDelayed));

    await server.restart();
    ({ client } = server);
    for (const { messageId } of later) {
      assert.equal((await client.messages.get(messageId)).url, url);
    }
    const { lag, paused, parallelism } = await client.queue({ queueName }).get();
    assert.deepEqual([lag, paused, parallelism], [3, true, 1]);
    const limits = await client.flowControl.get(key);
    assert.deepEqual([limits.isPaused, limits.waitListSize, limits.rateMax], [true, 2, 100]);
    const again = await client.publish({ url, deduplicationId: label });
    assert.deepEqual([again.messageId, again.deduplicated], [retried.messageId, true]);
    await client.queue({ queueName }).resume();
    await client.flowControl.resume(key);

    await delivered(server, label, 5 + 3 + 3 + 1);
    assert.deepEqual(bodies(delayed).sort(), ["a", "b", "c", "d", "e"]);
    assert.deepEqual(bodies(queued), ["1", "2", "3"]);
    assert.deepEqual(bodies(held), ["first", "x", "y"]);
    const attempts = destination.at(failed).map(({ headers }) => headers["upstash-retried"]);
    assert.deepEqual(attempts, ["0", "1"]);
  });

  test("dead letters, URL groups and logs are there, and a letter can be redriven", async (context) => {
    const server = await started(context);
    const [path, member] = [somewhere(), somewhere()];
    const label = randomUUID();
    const name = `g-${randomUUID()}`;
    const url = destination.answer(path, { status: 500, body: "why" }, { status: 200 });
    const message = { url, body: "dead", headers: { "X-Kept": "yes" }, retries: 0, label };
    const { messageId } = await server.client.publish(message);
    const letter = await server.letterOf(messageId);
    const endpoints = [{ url: destination.url(member), name: "one" }];
    await server.client.urlGroups.addEndpoints({ name, endpoints });
    const { logs } = await server.client.logs({ filter: { label } });

    await server.restart();
    assert.deepEqual(await letters(server, label), [letter]);
    assert.deepEqual((await server.client.logs({ filter: { label } })).logs, logs);
    assert.deepEqual((await server.client.urlGroups.get(name)).endpoints, endpoints);
    await server.client.publish({ urlGroup: name, body: "to all" });
    await destination.waitFor(member, 1);
    await server.client.dlq.retry(letter.dlqId);
    const [, redriven] = await destination.waitFor(path, 2);
    assert.equal(redriven.body.toString(), "dead");
    assert.equal(redriven.headers["x-kept"], "yes");
    assert.deepEqual(await letters(server, label), []);
  });

  test("a call that was under way when the server was killed is made again", async (context) => {
    const server = await started(context, { HOOKSTASH_LEASE: "2s", HOOKSTASH_RENEW: "500ms" });
    const path = somewhere();
    const { opened, open } = gate();
    const url = destination.answer(path, { status: 200, when: () => opened }, { status: 200 });
    const label = randomUUID();
    const { messageId } = await server.client.publish({ url, body: "kept", retries: 0, label });
    await destination.waitFor(path, 1);
    await server.restart();
    open();
    await delivered(server, label, 1);
    const calls = destination.at(path).map(({ body, headers }) => [
      body.toString(),
      headers["upstash-message-id"],
      headers["upstash-retried"],
    ]);
    assert.deepEqual(calls, Array(2).fill(["kept", messageId, "0"]));
  });

  test("a server that is told to stop ends its calls first, none is made twice", async (context) => {
    const server = await started(context);
    const path = somewhere();
    const { opened, open } = gate();
    const url = destination.answer(path, { status: 200, when: () => opened });
    const label = randomUUID();
    await server.client.publish({ url, label });
    await server.client.publish({ url: destination.url(somewhere()), delay: 1, label });
    await destination.waitFor(path, 1);
    const stopped = server.stop("SIGTERM");
    const isRefused = async () => server.call("GET", "/readyz").then(({ ok }) => !ok, () => true);
    await until(isRefused, "the server to take nothing more");
    open();
    assert.equal(await stopped, 0);
    await server.restart();
    await delivered(server, label, 2);
    assert.equal(destination.at(path).length, 1);
  });

  test("a schedule is there and goes on firing", async (context) => {
    const server = await started(context);
    const path = somewhere();
    const [scheduleId, paused] = ["every-minute", "paused"];
    const { schedules } = server.client;
    const body = "tick";
    const wanted = { destination: destination.url(path), cron: "* * * * *", body };
    await schedules.create({ ...wanted, scheduleId });
    await schedules.create({ ...wanted, scheduleId: paused, cron: "0 0 1 1 *" });
    await schedules.pause({ schedule: paused });
    const of = (list, id) => list.find((one) => one.scheduleId === id);
    const before = await schedules.list();

    await server.stop("SIGKILL");
    const fired = destination.at(path).length;
    await server.restart();
    const list = await server.client.schedules.list();
    assert.equal(list.length, 2);
    assert.deepEqual(of(list, paused), of(before, paused));
    assert.equal(of(list, scheduleId).cron, "* * * * *");
    const calls = await destination.waitFor(path, fired + 1, MINUTE_MS + 30_000);
    const { headers, body: sent } = calls.at(-1);
    assert.deepEqual([headers["upstash-schedule-id"], sent.toString()], [scheduleId, body]);
    const { lastScheduleTime, nextScheduleTime } = await server.client.schedules.get(scheduleId);
    assert.equal(nextScheduleTime % MINUTE_MS, 0);
    assert.ok(lastScheduleTime < nextScheduleTime);
  });
});
