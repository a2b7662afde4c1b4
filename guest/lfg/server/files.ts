// Lists directories and reads files of the project for the panel beside the terminals.
//
// Nothing here may hang or fill the memory: directories and files are cut at a limit, only regular
// files are opened, without waiting, and what a file system does not answer in time is given up.
import { constants, type Stats } from "node:fs";
import { lstat, open, opendir, stat } from "node:fs/promises";
import { resolve } from "node:path";
import { Refusal } from "./refusal.ts";

export const MAX_ENTRIES = 1000;
export const MAX_FILE_BYTES = 512 * 1024;
const PATIENCE_MS = 5000;
const MAX_PATH = 4096;
const MAX_AT_A_TIME = 8;
const READ = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY;

type Kind = "directory" | "file" | "special" | "broken";

export interface Entry {
  readonly name: string;
  readonly kind: Kind;
  readonly link: boolean;
}

export class Files {
  #busy = 0;

  constructor(readonly root: string) {}

  /** The path of the system that a path of the project means. Users own their machine: it may
   * lead anywhere. */
  locate(path: string): string {
    if (path.length > MAX_PATH || path.includes("\0")) throw new Refusal(400, "No such path.");
    return resolve(this.root, path);
  }

  list(path: string): Promise<{ entries: Entry[]; more: boolean }> {
    return this.#inTime(() => readEntries(this.locate(path)));
  }

  read(path: string): Promise<object> {
    return this.#inTime(() => readContent(this.locate(path)));
  }

  async #inTime<Answer>(work: () => Promise<Answer>): Promise<Answer> {
    if (this.#busy >= MAX_AT_A_TIME) throw new Refusal(503, "Too many files are being read.");
    this.#busy += 1;
    // What hangs holds one of the few places until it ends.
    const working = work().finally(() => { this.#busy -= 1; });
    let timer: Timer | undefined;
    const late = new Promise<never>((_, refuse) => {
      timer = setTimeout(() => refuse(new Refusal(504, "This takes too long to read.")),
        PATIENCE_MS);
    });
    try {
      return await Promise.race([working, late]);
    } catch (error) {
      throw explained(error);
    } finally {
      clearTimeout(timer);
      working.catch(() => {});
    }
  }
}

async function readEntries(path: string): Promise<{ entries: Entry[]; more: boolean }> {
  if (!(await stat(path)).isDirectory()) throw new Refusal(400, "This is not a directory.");
  const entries: Entry[] = [];
  // It closes when the loop is left.
  for await (const entry of await opendir(path)) {
    if (entries.length === MAX_ENTRIES) return { entries: sorted(entries), more: true };
    const link = entry.isSymbolicLink();
    const kind = link ? await kindBehind(resolve(path, entry.name)) : kindOf(entry);
    entries.push({ name: entry.name, kind, link });
  }
  return { entries: sorted(entries), more: false };
}

function sorted(entries: Entry[]): Entry[] {
  const rank = (entry: Entry) => (entry.kind === "directory" ? 0 : 1);
  return entries.sort((one, other) => rank(one) - rank(other)
    || (one.name < other.name ? -1 : 1));
}

function kindOf(entry: Pick<Stats, "isDirectory" | "isFile">): Kind {
  if (entry.isDirectory()) return "directory";
  return entry.isFile() ? "file" : "special";
}

async function kindBehind(link: string): Promise<Kind> {
  try {
    return kindOf(await stat(link));
  } catch {
    return "broken";
  }
}

/** Text, or why it is not shown. A file that says it is empty is read all the same: those of /proc
 * do. */
async function readContent(path: string): Promise<object> {
  const link = await lstat(path);
  // Opening a device may do something; a named pipe would wait.
  const found = link.isSymbolicLink() ? await stat(path) : link;
  if (found.isDirectory()) throw new Refusal(400, "This is a directory.");
  if (!found.isFile()) return { kind: "special" };
  const file = await open(path, READ);
  try {
    if (!(await file.stat()).isFile()) return { kind: "special" };
    const buffer = Buffer.alloc(MAX_FILE_BYTES);
    let size = 0, count = 1;
    while (size < buffer.length && count) {
      count = (await file.read(buffer, size, buffer.length - size, null)).bytesRead;
      size += count;
    }
    const bytes = buffer.subarray(0, size);
    const all = Math.max(found.size, size);
    if (bytes.subarray(0, 8192).includes(0)) return { kind: "binary", size: all };
    return { kind: "text", size: all, text: bytes.toString("utf8"), cut: found.size > size };
  } finally {
    await file.close();
  }
}

function explained(error: unknown): unknown {
  const sentence: Record<string, [number, string]> = {
    ENOENT: [404, "There is no such file."], ENOTDIR: [404, "There is no such file."],
    EACCES: [403, "You may not read this."], EPERM: [403, "You may not read this."],
    ELOOP: [400, "This link leads to itself."], ENAMETOOLONG: [400, "No such path."],
  };
  const found = sentence[(error as { code?: string }).code ?? ""];
  if (found) return new Refusal(...found);
  const isSystem = error instanceof Error && "syscall" in error;
  return isSystem ? new Refusal(409, `It cannot be read: ${error.message}`) : error;
}
