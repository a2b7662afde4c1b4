// Keeps the end of a terminal's output for browsers that come later or come back.
import { Modes } from "./modes.ts";

export const REPLAY_BYTES = 256 * 1024;
// Below this much of surplus nothing is thrown away, so that not every byte moves all others.
const SLACK_BYTES = 64 * 1024;
const LINE_FEED = 10;
// How far a beginning is looked for that cuts no line in two.
const LINE_BYTES = 4096;

export class Replay {
  #pieces: Uint8Array[] = [];
  #size = 0;
  #before = new Modes();

  push(output: Uint8Array): void {
    this.#pieces.push(output);
    this.#size += output.length;
    while (this.#size - (this.#pieces[0]?.length ?? 0) >= REPLAY_BYTES + SLACK_BYTES) {
      const oldest = this.#pieces.shift()!;
      this.#size -= oldest.length;
      this.#before.read(oldest);
    }
    if (this.#pieces.length > 4096) this.#pieces = [Buffer.concat(this.#pieces)];
  }

  /** The last REPLAY_BYTES, from the beginning of a line if there is one, after what brings a new
   * terminal into the modes it was in then. */
  bytes(): Uint8Array {
    const all = Buffer.concat(this.#pieces);
    this.#pieces = [all];
    this.#size = all.length;
    if (all.length > REPLAY_BYTES) {
      const cut = lineAfter(all, all.length - REPLAY_BYTES);
      this.#before.read(all.subarray(0, cut));
      this.#pieces = [all.subarray(cut)];
      this.#size = all.length - cut;
    }
    return Buffer.concat([this.#before.sequence(), ...this.#pieces]);
  }

  clear(): void {
    this.#pieces = [];
    this.#size = 0;
    this.#before = new Modes();
  }
}

function lineAfter(bytes: Uint8Array, start: number): number {
  const found = bytes.subarray(start, start + LINE_BYTES).indexOf(LINE_FEED);
  return found < 0 ? start : start + found + 1;
}
