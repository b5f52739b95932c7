// A destination on this machine: records what is delivered and answers as each path was told.

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";

const SOON_MS = 30_000;

export class Destination {
  #answers = new Map();
  #received = [];
  #server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const path = request.url;
    const earlier = this.at(path);
    const call = {
      method: request.method,
      path,
      headers: request.headers,
      body: Buffer.concat(chunks),
      at: Date.now(),
      isOpen: true,
      // How many calls of its path were under way when it came, itself included.
      open: earlier.filter(({ isOpen }) => isOpen).length + 1,
    };
    this.#received.push(call);
    const answers = this.#answers.get(path) ?? [{ status: 200 }];
    const answer = answers[Math.min(earlier.length, answers.length - 1)];
    const { status, headers = {}, body = "", when = () => {} } = answer;
    await when();
    call.isOpen = false;
    response.writeHead(status, headers).end(body);
  });

  async start() {
    await new Promise((done) => this.#server.listen(0, "127.0.0.1", done));
    return this;
  }

  stop() {
    this.#server.closeAllConnections();
    return new Promise((done) => this.#server.close(done));
  }

  url(path) {
    return `http://127.0.0.1:${this.#server.address().port}${path}`;
  }

  // The answers to the requests of one path, in order; the last one repeats. An answer goes out once
  // the promise that its `when` returns, if it has one, is fulfilled.
  answer(path, ...answers) {
    this.#answers.set(path, answers);
    return this.url(path);
  }

  at(path) {
    return this.#received.filter((request) => request.path === path);
  }

  async waitFor(path, count, timeoutMs = SOON_MS) {
    await until(() => this.at(path).length >= count, `${count} requests at ${path}`, timeoutMs);
    return this.at(path);
  }
}

// A path that no other test uses.
export const somewhere = () => `/${randomUUID()}`;

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// What waits for `opened` goes on after `open()`.
export function gate() {
  let open;
  const opened = new Promise((done) => (open = done));
  return { opened, open };
}

// Asks until the answer is true, and returns it.
export async function until(ask, what, timeoutMs = SOON_MS) {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    const answer = await ask();
    if (answer) return answer;
    if (Date.now() > deadline) throw new Error(`waited ${timeoutMs} ms in vain for ${what}`);
    await sleep(20);
  }
}
