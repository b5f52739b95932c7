// A destination on this machine: records what is delivered and answers as each path was told.

import { createServer } from "node:http";

export class Destination {
  #answers = new Map();
  #received = [];
  #server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const path = request.url;
    const earlier = this.at(path).length;
    this.#received.push({
      method: request.method,
      path,
      headers: request.headers,
      body: Buffer.concat(chunks),
    });
    const answers = this.#answers.get(path) ?? [{ status: 200 }];
    const { status, headers = {}, body = "" } = answers[Math.min(earlier, answers.length - 1)];
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

  // The answers to the requests of one path, in order; the last one repeats.
  answer(path, ...answers) {
    this.#answers.set(path, answers);
    return this.url(path);
  }

  at(path) {
    return this.#received.filter((request) => request.path === path);
  }

  async waitFor(path, count, timeoutMs = 10_000) {
    await until(() => this.at(path).length >= count, `${count} requests at ${path}`, timeoutMs);
    return this.at(path);
  }
}

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// Asks until the answer is true, and returns it.
export async function until(ask, what, timeoutMs = 10_000) {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    const answer = await ask();
    if (answer) return answer;
    if (Date.now() > deadline) throw new Error(`waited ${timeoutMs} ms in vain for ${what}`);
    await sleep(20);
  }
}
