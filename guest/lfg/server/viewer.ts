// One browser's view of one terminal: what is sent over its WebSocket, and what is not sent while
// it does not read.
import type { ServerWebSocket } from "bun";

export const FRAME_BYTES = 32 * 1024;
/** More than this unread, and a viewer gets nothing until it has read nearly all. */
export const UNREAD_BYTES = 1024 * 1024;
const NEARLY_NOTHING_BYTES = 64 * 1024;

export interface Size {
  readonly cols: number;
  readonly rows: number;
}

/** Bun's terminal cannot be told to wait, and a browser that hangs must not stop an agent. So a
 * viewer that does not keep up misses output, and gets the replay once it has read what it has.
 * The browser says what it has shown: it takes messages from its socket before it can show them. */
export class Viewer {
  size: Size | null = null;
  #unread = 0;
  #misses = false;

  constructor(
    private readonly socket: Pick<ServerWebSocket<unknown>, "send">,
    private readonly replay: () => Uint8Array,
  ) {}

  tell(message: object): void {
    this.socket.send(JSON.stringify(message));
  }

  show(output: Uint8Array): void {
    if (this.#misses) return;
    if (this.#unread > UNREAD_BYTES) this.#misses = true;
    else this.#send(output);
  }

  /** Everything from the beginning: the browser clears its screen, and answers no questions that
   * programs asked their terminal then. */
  showReplay(): void {
    this.#misses = false;
    const shown = this.replay();
    this.tell({ type: "replay", bytes: shown.length });
    this.#send(shown);
  }

  /** The browser has shown so many more bytes. */
  read(count: number): void {
    this.#unread = Math.max(0, this.#unread - count);
    if (this.#misses && this.#unread <= NEARLY_NOTHING_BYTES) this.showReplay();
  }

  #send(output: Uint8Array): void {
    this.#unread += output.length;
    for (let start = 0; start < output.length; start += FRAME_BYTES) {
      this.socket.send(output.subarray(start, start + FRAME_BYTES));
    }
  }
}
