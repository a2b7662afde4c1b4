// Tells what changed in the project since its last commit, and how a file changed.
import { git } from "./git.ts";
import { Refusal } from "./refusal.ts";

export const MAX_CHANGES = 500;
export const MAX_DIFF_BYTES = 512 * 1024;
const STATUS_BYTES = 256 * 1024;
const SHORT_BYTES = 4096;

type Kind = "added" | "changed" | "deleted" | "renamed" | "conflict" | "untracked";

export interface Change {
  /** From the top of the repository. */
  readonly path: string;
  readonly kind: Kind;
}

export class Changes {
  constructor(private readonly directory: string) {}

  async list(): Promise<object> {
    const top = await this.#top();
    if (top === null) return { repository: null };
    const status = await git(top, ["status", "--porcelain=v2", "--branch", "-z",
      "--untracked-files=all"], STATUS_BYTES);
    if (status.exitCode !== 0 && !status.cut) throw new Refusal(409, status.error);
    const { branch, changes } = readStatus(status.output);
    const more = status.cut || changes.length > MAX_CHANGES;
    return { repository: top, branch, changes: changes.slice(0, MAX_CHANGES), more };
  }

  /** What changed in a file since the last commit; of one that git does not know, all of it. */
  async diff(path: string): Promise<object> {
    const top = await this.#top();
    if (top === null) throw new Refusal(409, "There is no git repository here.");
    const plain = ["--no-color", "--no-ext-diff", "--no-textconv"];
    const listed = ["ls-files", "--error-unmatch", "--", `:(literal)${path}`];
    const known = await git(top, listed, SHORT_BYTES);
    const since = ["diff", ...plain, await commit(top), "--", `:(literal)${path}`];
    const whole = ["diff", ...plain, "--no-index", "--", "/dev/null", path];
    let found = await git(top, since, MAX_DIFF_BYTES);
    if (known.exitCode !== 0 && !found.output) found = await git(top, whole, MAX_DIFF_BYTES);
    // With --no-index, 1 means that there is a difference.
    if (found.exitCode > 1 && !found.cut) throw new Refusal(409, found.error);
    return { text: found.output, cut: found.cut };
  }

  async begin(): Promise<void> {
    const made = await git(this.directory, ["init", "--quiet"], SHORT_BYTES);
    if (made.exitCode !== 0) throw new Refusal(409, made.error);
  }

  /** The top of the repository, null if there is none. */
  async #top(): Promise<string | null> {
    const found = await git(this.directory, ["rev-parse", "--show-toplevel"], SHORT_BYTES);
    if (found.exitCode === 0) return found.output.replace(/\n$/, "");
    if (/not a git repository/.test(found.error)) return null;
    throw new Refusal(409, found.error);
  }
}

/** What changes are counted from: the last commit, or an empty tree before the first. */
async function commit(top: string): Promise<string> {
  const head = await git(top, ["rev-parse", "--verify", "--quiet", "HEAD"], SHORT_BYTES);
  if (head.exitCode === 0) return head.output.trim();
  return (await git(top, ["hash-object", "-t", "tree", "/dev/null"], SHORT_BYTES)).output.trim();
}

const LETTERS: Readonly<Record<string, Kind>> = { A: "added", D: "deleted" };

/** `git status --porcelain=v2 --branch -z`; the last entry is left out if it was cut. */
export function readStatus(text: string): { branch: string; changes: Change[] } {
  const entries = text.split("\0");
  entries.pop();
  const changes: Change[] = [];
  let branch = "";
  for (let at = 0; at < entries.length; at += 1) {
    const entry = entries[at]!;
    const words = entry.split(" ");
    const rest = (count: number) => words.slice(count).join(" ");
    if (entry.startsWith("# branch.head ")) branch = rest(2);
    else if (words[0] === "?") changes.push({ path: rest(1), kind: "untracked" });
    else if (words[0] === "u") changes.push({ path: rest(10), kind: "conflict" });
    else if (words[0] === "1") changes.push({ path: rest(8), kind: kindOf(words[1]!) });
    else if (words[0] === "2") {
      changes.push({ path: rest(9), kind: "renamed" });
      at += 1;
    }
  }
  return { branch: branch === "(detached)" ? "no branch" : branch, changes };
}

/** From the two letters of the index and of the work tree. */
function kindOf(letters: string): Kind {
  if (letters[1] === "D") return "deleted";
  return LETTERS[letters[0]!] ?? LETTERS[letters[1]!] ?? "changed";
}
