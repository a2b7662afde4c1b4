#!/usr/bin/env node
// A shell in a sandbox, in this terminal: `node shell.mjs SANDBOX`, or `bun shell.mjs SANDBOX`.
// Node.js 22 or newer, or Bun; one file, no dependency. Reads SVC_API_KEY, SVC_SHELL_URL
// (wss://...) and SVC_CA_FILE. `~.` at the beginning of a line leaves.
//
// The protocol is `svc.shell.v1`: binary messages whose first byte is the type. The key goes into
// an entry of the subprotocol, because a WebSocket of the platform takes no headers.
import { spawnSync } from "node:child_process";
import { lookup } from "node:dns/promises";
import { fileURLToPath } from "node:url";

const DATA = 0, CONTROL = 1, PING = 2, PONG = 3;
const SUBPROTOCOL = "svc.shell.v1";
const PIECE_BYTES = 16 * 1024, UNSENT_BYTES = 256 * 1024;
const NORMAL = 1000, GOING_AWAY = 1001, ABNORMAL = 1006;
const LEFT = 0, FAILED = 255;
const PATIENCE_MS = 60_000, PAUSE_MS = 1000;
const CTRL_C = 3, CTRL_D = 4, CR = 13, LF = 10, TILDE = 0x7e, DOT = 0x2e;

const { stdin, stdout, stderr, env } = process;
const encoder = new TextEncoder(), decoder = new TextDecoder();

const say = (sentence) => stderr.write(`\r\n[svc-shell] ${sentence}\r\n`);

// Every key goes to the shell. The runtime's raw mode still turns line feeds into new lines, which
// draws full screens askew; where there is no stty, there is no such mode either.
function takeTerminal() {
  if (!stdin.isTTY) return;
  stdin.setRawMode(true);
  spawnSync("stty", ["-opost"], { stdio: ["inherit", "ignore", "ignore"] });
}

// The terminal as it was.
function giveTerminalBack() {
  if (stdin.isTTY) stdin.setRawMode(false);
}

// Once what is shown is written.
function leave(code) {
  giveTerminalBack();
  stdout.write("", () => process.exit(code));
}

// Where output cannot be written; that whoever reads it has left, as `head` does, needs no words.
function fail(error) {
  giveTerminalBack();
  if (error.code !== "EPIPE") say(`cannot go on: ${error.message}`);
  process.exit(FAILED);
}

// Certificates of one's own are read by the runtime when it starts.
function restartWithCertificates() {
  const certificates = { ...env, NODE_EXTRA_CA_CERTS: env.SVC_CA_FILE };
  const again = [fileURLToPath(import.meta.url), ...process.argv.slice(2)];
  const ended = spawnSync(process.execPath, again, { stdio: "inherit", env: certificates });
  process.exit(ended.status ?? FAILED);
}

function message(type, payload) {
  const bytes = new Uint8Array(payload.length + 1);
  bytes[0] = type;
  bytes.set(payload, 1);
  return bytes;
}

// Finds `~.` at the beginning of a line; `~~` types one tilde.
class Escape {
  #lineBegins = true;
  #tilde = false;

  passOn(typed) {
    const passed = [];
    for (const byte of typed) {
      if (this.#tilde) {
        this.#tilde = false;
        if (byte === DOT) return { passed: Uint8Array.from(passed), leaves: true };
        passed.push(TILDE);
        if (byte === TILDE) {
          this.#lineBegins = false;
          continue;
        }
      } else if (this.#lineBegins && byte === TILDE) {
        this.#tilde = true;
        continue;
      }
      passed.push(byte);
      this.#lineBegins = byte === CR || byte === LF;
    }
    return { passed: Uint8Array.from(passed), leaves: false };
  }
}

// One shell, from its connection to its end: `run` tells how it ended.
class Shell {
  #socket;
  #escape = new Escape();
  #exitCode;
  #opened = false;

  constructor(address, key) {
    const credential = `svc.api_key.${Buffer.from(key).toString("base64url")}`;
    this.#socket = new WebSocket(address, [SUBPROTOCOL, credential]);
    this.#socket.binaryType = "arraybuffer";
  }

  run() {
    const resized = () => this.#resize();
    const typed = (bytes) => this.#type(bytes);
    const typedAll = () => this.#send(DATA, Uint8Array.of(CTRL_D));
    return new Promise((resolve) => {
      const ended = ({ code, reason }) => {
        stdout.off("resize", resized);
        stdin.off("data", typed).off("end", typedAll).pause();
        resolve({ exitCode: this.#exitCode, opened: this.#opened, code, reason });
      };
      this.#socket.onopen = () => {
        this.#opened = true;
        takeTerminal();
        this.#resize();
        stdout.on("resize", resized);
        stdin.on("data", typed).on("end", typedAll).resume();
      };
      this.#socket.onmessage = (event) => this.#take(new Uint8Array(event.data));
      this.#socket.onclose = ended;
      // Of a connection that was never open, Node.js 22 tells nothing but an error. Where a close
      // follows it says the same; after an open one it comes everywhere, and has the reason.
      this.#socket.onerror = () => {
        if (!this.#opened) ended({ code: ABNORMAL, reason: "" });
      };
    });
  }

  #send(type, payload) {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(message(type, payload));
  }

  #resize() {
    const size = { type: "resize", cols: stdout.columns || 80, rows: stdout.rows || 24 };
    this.#send(CONTROL, encoder.encode(JSON.stringify(size)));
  }

  #type(bytes) {
    const { passed, leaves } = stdin.isTTY ? this.#escape.passOn(bytes) : { passed: bytes };
    for (let start = 0; start < passed.length; start += PIECE_BYTES) {
      this.#send(DATA, passed.subarray(start, start + PIECE_BYTES));
    }
    if (leaves) this.#end(LEFT);
    if (this.#socket.bufferedAmount > UNSENT_BYTES) this.#rest();
  }

  // What the shell does not take stays with whoever types it.
  #rest() {
    stdin.pause();
    const look = setInterval(() => {
      if (this.#socket.bufferedAmount > UNSENT_BYTES) return;
      clearInterval(look);
      if (this.#socket.readyState === WebSocket.OPEN) stdin.resume();
    }, 20);
  }

  #take(bytes) {
    const payload = bytes.subarray(1);
    if (bytes[0] === DATA) stdout.write(payload);
    else if (bytes[0] === PING) this.#send(PONG, payload);
    else if (bytes[0] === CONTROL) this.#obey(payload);
  }

  #obey(payload) {
    let told = {};
    try { told = JSON.parse(decoder.decode(payload)); } catch { /* nobody understands it */ }
    if (told?.type === "error") say(told.error);
    if (told?.type === "exit") this.#end(told.exitCode & 255);
  }

  #end(exitCode) {
    this.#exitCode ??= exitCode;
    this.#socket.close(NORMAL);
  }
}

// Names below localhost are this machine, but not every resolver knows that. The same shell is
// served on the API's host, which in development is plain localhost, at the same port.
async function addressOf(base, sandbox) {
  const url = new URL(base);
  const id = encodeURIComponent(sandbox);
  const known = await lookup(url.hostname).then(() => true, () => false);
  if (known || !url.hostname.endsWith(".localhost")) return `${url.href.replace(/\/+$/, "")}/${id}`;
  return `${url.protocol}//localhost:${url.port}/v1/sandboxes/${id}/shell`;
}

// False if the user leaves, or nobody types.
function waitForKey() {
  if (!stdin.isTTY) return Promise.resolve(false);
  return new Promise((resolve) => {
    stdin.once("data", (key) => {
      stdin.pause();
      resolve(key[0] !== CTRL_C && key[0] !== CTRL_D);
    }).resume();
  });
}

// A shell until its end. A service that restarts refuses at first, and a WebSocket of the platform
// does not tell why it was refused.
async function open(address, patienceMs) {
  const giveUp = Date.now() + patienceMs;
  for (;;) {
    const end = await new Shell(address, env.SVC_API_KEY).run();
    if (end.opened || Date.now() >= giveUp) return end;
    await new Promise((resolve) => { setTimeout(resolve, PAUSE_MS); });
  }
}

async function main(sandbox) {
  if (!sandbox || !env.SVC_API_KEY || !env.SVC_SHELL_URL) {
    stderr.write("usage: shell.mjs SANDBOX, with SVC_API_KEY and SVC_SHELL_URL\n");
    return process.exit(FAILED);
  }
  if (!globalThis.WebSocket) {
    say("needs Node.js 22 or newer, or Bun: this runtime has no WebSocket");
    return leave(FAILED);
  }
  const address = await addressOf(env.SVC_SHELL_URL, sandbox);
  for (let again = false; ; again = true) {
    const end = await open(address, again ? PATIENCE_MS : 0);
    if (end.exitCode !== undefined) return leave(end.exitCode);
    if (!end.opened) {
      say("the shell was not opened: is the sandbox yours, not stopped, and the key right?");
      return leave(FAILED);
    }
    if (end.code !== GOING_AWAY && end.code !== ABNORMAL) {
      say(`closed by the service (${end.code}): ${end.reason || "no reason given"}`);
      return leave(FAILED);
    }
    // Not by itself: that would wake what somebody put to sleep.
    say(`${end.reason || "the connection broke"}; any key opens another shell, ctrl-C leaves`);
    if (!await waitForKey()) return leave(FAILED);
    giveTerminalBack();
  }
}

stdout.on("error", fail);
// A shell does not end because nobody can be told something.
stderr.on("error", () => {});
// ctrl-C while a shell is opened: until it is open, nobody else could take that key.
process.on("SIGINT", () => leave(FAILED));
if (env.SVC_CA_FILE && env.NODE_EXTRA_CA_CERTS !== env.SVC_CA_FILE) restartWithCertificates();
await main(process.argv[2]).catch((error) => {
  say(error.message);
  leave(FAILED);
});
