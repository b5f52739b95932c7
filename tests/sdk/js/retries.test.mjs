// When a message is sent again, and what ends it at once.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { Destination, somewhere } from "./destination.mjs";
import { Server } from "./server.mjs";

const destination = new Destination();
const HOUR_MS = "3600000";
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

test("each attempt waits as long as the retry delay says", async () => {
  const path = somewhere();
  const url = destination.answer(path, { status: 500 });
  const retryDelay = "300 * (1 + retried)";
  const { messageId } = await client.publish({ url, retries: 2, retryDelay });
  const calls = await destination.waitFor(path, 3);
  const pauses = [1, 2].map((n) => calls[n].at - calls[n - 1].at);
  assert.ok(pauses[0] >= 300 && pauses[1] >= 600, `${pauses} ms`);
  await server.letterOf(messageId);
  assert.equal(destination.at(path).length, 3);
});

test("a destination that says when the next attempt may come is obeyed", async () => {
  const hints = [
    [{ "Retry-After": "0" }, 0],
    [{ "Retry-After": "1" }, 1_000],
    [{ "X-RateLimit-Reset": "0.5s" }, 500],
    [{ "X-RateLimit-Reset-Requests": "600ms" }, 600],
    [{ "Retry-After": "1", "X-RateLimit-Reset-Tokens": "1h" }, 1_000],
  ];
  const obeyed = hints.map(async ([headers, pauseMs]) => {
    const path = somewhere();
    const url = destination.answer(path, { status: 429, headers }, { status: 200 });
    await client.publish({ url, retryDelay: HOUR_MS });
    const [first, second] = await destination.waitFor(path, 2);
    const pause = second.at - first.at;
    assert.ok(pause >= pauseMs, `${JSON.stringify(headers)}: ${pause} ms`);
  });
  await Promise.all(obeyed);
});

test("489 with its header and 410 end a message at once, 489 alone does not", async () => {
  const final = { "Upstash-NonRetryable-Error": "true" };
  for (const answer of [{ status: 489, headers: final }, { status: 410 }]) {
    const path = somewhere();
    const url = destination.answer(path, answer);
    const { messageId } = await client.publish({ url, retries: 3, retryDelay: "10" });
    const letter = await server.letterOf(messageId);
    assert.equal(letter.responseStatus, answer.status);
    assert.equal(destination.at(path).length, 1);
  }
  const path = somewhere();
  const url = destination.answer(path, { status: 489 }, { status: 200 });
  await client.publish({ url, retries: 1, retryDelay: "10" });
  await destination.waitFor(path, 2);
});
