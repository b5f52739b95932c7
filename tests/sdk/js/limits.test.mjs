// What limits the calls of messages, as their destination sees it, and what a bulk action must not
// do.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, test } from "node:test";

import { QstashError } from "@upstash/qstash";

import { Destination, gate, sleep, somewhere, until } from "./destination.mjs";
import { Server } from "./server.mjs";

const destination = new Destination();
let server, client;

before(async () => {
  await destination.start();
  server = await Server.start();
  ({ client } = server);
});

after(async () => {
  await server?.end();
  await destination.stop();
});

test("a filter that is none is refused and deletes, redrives and cancels nothing", async () => {
  const label = randomUUID();
  const url = destination.answer(somewhere(), { status: 500 });
  const { messageId } = await client.publish({ url, retries: 0, label });
  await server.letterOf(messageId);
  const waiting = await client.publish({ url, delay: 3600, label });
  const wrong = { filter: { labeel: label } };
  const actions = [
    () => client.dlq.delete(wrong),
    () => client.dlq.retry(wrong),
    () => client.messages.cancel(wrong),
  ];
  for (const action of actions) {
    await assert.rejects(action(), (error) => error instanceof QstashError && error.status === 400);
  }
  assert.ok(await server.letterOf(messageId));
  assert.equal((await client.messages.get(waiting.messageId)).label, label);
  assert.equal((await client.messages.cancel({ filter: { label } })).cancelled, 1);
  assert.equal((await client.dlq.delete({ filter: { label } })).deleted, 1);
});

test("a flow-control key lets as many calls begin as it says, and waits while it is paused", async () => {
  const key = `k-${randomUUID()}`;
  const path = somewhere();
  const url = destination.url(path);
  const limited = (flowControl) => client.publish({ url, flowControl: { key, ...flowControl } });
  for (let n = 0; n < 5; n += 1) await limited({ rate: 2, period: "1h" });
  await destination.waitFor(path, 2);
  const shown = await client.flowControl.get(key);
  assert.equal(shown.rateMax, 2);
  assert.equal(shown.rateCount, 2);
  assert.equal(shown.ratePeriod, 3600);
  assert.equal(shown.waitListSize, 3);
  await client.flowControl.resetRate(key);
  await destination.waitFor(path, 4);
  await sleep(300);
  assert.equal(destination.at(path).length, 4);

  await client.flowControl.pause(key);
  await client.flowControl.pin(key, { parallelism: 7, rate: 100, period: 60 });
  await limited({ rate: 1 });
  const pinned = await client.flowControl.get(key);
  assert.equal(pinned.isPaused, true);
  assert.equal(pinned.isPinnedRate, true);
  assert.equal(pinned.rateMax, 100);
  assert.equal(destination.at(path).length, 4);
  await client.flowControl.resume(key);
  await destination.waitFor(path, 6);
  await client.flowControl.unpin(key, { parallelism: true, rate: true });
  assert.ok((await client.flowControl.getGlobalParallelism()).parallelismMax > 0);
});

test("no more calls of a key are under way at once than its parallelism", async () => {
  const key = `k-${randomUUID()}`;
  const path = somewhere();
  const { opened, open } = gate();
  const url = destination.answer(path, { status: 200, when: () => opened.then(() => sleep(50)) });
  for (let n = 0; n < 6; n += 1) await client.publish({ url, flowControl: { key, parallelism: 2 } });
  await destination.waitFor(path, 2);
  const shown = await client.flowControl.get(key);
  assert.deepEqual([shown.parallelismMax, shown.parallelismCount, shown.waitListSize], [2, 2, 4]);
  open();
  const calls = await destination.waitFor(path, 6);
  assert.equal(Math.max(...calls.map((call) => call.open)), 2);
});

test("no more calls of a key come in a period than its rate", async () => {
  const key = `k-${randomUUID()}`;
  const path = somewhere();
  const url = destination.url(path);
  const [rate, periodMs] = [3, 1_000];
  const start = Date.now();
  const message = { url, flowControl: { key, rate, period: "1s" } };
  await Promise.all(Array.from({ length: 8 }, () => client.publish(message)));
  const calls = await destination.waitFor(path, 8);
  for (const [index, { at }] of calls.entries()) {
    const periods = Math.floor(index / rate);
    assert.ok(at >= start + periods * periodMs, `call ${index} after ${at - start} ms`);
  }
});

test("a queue keeps its order while messages fail, and goes on after one that dies", async () => {
  const path = somewhere();
  const [failed, done] = [{ status: 500 }, { status: 200 }];
  const url = destination.answer(path, failed, failed, done, failed, done);
  const queue = client.queue({ queueName: `q-${randomUUID()}` });
  const retryDelay = "200";
  await queue.enqueueJSON({ url, body: "patient", retryDelay });
  const { messageId } = await queue.enqueueJSON({ url, body: "dead", retries: 0 });
  await queue.enqueueJSON({ url, body: "late", retryDelay });
  const calls = await destination.waitFor(path, 5);
  assert.deepEqual(
    calls.map(({ body, headers }) => `${JSON.parse(body)} ${headers["upstash-retried"]}`),
    ["patient 0", "patient 1", "patient 2", "dead 0", "late 0"],
  );
  for (const retry of [1, 2]) assert.ok(calls[retry].at - calls[retry - 1].at >= 200);
  assert.equal((await server.letterOf(messageId)).queueName, queue.queueName);
  await queue.delete();
});

test("a duplicate is answered with 202, and its id is free again after the window", async () => {
  const windowMs = 5_000;
  const own = await Server.start({ HOOKSTASH_DEDUP_WINDOW: `${windowMs}ms` });
  try {
    const path = somewhere();
    const message = { url: destination.url(path), deduplicationId: randomUUID() };
    const start = Date.now();
    const first = await own.client.publish(message);
    const again = await own.call("POST", `/v2/publish/${message.url}`, {
      "Upstash-Deduplication-Id": message.deduplicationId,
    });
    assert.equal(again.status, 202);
    assert.deepEqual(await again.json(), { messageId: first.messageId, deduplicated: true });
    // Duplicates do not make it longer.
    const second = await until(async () => {
      const answer = await own.client.publish(message);
      return !answer.deduplicated && answer;
    }, "the end of the window");
    assert.ok(Date.now() - start >= windowMs);
    assert.notEqual(second.messageId, first.messageId);
    const calls = await destination.waitFor(path, 2);
    const ids = calls.map(({ headers }) => headers["upstash-message-id"]);
    assert.deepEqual(ids, [first.messageId, second.messageId]);
  } finally {
    await own.end();
  }
});
