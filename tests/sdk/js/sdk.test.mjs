// The official SDK publishes to a server, receives the delivery and verifies it.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, test } from "node:test";

import { Client, QstashError, Receiver } from "@upstash/qstash";

import { Destination, sleep, somewhere, until } from "./destination.mjs";
import { Server } from "./server.mjs";

const destination = new Destination();
let server, client, receiver;

const refused = (status, text) => (error) => {
  assert.ok(error instanceof QstashError, `${error}`);
  assert.equal(error.status, status);
  assert.match(error.message, text);
  return true;
};

const verified = (request, url) =>
  receiver.verify({
    signature: request.headers["upstash-signature"],
    body: request.body.toString(),
    url,
  });

before(async () => {
  await destination.start();
  server = await Server.start();
  ({ client } = server);
  const keys = await (await server.call("GET", "/v2/keys")).json();
  receiver = new Receiver({ currentSigningKey: keys.current, nextSigningKey: keys.next });
});

after(async () => {
  await server?.end();
  await destination.stop();
});

test("publishJSON is delivered once, signed, with its headers", async () => {
  const path = somewhere();
  const url = destination.url(path);
  const { messageId } = await client.publishJSON({
    url,
    body: { hello: "wörld" },
    headers: { "X-Agent-Step": "7" },
  });
  assert.match(messageId, /^msg_\w+$/);
  const [request] = await destination.waitFor(path, 1);
  assert.equal(request.method, "POST");
  assert.deepEqual(JSON.parse(request.body), { hello: "wörld" });
  assert.equal(request.headers["content-type"], "application/json");
  assert.equal(request.headers["x-agent-step"], "7");
  assert.equal(request.headers["user-agent"], "Upstash-QStash");
  assert.equal(request.headers["upstash-message-id"], messageId);
  assert.equal(request.headers["upstash-retried"], "0");
  const ours = ["upstash-telemetry-sdk", "upstash-method", "authorization"];
  for (const name of ours) assert.equal(request.headers[name], undefined, name);
  await sleep(200);
  assert.equal(destination.at(path).length, 1);
});

test("the receiver accepts a delivery with and without its URL, and nothing else", async () => {
  const path = `${somewhere()}?a=1&b=two%20words`;
  const url = destination.url(path);
  await client.publish({ url, body: "text" });
  const [request] = await destination.waitFor(path, 1);
  assert.equal(await verified(request), true);
  assert.equal(await verified(request, url), true);
  await assert.rejects(verified(request, `${url}/`));
  await assert.rejects(verified({ ...request, body: Buffer.from("text ") }, url));
  const other = new Receiver({
    currentSigningKey: "sig_0000000000000000000000000000",
    nextSigningKey: "sig_1111111111111111111111111111",
  });
  const signature = request.headers["upstash-signature"];
  await assert.rejects(other.verify({ signature, body: "text" }));
});

test("every method, an empty body and raw bytes arrive as they were published", async () => {
  for (const method of ["GET", "POST", "PUT", "PATCH", "DELETE"]) {
    const path = somewhere();
    await client.publish({ url: destination.url(path), method });
    const [request] = await destination.waitFor(path, 1);
    assert.equal(request.method, method);
    assert.equal(request.body.length, 0);
    assert.equal(await verified(request, destination.url(path)), true);
  }
  const path = somewhere();
  const body = Buffer.from([0, 255, 13, 10, 128]);
  await client.publish({ url: destination.url(path), body });
  const [request] = await destination.waitFor(path, 1);
  assert.deepEqual(request.body, body);
});

test("a failing destination is tried again by the retry delay, under one message id", async () => {
  const path = somewhere();
  const url = destination.answer(path, { status: 500 }, { status: 302 }, { status: 200 });
  const { messageId } = await client.publishJSON({ url, body: { n: 1 }, retryDelay: "50" });
  const requests = await destination.waitFor(path, 3);
  assert.deepEqual(
    requests.map((request) => request.headers["upstash-retried"]),
    ["0", "1", "2"],
  );
  for (const request of requests) {
    assert.equal(request.headers["upstash-message-id"], messageId);
    assert.equal(await verified(request, url), true);
  }
  await sleep(300);
  assert.equal(destination.at(path).length, 3);
});

test("a message without retries ends in the dead-letter queue and can be redriven", async () => {
  const path = somewhere();
  const failure = { status: 404, headers: { "X-Why": "gone" }, body: "404 Not Found" };
  const url = destination.answer(path, failure, failure, { status: 200 });
  const { messageId } = await client.publishJSON({
    url,
    body: { keep: true },
    headers: { "Test-Header": "value" },
    retries: 0,
    label: "dead",
  });
  let letter = await server.letterOf(messageId);
  assert.equal(letter.responseStatus, 404);
  assert.equal(letter.responseBody, "404 Not Found");
  assert.deepEqual(letter.responseHeader["X-Why"], ["gone"]);
  assert.equal(letter.url, url);
  assert.equal(letter.body, '{"keep":true}');
  assert.deepEqual(letter.header["Test-Header"], ["value"]);
  assert.equal(letter.label, "dead");
  const one = await (await server.call("GET", `/v2/dlq/${letter.dlqId}`)).json();
  assert.equal(one.messageId, messageId);

  for (const attempt of [2, 3]) {
    const redriven = await server.call("POST", `/v2/dlq/retry/${letter.dlqId}`);
    assert.equal(redriven.status, 201);
    const { messageId: newId } = await redriven.json();
    assert.notEqual(newId, letter.messageId);
    const requests = await destination.waitFor(path, attempt);
    assert.equal(requests.at(-1).headers["upstash-message-id"], newId);
    assert.equal(requests.at(-1).headers["test-header"], "value");
    assert.equal(requests.at(-1).body.toString(), '{"keep":true}');
    if (attempt === 2) letter = await server.letterOf(newId);
  }
  assert.deepEqual((await client.dlq.listMessages({ filter: { messageId } })).messages, []);
});

test("callbacks tell every attempt and the death, signed for their own URL", async () => {
  const url = destination.answer(somewhere(), { status: 500, headers: { "X-Why": "no" }, body: "wörld" });
  const [each, last] = [somewhere(), somewhere()];
  const { messageId } = await client.publishJSON({
    url,
    body: { keep: true },
    retries: 1,
    retryDelay: "50",
    callback: destination.url(each),
    failureCallback: destination.url(last),
    headers: { "Upstash-Failure-Callback-Forward-X-For": "ops" },
  });
  const story = async (request, path) => {
    assert.equal(await verified(request, destination.url(path)), true);
    assert.equal(request.headers["content-type"], "application/json");
    return JSON.parse(request.body);
  };
  const decoded = (text) => Buffer.from(text, "base64").toString();
  const requests = await destination.waitFor(each, 2);
  const told = await Promise.all(requests.map((request) => story(request, each)));
  assert.deepEqual(told.map(({ retried }) => retried).sort(), [0, 1]);
  for (const attempt of told) {
    assert.equal(attempt.status, 500);
    assert.equal(attempt.sourceMessageId, messageId);
    assert.equal(attempt.url, url);
    assert.equal(attempt.maxRetries, 1);
    assert.deepEqual(attempt.header["X-Why"], ["no"]);
    assert.equal(decoded(attempt.body), "wörld");
    assert.equal(decoded(attempt.sourceBody), '{"keep":true}');
    assert.deepEqual(attempt.sourceHeader["Content-Type"], ["application/json"]);
    assert.equal(attempt.dlqId, undefined);
  }
  const [mourned] = await destination.waitFor(last, 1);
  const death = await story(mourned, last);
  assert.equal(mourned.headers["x-for"], "ops");
  const letter = await server.letterOf(messageId);
  assert.equal(death.dlqId, letter.dlqId);
  assert.equal(death.retried, 1);
  assert.equal(letter.callback, destination.url(each));
  assert.equal(letter.failureCallback, destination.url(last));
});

test("dead letters are listed by pages and deleted one by one", async () => {
  const url = destination.answer("/always-410", { status: 410 });
  const published = await Promise.all(
    Array.from({ length: 3 }, () => client.publish({ url, retries: 0 })),
  );
  const ids = new Set(published.map(({ messageId }) => messageId));
  await Promise.all([...ids].map((id) => server.letterOf(id)));
  const seen = new Set();
  let cursor;
  do {
    const page = await client.dlq.listMessages({ cursor, count: 2 });
    assert.ok(page.messages.length <= 2);
    for (const { dlqId } of page.messages) {
      assert.ok(!seen.has(dlqId), "an entry came twice");
      seen.add(dlqId);
    }
    cursor = page.cursor;
  } while (cursor);
  for (const id of ids) {
    assert.ok(seen.has(id));
    await client.dlq.delete(id);
    await assert.rejects(client.dlq.delete(id), refused(404, /not found/));
  }
});

test("dead letters are filtered, deleted and redriven by ids and by filter", async () => {
  const [red, blue] = [randomUUID(), randomUUID()];
  const path = somewhere();
  const url = destination.answer(path, { status: 500 });
  const publish = (label) => client.publish({ url, retries: 0, label, body: label });
  const published = await Promise.all([red, red, red, blue, blue].map(publish));
  const list = async (filter) => (await client.dlq.listMessages({ filter })).messages;
  const dead = (label, count) =>
    until(async () => (await list({ label })).length === count, `${count} dead letters`);
  await dead(red, 3);
  await dead(blue, 2);
  assert.equal((await list({ label: [red, blue] })).length, 5);
  assert.equal((await list({ label: red, responseStatus: 404 })).length, 0);
  assert.equal((await list({ url, responseStatus: [404, 500] })).length, 5);
  const letters = await list({ label: red, fromDate: new Date(0), toDate: Date.now() + 60_000 });
  const ids = letters.map(({ dlqId }) => dlqId);
  const some = (await client.dlq.listMessages({ dlqIds: ids.slice(0, 2) })).messages;
  assert.deepEqual(some.map(({ dlqId }) => dlqId), ids.slice(0, 2));

  await assert.rejects(
    client.dlq.delete({ filter: { labeel: red } }),
    refused(400, /labeel/),
  );
  await dead(red, 3);
  assert.equal((await client.dlq.deleteMany({ dlqIds: ids.slice(0, 1) })).deleted, 1);
  assert.equal((await client.dlq.delete({ filter: { label: red }, count: 1 })).deleted, 1);
  await dead(red, 1);

  destination.answer(path, { status: 200 });
  const one = await client.dlq.retry(ids[2]);
  assert.equal(one.responses.length, 1);
  const two = await client.dlq.retry({ filter: { label: blue }, count: 1 });
  assert.equal(two.responses.length, 1);
  assert.ok(two.cursor);
  const rest = await client.dlq.retry({ filter: { label: blue }, cursor: two.cursor });
  assert.equal(rest.responses.length, 1);
  assert.equal(rest.cursor, undefined);
  const requests = await destination.waitFor(path, published.length + 3);
  const sent = requests.slice(published.length).map((request) => request.headers["upstash-message-id"]);
  const answered = [one, two, rest].flatMap(({ responses }) => responses.map((r) => r.messageId));
  assert.deepEqual(new Set(sent), new Set(answered));
  await dead(blue, 0);
  await dead(red, 0);
});

test("all dead letters are deleted page by page", async () => {
  const url = destination.answer(somewhere(), { status: 410 });
  const label = randomUUID();
  for (let n = 0; n < 3; n++) await client.publish({ url, retries: 0, label });
  await until(
    async () => (await client.dlq.listMessages({ filter: { label } })).messages.length === 3,
    "three dead letters",
  );
  let cursor;
  let deleted = 0;
  do {
    const page = await client.dlq.delete({ all: true, count: 2, cursor });
    deleted += page.deleted;
    cursor = page.cursor;
  } while (cursor);
  assert.ok(deleted >= 3, `${deleted}`);
  assert.deepEqual((await client.dlq.listMessages()).messages, []);
});

test("several messages are cancelled by their ids", async () => {
  const path = somewhere();
  const message = { url: destination.url(path), delay: 3 };
  const published = await Promise.all([1, 2, 3].map(() => client.publish(message)));
  const ids = published.map(({ messageId }) => messageId);
  assert.deepEqual(await client.messages.cancel([...ids.slice(0, 2), "msg_unknown"]), { cancelled: 2 });
  assert.deepEqual(await client.messages.cancel({ messageIds: ids }), { cancelled: 1 });
  for (const id of ids) await assert.rejects(client.messages.get(id), refused(404, /not found/));
  await sleep(3_500);
  assert.equal(destination.at(path).length, 0);
});

test("what happened to a message is in the logs, page by page", async () => {
  const label = randomUUID();
  const url = destination.answer(somewhere(), { status: 503 }, { status: 200 });
  const message = { url, label, retryDelay: "50", retries: 2 };
  const { messageId } = await client.publish(message);
  const story = ["DELIVERED", "RETRY", "ERROR", "CREATED"];
  const states = (logs) => logs.map(({ state }) => state);
  const logs = await until(async () => {
    const { logs } = await client.logs({ messageIds: [messageId] });
    return logs.length === story.length && logs;
  }, "the story of a message");
  assert.deepEqual(states(logs), story);
  for (const log of logs) {
    assert.equal(log.messageId, messageId);
    assert.equal(log.url, url);
    assert.equal(log.label, label);
    assert.equal(log.maxRetries, 2);
    assert.ok(Math.abs(log.time - Date.now()) < 60_000);
  }
  assert.equal(logs[2].responseStatus, 503);
  assert.equal(logs[1].nextDeliveryTime, logs[1].time + 50);
  const seen = [];
  let cursor;
  do {
    const page = await client.logs({ cursor, count: 1, filter: { label } });
    assert.ok(page.logs.length <= 1);
    seen.push(...page.logs);
    cursor = page.cursor;
  } while (cursor);
  assert.deepEqual(states(seen), story);
  const failed = (await client.logs({ filter: { label, state: "ERROR" } })).logs;
  assert.deepEqual(states(failed), ["ERROR"]);
  const host = new URL(url).host;
  assert.deepEqual(states((await client.logs({ filter: { label, host } })).logs), story);
  assert.deepEqual((await client.logs({ filter: { label, path: "/other" } })).logs, []);
  await assert.rejects(client.logs({ filter: { labeel: "x" } }), refused(400, /labeel/));
});

test("a deduplication id is delivered once", async () => {
  const path = somewhere();
  const message = { url: destination.url(path), body: "x", deduplicationId: randomUUID() };
  const [first, ...others] = await Promise.all(
    Array.from({ length: 10 }, () => client.publish(message)),
  );
  const ids = new Set([first, ...others].map(({ messageId }) => messageId));
  assert.equal(ids.size, 1);
  const duplicates = [first, ...others].filter(({ deduplicated }) => deduplicated);
  assert.equal(duplicates.length, 9);
  await destination.waitFor(path, 1);
  assert.equal((await client.publish(message)).deduplicated, true);
  const content = { url: destination.url(path), body: path, contentBasedDeduplication: true };
  await client.publish(content);
  assert.equal((await client.publish(content)).deduplicated, true);
  await destination.waitFor(path, 2);
  await sleep(200);
  assert.equal(destination.at(path).length, 2);
  await assert.rejects(
    client.publish({ ...message, deduplicationId: "a:b" }),
    refused(400, /DeduplicationId cannot contain ':'/),
  );
});

test("a delayed message can be read and cancelled, and is never sent", async () => {
  const path = somewhere();
  const { messageId } = await client.publishJSON({
    url: destination.url(path),
    method: "PUT",
    body: { a: 1 },
    headers: { "test-header": "value" },
    delay: 2,
    retries: 7,
    retryDelay: "1000 * (1 + retried)",
    timeout: 30,
    label: "delayed",
  });
  const message = await client.messages.get(messageId);
  assert.equal(message.messageId, messageId);
  assert.equal(message.url, destination.url(path));
  assert.equal(message.method, "PUT");
  assert.equal(message.body, '{"a":1}');
  assert.equal(message.maxRetries, 7);
  assert.equal(message.retryDelayExpression, "1000 * (1 + retried)");
  assert.equal(message.label, "delayed");
  assert.equal(message.callerIP, "127.0.0.1");
  assert.deepEqual(message.header, {
    "Content-Type": ["application/json"],
    "Test-Header": ["value"],
  });
  assert.ok(Math.abs(message.notBefore - message.createdAt - 2_000) < 1_000);
  await client.messages.cancel(messageId);
  await assert.rejects(client.messages.get(messageId), refused(404, /message msg_\w+ not found/));
  await assert.rejects(client.messages.cancel(messageId), refused(404, /not found/));
  await sleep(2_500);
  assert.equal(destination.at(path).length, 0);
});

test("a delay and a time to wait for are kept", async () => {
  const [delayed, timed] = [somewhere(), somewhere()];
  const start = Date.now();
  await client.publish({ url: destination.url(delayed), delay: 1 });
  const at = Math.ceil(start / 1_000) + 1;
  await client.publish({ url: destination.url(timed), notBefore: at });
  await destination.waitFor(delayed, 1);
  assert.ok(Date.now() - start >= 1_000);
  await destination.waitFor(timed, 1);
  assert.ok(Date.now() >= at * 1_000);
});

test("a schedule is created, shown, edited, paused, resumed and deleted", async () => {
  const scheduleId = `js-${randomUUID()}`;
  await client.schedules.create({
    scheduleId,
    destination: "https://example.com/first",
    cron: "*/10 * * * * ",
    body: JSON.stringify({ hello: "world" }),
    headers: { "test-header": "test-value", "Upstash-Forward-bypass": "yes" },
    method: "GET",
    callback: "https://example.com/callback",
    failureCallback: "https://example.com/failure",
    delay: 10,
    retries: 5,
    queueName: "scheduled",
  });
  const shown = await client.schedules.get(scheduleId);
  assert.deepEqual(shown.header, {
    Bypass: ["yes"],
    "Content-Type": ["application/json"],
    "Test-Header": ["test-value"],
  });
  assert.equal(shown.cron, "*/10 * * * *");
  assert.equal(shown.destination, "https://example.com/first");
  assert.equal(shown.method, "GET");
  assert.equal(shown.body, '{"hello":"world"}');
  assert.deepEqual([shown.retries, shown.delay, shown.queueName], [5, 10, "scheduled"]);
  assert.equal(shown.callback, "https://example.com/callback");
  assert.equal(shown.failureCallback, "https://example.com/failure");
  assert.equal(shown.isPaused, false);
  assert.ok(shown.nextScheduleTime > Date.now());

  await client.schedules.create({
    scheduleId,
    destination: "https://example.com/second",
    cron: "CRON_TZ=Europe/Berlin 0 4 1 1 *",
  });
  const mine = (await client.schedules.list()).filter((one) => one.scheduleId === scheduleId);
  assert.deepEqual(mine.map((one) => one.destination), ["https://example.com/second"]);
  assert.equal(mine[0].body, undefined);

  await client.schedules.pause({ schedule: scheduleId });
  assert.equal((await client.schedules.get(scheduleId)).isPaused, true);
  await client.schedules.resume({ schedule: scheduleId });
  assert.equal((await client.schedules.get(scheduleId)).isPaused, false);
  await client.schedules.delete(scheduleId);
  await assert.rejects(client.schedules.get(scheduleId), refused(404, /schedule js-.* not found/));
  await assert.rejects(
    client.schedules.create({ destination: destination.url("/"), cron: "* * * * * *" }),
    refused(400, /Upstash-Cron: it has 6 fields/),
  );
});

test("a queue delivers in order, waits while it is paused, and is deleted", async () => {
  const path = somewhere();
  const url = destination.answer(path, { status: 500 }, { status: 200 });
  const queue = client.queue({ queueName: `q-${randomUUID()}` });
  await queue.upsert({ parallelism: 1, paused: true });
  const ids = [];
  for (let n = 0; n < 4; n++) {
    const { messageId } = await queue.enqueueJSON({ url, body: { n }, retryDelay: "50" });
    ids.push(messageId);
  }
  const waiting = await queue.get();
  assert.equal(waiting.name, queue.queueName);
  assert.deepEqual([waiting.parallelism, waiting.lag, waiting.paused], [1, 4, true]);
  assert.ok((await queue.list()).some(({ name }) => name === queue.queueName));
  assert.equal((await client.messages.get(ids[0])).queueName, queue.queueName);
  await sleep(300);
  assert.equal(destination.at(path).length, 0);
  await queue.resume();
  const requests = await destination.waitFor(path, 5);
  const order = requests.map((request) => JSON.parse(request.body).n);
  assert.deepEqual(order, [0, 0, 1, 2, 3]);
  await queue.pause();
  assert.equal((await queue.get()).paused, true);
  // An upsert that does not ask for a pause ends it.
  await queue.upsert({ parallelism: 3 });
  assert.equal((await queue.get()).paused, false);
  await queue.delete();
  await queue.delete();
  await assert.rejects(queue.get(), refused(404, /queue .* not found/));
});

test("a URL group delivers to each of its endpoints", async () => {
  const name = `g-${randomUUID()}`;
  const paths = [somewhere(), somewhere()];
  const [one, two] = paths.map((path) => destination.url(path));
  await client.urlGroups.addEndpoints({ name, endpoints: [{ url: one }, { url: two, name: "two" }] });
  assert.equal((await client.urlGroups.list())[0].name, name);
  const group = await client.urlGroups.get(name);
  assert.deepEqual(group.endpoints.map(({ url }) => url), [one, two]);
  assert.equal(group.endpoints[1].name, "two");
  const message = { urlGroup: name, body: { a: 1 }, deduplicationId: randomUUID() };
  const published = await client.publishJSON(message);
  assert.deepEqual(published.map(({ url }) => url), [one, two]);
  for (const [index, path] of paths.entries()) {
    const [request] = await destination.waitFor(path, 1);
    assert.equal(request.headers["upstash-message-id"], published[index].messageId);
    assert.equal(request.headers["upstash-topic-name"], name);
    assert.equal(await verified(request, destination.url(path)), true);
  }
  const again = await client.publishJSON(message);
  assert.deepEqual(again.map((entry) => entry.messageId), published.map((entry) => entry.messageId));
  assert.ok(again.every(({ deduplicated }) => deduplicated));
  await client.urlGroups.removeEndpoints({ name, endpoints: [{ name: "two" }] });
  assert.deepEqual((await client.urlGroups.get(name)).endpoints.map(({ url }) => url), [one]);
  await client.urlGroups.delete(name);
  await client.urlGroups.delete(name);
  await assert.rejects(client.urlGroups.get(name), refused(404, /not found/));
});

test("a batch takes URLs, queues and groups, and answers each in its place", async () => {
  const name = `g-${randomUUID()}`;
  const [first, second, third] = [somewhere(), somewhere(), somewhere()];
  await client.urlGroups.addEndpoints({
    name,
    endpoints: [{ url: destination.url(second) }, { url: destination.url(third) }],
  });
  const queueName = `q-${randomUUID()}`;
  const answers = await client.batchJSON([
    { url: destination.url(first), queueName, body: { n: 1 }, headers: { "X-N": "1" } },
    { urlGroup: name, body: { n: 2 } },
    { urlGroup: "no-such-group", body: { n: 3 } },
    { url: destination.url(first), queueName, body: { n: 4 }, delay: 1 },
  ]);
  assert.equal(answers.length, 4);
  assert.equal(answers[1].length, 2);
  assert.match(answers[2].error, /endpoint has invalid scheme/);
  const requests = await destination.waitFor(first, 2);
  assert.deepEqual(requests.map((request) => JSON.parse(request.body).n), [1, 4]);
  assert.deepEqual(
    requests.map((request) => request.headers["upstash-message-id"]),
    [answers[0].messageId, answers[3].messageId],
  );
  assert.equal(requests[0].headers["x-n"], "1");
  assert.equal(requests[0].headers["content-type"], "application/json");
  for (const path of [second, third]) await destination.waitFor(path, 1);
  await client.urlGroups.delete(name);
  await client.queue({ queueName }).delete();
});

test("a client in development mode uses the running server and downloads nothing", async () => {
  const { fetch } = globalThis;
  const { origin, port } = new URL(server.baseUrl);
  const fetched = [];
  globalThis.fetch = (url, options) => {
    fetched.push(new URL(url).origin);
    return fetch(url, options);
  };
  process.env.QSTASH_DEV_PORT = port;
  try {
    const development = new Client({ devMode: true });
    const path = somewhere();
    const { messageId } = await development.publish({ url: destination.url(path), body: "dev" });
    const [request] = await destination.waitFor(path, 1);
    assert.equal(request.headers["upstash-message-id"], messageId);
    assert.deepEqual([...new Set(fetched)], [origin]);
  } finally {
    globalThis.fetch = fetch;
    delete process.env.QSTASH_DEV_PORT;
  }
});

test("refusals reach the SDK with their status and text", async () => {
  await assert.rejects(
    client.publish({ urlGroup: "no-such-group", body: "x" }),
    refused(400, /endpoint has invalid scheme, add http:\/\/ or https:\/\//),
  );
  await assert.rejects(
    client.publish({ url: destination.url("/"), delay: "400d" }),
    refused(400, /Upstash-Delay/),
  );
  await assert.rejects(
    client.publish({ url: destination.url("/"), body: "x".repeat(10 * 1024 * 1024 + 1) }),
    refused(413, /quota maxMessageSize exceeded/),
  );
  const stranger = new Client({ baseUrl: server.baseUrl, token: "wrong" });
  await assert.rejects(
    stranger.publish({ url: destination.url("/"), body: "x" }),
    refused(401, /unable to authenticate: invalid token/),
  );
});
