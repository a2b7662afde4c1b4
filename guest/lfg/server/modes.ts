// Follows the modes that a program has set on its terminal, so that a replay which begins in the
// middle of the output still shows the right screen: the alternate one, with mouse and paste modes.

const ESCAPE = 0x1b;
// Longer than any sequence that sets modes.
const LONGEST = 64;
const SETS = /\x1b\[\?([0-9;]+)([hl])|\x1bc|\x1b[=>]/g;
const UNFINISHED = /\x1b(?:\[(?:\?[0-9;]*)?)?$/;
// On when a terminal is new: cursor, wrapping.
const USUAL: ReadonlySet<string> = new Set(["7", "25"]);

export class Modes {
  #changed = new Map<string, boolean>();
  #keypad = false;
  #rest = "";

  /** Read on; a sequence may begin in one piece and end in the next. */
  read(output: Uint8Array): void {
    if (!this.#rest && !output.includes(ESCAPE)) return;
    const text = this.#rest + Buffer.from(output).toString("latin1");
    for (const found of text.matchAll(SETS)) this.#apply(found);
    this.#rest = UNFINISHED.exec(text.slice(-LONGEST))?.[0] ?? "";
  }

  #apply([sequence, numbers, letter]: RegExpExecArray): void {
    if (numbers === undefined) {
      if (sequence === "\x1bc") this.#changed.clear();
      this.#keypad = sequence === "\x1b=";
      return;
    }
    for (const number of numbers.split(";")) {
      const on = letter === "h";
      if (on === USUAL.has(number)) this.#changed.delete(number);
      else this.#changed.set(number, on);
    }
  }

  /** What brings a new terminal into these modes. */
  sequence(): Uint8Array {
    const set = [...this.#changed].map(([number, on]) => `\x1b[?${number}${on ? "h" : "l"}`);
    return new TextEncoder().encode(set.join("") + (this.#keypad ? "\x1b=" : ""));
  }
}
