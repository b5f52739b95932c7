// What ends a message at once, what limits its calls, and what a bulk action must not do: with the
// official SDK against a running server (QSTASH_URL, QSTASH_TOKEN).

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, test } from "node:test";

import { Client, QstashError } from "@upstash/qstash";

import { Destination, sleep, until } from "./receiver.mjs";

const { QSTASH_URL: baseUrl, QSTASH_TOKEN: token } = process.env;
const client = new Client({ baseUrl, token });
const destination = new Destination();
const somewhere = () => `/${randomUUID()}`;

const letterOf = (messageId) =>
  until(async () => {
    const { messages } = await client.dlq.listMessages({ filter: { messageId } });
    return messages[0];
  }, "a dead letter");

before(() => destination.start());
after(() => destination.stop());

test("a client in development mode uses the running server and downloads nothing", async () => {
  const { QSTASH_DEV_PORT, QSTASH_URL, QSTASH_TOKEN } = process.env;
  process.env.QSTASH_DEV_PORT = new URL(baseUrl).port;
  delete process.env.QSTASH_URL;
  delete process.env.QSTASH_TOKEN;
  const fetched = [];
  const { fetch } = globalThis;
  globalThis.fetch = (url, options) => {
    fetched.push(new URL(url).origin);
    return fetch(url, options);
  };
  try {
    const development = new Client({ devMode: true });
    const path = somewhere();
    const { messageId } = await development.publish({ url: destination.url(path), body: "dev" });
    const [request] = await destination.waitFor(path, 1);
    assert.equal(request.headers["upstash-message-id"], messageId);
    assert.deepEqual([...new Set(fetched)], [new URL(baseUrl).origin]);
  } finally {
    globalThis.fetch = fetch;
    Object.assign(process.env, { QSTASH_URL, QSTASH_TOKEN });
    if (QSTASH_DEV_PORT === undefined) delete process.env.QSTASH_DEV_PORT;
    else process.env.QSTASH_DEV_PORT = QSTASH_DEV_PORT;
  }
});

test("489 with its header and 410 end a message at once, 489 alone does not", async () => {
  const final = { "Upstash-NonRetryable-Error": "true" };
  for (const answer of [{ status: 489, headers: final }, { status: 410 }]) {
    const path = somewhere();
    const url = destination.answer(path, answer);
    const { messageId } = await client.publish({ url, retries: 3, retryDelay: "10" });
    const letter = await letterOf(messageId);
    assert.equal(letter.responseStatus, answer.status);
    assert.equal(destination.at(path).length, 1);
  }
  const path = somewhere();
  const url = destination.answer(path, { status: 489 }, { status: 200 });
  await client.publish({ url, retries: 1, retryDelay: "10" });
  await destination.waitFor(path, 2);
});

test("a filter that is none is refused and deletes, redrives and cancels nothing", async () => {
  const label = randomUUID();
  const url = destination.answer(somewhere(), { status: 500 });
  const { messageId } = await client.publish({ url, retries: 0, label });
  await letterOf(messageId);
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
  assert.ok(await letterOf(messageId));
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

test("a message that fails holds up the later ones of its queue", async () => {
  const queueName = `q-${randomUUID()}`;
  const [first, second] = [somewhere(), somewhere()];
  destination.answer(first, { status: 500 }, { status: 500 }, { status: 200 });
  const queue = client.queue({ queueName });
  await queue.enqueueJSON({ url: destination.url(first), body: 1, retryDelay: "200" });
  await queue.enqueueJSON({ url: destination.url(second), body: 2 });
  await destination.waitFor(second, 1);
  assert.equal(destination.at(first).length, 3);
  await queue.delete();
});
