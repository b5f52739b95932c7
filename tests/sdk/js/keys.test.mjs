// What receivers with older and newer keys accept while the signing keys are rotated.

import assert from "node:assert/strict";
import { randomBytes, randomUUID } from "node:crypto";
import { after, before, test } from "node:test";

import { Receiver } from "@upstash/qstash";

import { Destination, gate, somewhere } from "./destination.mjs";
import { Server } from "./server.mjs";

const destination = new Destination();
let server;

before(async () => {
  await destination.start();
  server = await Server.start({ HOOKSTASH_SECRET_KEY: randomBytes(32).toString("base64") });
});

after(async () => {
  await server?.end();
  await destination.stop();
});

// The SDK has no methods for them.
const keys = () => server.client.http.request({ method: "GET", path: ["v2", "keys"] });
const rotate = () =>
  server.client.http.request({ method: "POST", path: ["v2", "keys", "rotate"] });

// Whether a receiver that was given these keys accepts the delivery.
async function accepts({ current, next }, request) {
  const receiver = new Receiver({ currentSigningKey: current, nextSigningKey: next });
  const signature = request.headers["upstash-signature"];
  const url = destination.url(request.path);
  try {
    return await receiver.verify({ signature, body: request.body.toString(), url });
  } catch {
    return false;
  }
}

const delivered = async (url, body) => {
  const before = destination.at(url).length;
  await server.client.publish({ url: destination.url(url), body });
  return (await destination.waitFor(url, before + 1)).at(-1);
};

test("receivers verify before, across and after a rotation, and two behind no more", async () => {
  const [path, queued, retried] = [somewhere(), somewhere(), somewhere()];
  const { client } = server;
  const first = await keys();
  assert.equal(await accepts(first, await delivered(path, "before")), true);

  // Published before the rotation: one is sent after it, one is under way and sent again after it.
  const queue = client.queue({ queueName: `q-${randomUUID()}` });
  await queue.upsert({ parallelism: 1, paused: true });
  await queue.enqueue({ url: destination.url(queued), body: "queued" });
  const { opened, open } = gate();
  destination.answer(retried, { status: 500, when: () => opened }, { status: 200 });
  await client.publish({ url: destination.url(retried), body: "retried", retryDelay: "10" });
  await destination.waitFor(retried, 1);

  const second = await rotate();
  assert.equal(second.current, first.next);
  assert.ok(![first.current, first.next].includes(second.next));
  assert.deepEqual(await keys(), second);
  open();
  await queue.resume();
  const [early, late] = await destination.waitFor(retried, 2);
  const [fromQueue] = await destination.waitFor(queued, 1);
  assert.deepEqual([await accepts(first, early), await accepts(second, early)], [true, false]);
  for (const request of [late, fromQueue, await delivered(path, "after")]) {
    assert.deepEqual([await accepts(first, request), await accepts(second, request)], [true, true]);
  }

  const third = await rotate();
  const request = await delivered(path, "after both");
  assert.equal(await accepts(first, request), false);
  assert.equal(await accepts(second, request), true);
  assert.equal(await accepts(third, request), true);

  await server.restart();
  assert.deepEqual(await keys(), third);
  assert.equal(await accepts(second, await delivered(path, "after a restart")), true);
  await server.client.queue({ queueName: queue.queueName }).delete();
});
