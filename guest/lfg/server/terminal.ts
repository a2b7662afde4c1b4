// One tab: a program on a pseudo-terminal that outlives the browsers which look at it.
//
// 1. The program starts when the tab is first looked at, and again when a browser asks for it after
// its end. 2. Output goes to every viewer and into the replay. 3. The terminal has one size, that
// of the browser which was used last; the others show it as it is.
import type { Subprocess } from "bun";
import { environment, PROGRAMS } from "./programs.ts";
import { Replay } from "./replay.ts";
import type { Size, Viewer } from "./viewer.ts";

export type State = "new" | "running" | "exited";
const USUAL_SIZE: Size = { cols: 80, rows: 24 };
/** What was typed and the program has not read yet. */
export const UNTYPED_BYTES = 1024 * 1024;
const KILL_AFTER_MS = 5000;

export class Terminal {
  state: State = "new";
  exitCode: number | null = null;
  reason: string | null = null;
  readonly viewers = new Set<Viewer>();
  #size = USUAL_SIZE;
  #used: Viewer | null = null;
  #process: Subprocess | null = null;
  #untyped = 0;
  readonly #replay = new Replay();

  constructor(
    readonly id: string,
    readonly program: string,
    private readonly directory: string,
    private readonly changed: () => void,
  ) {}

  replay = (): Uint8Array => this.#replay.bytes();

  attach(viewer: Viewer): void {
    this.viewers.add(viewer);
    if (viewer.size) this.use(viewer, viewer.size);
    else this.#tellSize();
    viewer.showReplay();
    if (this.state === "new") this.start();
  }

  detach(viewer: Viewer): void {
    this.viewers.delete(viewer);
    if (this.#used === viewer) this.#used = null;
    const last = [...this.viewers].findLast((other) => other.size);
    if (!this.#used && last?.size) this.use(last, last.size);
  }

  /** Start the program unless it runs; what it showed before stays. */
  start(): void {
    if (this.state === "running") return;
    const { cols, rows } = this.#size;
    this.#untyped = 0;
    try {
      const process = Bun.spawn([...PROGRAMS[this.program]!.command], {
        cwd: this.directory,
        env: environment(),
        terminal: {
          cols, rows, name: "xterm-256color",
          data: (_, output) => this.#output(output),
          drain: () => { this.#untyped = 0; },
        },
      });
      this.#process = process;
      this.#become("running", null, null);
      process.exited.then((code) => {
        if (this.#process === process) this.#ended(code, process.signalCode);
      });
    } catch (error) {
      const missing = (error as { code?: string }).code === "ENOENT";
      this.#become("exited", 127, missing
        ? `${this.program} is not installed in this sandbox.` : String((error as Error).message));
    }
  }

  /** Keys for the program; false if it has not read what was typed before. */
  type(keys: Uint8Array): boolean {
    if (this.state !== "running") return true;
    if (this.#untyped + keys.length > UNTYPED_BYTES) return false;
    this.#untyped += keys.length;
    this.#process?.terminal?.write(keys);
    return true;
  }

  /** This viewer is used now: its size is the terminal's, and it answers for the terminal. */
  use(viewer: Viewer, size: Size): void {
    viewer.size = size;
    const same = size.cols === this.#size.cols && size.rows === this.#size.rows;
    if (same && this.#used === viewer) return;
    this.#used = viewer;
    this.#size = size;
    if (!same) this.#process?.terminal?.resize(size.cols, size.rows);
    this.#tellSize();
  }

  /** End the program as a lost line does, and by force if it stays. */
  close(): void {
    const process = this.#process;
    this.#process = null;
    if (this.state === "running" && process) {
      process.terminal?.close();
      const forced = setTimeout(() => process.kill("SIGKILL"), KILL_AFTER_MS);
      process.exited.finally(() => clearTimeout(forced));
    }
    this.state = "exited";
  }

  tellState(viewer: Viewer): void {
    const { state, exitCode, reason } = this;
    viewer.tell({ type: "state", state, exitCode, reason });
  }

  #output(output: Uint8Array): void {
    this.#replay.push(output);
    for (const viewer of this.viewers) viewer.show(output);
  }

  #ended(code: number, signal: string | number | null): void {
    const reason = signal === null ? null : `${this.program} was ended by ${signal}.`;
    this.#become("exited", code, reason);
  }

  #become(state: State, exitCode: number | null, reason: string | null): void {
    Object.assign(this, { state, exitCode, reason });
    for (const viewer of this.viewers) this.tellState(viewer);
    this.changed();
  }

  #tellSize(): void {
    const { cols, rows } = this.#size;
    for (const viewer of this.viewers) {
      viewer.tell({ type: "size", cols, rows, yours: viewer === this.#used });
    }
  }
}
