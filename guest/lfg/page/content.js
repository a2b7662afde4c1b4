// Shows a file, or how it changed.
import { ask, element, find } from "./element.js";

const KINDS = { "+": "plus", "-": "minus", "@": "hunk", "\\": "hunk" };
const UNITS = ["bytes", "KiB", "MiB", "GiB"];

export class Content {
  #asked = null;
  #drawn = null;

  constructor() {
    find("content-close").addEventListener("click", () => this.close());
  }

  close() {
    this.#asked = null;
    find("content").hidden = true;
  }

  // `kind` is `file` or `diff`.
  show(kind, path) {
    this.#asked = { kind, path };
    this.#drawn = null;
    return this.refresh();
  }

  async refresh() {
    const asked = this.#asked;
    if (!asked) return;
    let told;
    try {
      told = await ask(`/api/${asked.kind}?path=${encodeURIComponent(asked.path)}`);
    } catch (error) {
      told = { said: error.message };
    }
    const drawn = JSON.stringify(told);
    if (asked !== this.#asked || drawn === this.#drawn) return;
    const body = find("content-body"), first = this.#drawn === null, { scrollTop } = body;
    this.#drawn = drawn;
    find("content").hidden = false;
    find("content-path").textContent = asked.path;
    body.replaceChildren(...(asked.kind === "diff" ? diff(told) : file(told)));
    body.scrollTop = first ? 0 : scrollTop;
  }
}

const sentence = (text) => element("p", {}, text);

function file({ said, kind, size, text, cut }) {
  if (said) return [sentence(said)];
  if (kind === "special") return [sentence("This is no file that can be shown.")];
  if (kind === "binary") return [sentence(`This is a binary file of ${inWords(size)}.`)];
  if (!text) return [sentence("This file is empty.")];
  const lines = text.split("\n").length - (text.endsWith("\n") ? 1 : 0);
  const numbers = Array.from({ length: lines }, (_, index) => index + 1).join("\n");
  const shown = element("div", { class: "lines" },
    element("pre", { class: "numbers", "aria-hidden": "true" }, numbers),
    element("pre", {}, text));
  return cut ? [shown, sentence(`This is the beginning of ${inWords(size)}.`)] : [shown];
}

function diff({ said, text, cut }) {
  if (said) return [sentence(said)];
  if (!text) return [sentence("It is as it was at the last commit.")];
  const shown = element("pre", { class: "diff" });
  let inHunk = false, kind = null, run = [];
  const flush = () => {
    if (run.length) shown.append(element("span", { class: kind ?? "same" }, run.join("\n") + "\n"));
    run = [];
  };
  for (const line of text.replace(/\n$/, "").split("\n")) {
    if (line.startsWith("diff --git ")) inHunk = false;
    if (line.startsWith("@@")) inHunk = true;
    const found = inHunk ? KINDS[line[0]] : "head";
    if (found !== kind) flush();
    kind = found;
    run.push(line);
  }
  flush();
  return cut ? [shown, sentence("There is more of it, which is not shown.")] : [shown];
}

function inWords(size) {
  let unit = 0, number = size;
  while (number >= 1024 && unit < UNITS.length - 1) [number, unit] = [number / 1024, unit + 1];
  return `${Math.round(number * 10) / 10} ${UNITS[unit]}`;
}
