// A server for one file or test: `hookstash dev` on a free port, with a store that outlives it.
//
// HOOKSTASH_TEST_BIN is the program. Its store is in the Redis at HOOKSTASH_TEST_REDIS_URL, under a
// prefix of its own, or without one in a directory.

import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { Client } from "@upstash/qstash";

import { until } from "./destination.mjs";

const { HOOKSTASH_TEST_BIN: program, HOOKSTASH_TEST_REDIS_URL: redisUrl } = process.env;

// A server that is not ready by then never will be.
const READY_MAX_MS = 60_000;

const children = new Set();
process.on("SIGTERM", () => process.exit(1));
process.on("exit", () => children.forEach((child) => child.kill("SIGKILL")));

export class Server {
  #settings;
  #store;
  #directory;
  #child;

  // Starts one whose environment is these settings.
  static async start(settings = {}) {
    if (!program) throw new Error("set HOOKSTASH_TEST_BIN to the path of hookstash");
    const server = new Server();
    server.#settings = settings;
    if (redisUrl) {
      server.#store = ["--redis-url", redisUrl, "--key-prefix", `js-${randomUUID()}`];
    } else {
      server.#directory = await mkdtemp(join(tmpdir(), "hookstash-js-"));
      server.#store = ["--data-dir", server.#directory];
    }
    await server.#run();
    return server;
  }

  async #run() {
    const child = spawn(program, ["dev", "--port", "0", ...this.#store], {
      env: { HOOKSTASH_LOG: "error", ...this.#settings },
      stdio: ["ignore", "pipe", "inherit"],
    });
    this.#child = child;
    children.add(child);
    const deadline = setTimeout(() => child.kill("SIGKILL"), READY_MAX_MS);
    const lines = await readyLines(child.stdout).finally(() => clearTimeout(deadline));
    [this.baseUrl, this.token] = ["QSTASH_URL", "QSTASH_TOKEN"].map(
      (name) => lines.match(new RegExp(`^export ${name}="(.*)"$`, "m"))[1],
    );
    this.client = new Client({ baseUrl: this.baseUrl, token: this.token });
  }

  // Ends it, and returns its exit code; `null` when the signal killed it.
  async stop(signal) {
    const child = this.#child;
    if (child.exitCode === null && child.signalCode === null) {
      const ended = once(child, "exit");
      child.kill(signal);
      await ended;
    }
    children.delete(child);
    return child.exitCode;
  }

  // Another process on the same store, at another port: `baseUrl` and `client` are new.
  async restart(signal = "SIGKILL") {
    await this.stop(signal);
    await this.#run();
  }

  // Ends it and removes its directory.
  async end() {
    await this.stop("SIGKILL");
    if (this.#directory) await rm(this.#directory, { recursive: true });
  }

  // The dead letter of a message, once there is one.
  letterOf(messageId) {
    return until(async () => {
      const { messages } = await this.client.dlq.listMessages({ filter: { messageId } });
      return messages[0];
    }, "a dead letter");
  }

  // The answer to a call that the SDK has no method for.
  call(method, path, headers = {}) {
    const authorization = { Authorization: `Bearer ${this.token}` };
    return fetch(`${this.baseUrl}${path}`, { method, headers: { ...authorization, ...headers } });
  }
}

// What it prints until it says that it is ready.
async function readyLines(stdout) {
  let lines = "";
  for await (const text of stdout.setEncoding("utf8").iterator({ destroyOnReturn: false })) {
    lines += text;
    if (lines.includes("Ctrl-C ends it.")) {
      stdout.resume();
      return lines;
    }
  }
  throw new Error(`hookstash dev ended: ${lines}`);
}
