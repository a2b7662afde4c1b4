// Runs git within limits: of time, of output, and of how many run at a time.
import { Refusal } from "./refusal.ts";

const PATIENCE_MS = 15_000;
const MAX_AT_A_TIME = 2;
const MAX_WAITING = 16;
const ERROR_BYTES = 2000;
// What an agent is doing must not fail because we look on: status takes no lock.
const ENVIRONMENT = { GIT_OPTIONAL_LOCKS: "0", GIT_TERMINAL_PROMPT: "0", LC_ALL: "C.UTF-8" };
const SETTINGS = ["-c", "core.quotePath=false", "-c", "core.fsmonitor=false"];

export interface Ran {
  readonly exitCode: number;
  readonly output: string;
  /** There was more than the limit; git was ended. */
  readonly cut: boolean;
  readonly error: string;
}

let running = 0;
const waiting: (() => void)[] = [];

export async function git(directory: string, words: string[], limit: number): Promise<Ran> {
  await turn();
  try {
    return await run(directory, words, limit);
  } catch (error) {
    const missing = (error as { code?: string }).code === "ENOENT";
    throw missing ? new Refusal(409, "git is not installed in this sandbox.") : error;
  } finally {
    running -= 1;
    waiting.shift()?.();
  }
}

async function turn(): Promise<void> {
  while (running >= MAX_AT_A_TIME) {
    if (waiting.length >= MAX_WAITING) throw new Refusal(503, "Too many requests to git.");
    await new Promise<void>((resolve) => waiting.push(resolve));
  }
  running += 1;
}

/** Git in a group of its own: what it runs for the repository (filters) has its pipes too, and ends
 * with it. After the deadline nothing of them is waited for. */
async function run(directory: string, words: string[], limit: number): Promise<Ran> {
  const child = Bun.spawn(["git", ...SETTINGS, ...words], {
    cwd: directory, env: { ...Bun.env, ...ENVIRONMENT }, stdin: "ignore", stdout: "pipe",
    stderr: "pipe", detached: true,
  });
  const end = () => killGroup(child.pid);
  const said = child.stdout.getReader(), complained = child.stderr.getReader();
  let timer: Timer | undefined;
  const late = new Promise<never>((_, refuse) => {
    timer = setTimeout(() => {
      end();
      for (const reader of [said, complained]) reader.cancel().catch(() => {});
      refuse(new Refusal(504, "git takes too long here."));
    }, PATIENCE_MS);
  });
  const ran = Promise.all([collect(said, limit, end), collect(complained, ERROR_BYTES, () => {}),
    child.exited]);
  try {
    const [output, error, exitCode] = await Promise.race([ran, late]);
    return { exitCode, output: output.text, cut: output.cut, error: error.text.trim() };
  } finally {
    clearTimeout(timer);
  }
}

function killGroup(leader: number): void {
  try {
    process.kill(-leader, "SIGKILL");
  } catch { /* it has ended */ }
}

async function collect(reader: ReadableStreamDefaultReader<Uint8Array>, limit: number,
  full: () => void): Promise<{ text: string; cut: boolean }> {
  const pieces: Uint8Array[] = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    if (size < limit) pieces.push(value);
    size += value.length;
    if (size > limit) full();
  }
  const bytes = Buffer.concat(pieces).subarray(0, limit);
  return { text: bytes.toString("utf8"), cut: size > limit };
}
