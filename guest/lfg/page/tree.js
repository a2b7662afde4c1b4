// The tree of the project's files. A directory is read when it is opened.
import { ask, element, find } from "./element.js";

const join = (directory, name) => (directory === "." ? name : `${directory}/${name}`);
const INDENT_PX = 14;

export class Tree {
  #open = new Set(["."]);
  #known = new Map();
  #chosen = null;

  // `choose` is called with the path of a file that was clicked, or opened with Enter.
  constructor(choose) {
    this.choose = choose;
    find("tree").addEventListener("keydown", (event) => this.#key(event));
  }

  // Read all open directories again.
  async refresh() {
    await Promise.all([...this.#open].map((path) => this.#read(path)));
    this.#draw();
  }

  async #read(path) {
    try {
      this.#known.set(path, await ask(`/api/files?path=${encodeURIComponent(path)}`));
    } catch (error) {
      this.#known.set(path, { entries: [], error: error.message });
      // What is gone is not asked for again.
      if (path !== ".") this.#open.delete(path);
    }
  }

  async #toggle(path) {
    if (this.#open.has(path)) this.#open.delete(path);
    else {
      this.#open.add(path);
      await this.#read(path);
    }
    this.#draw();
  }

  #draw() {
    const tree = find("tree"), focused = tree.contains(document.activeElement);
    const path = focused ? document.activeElement.dataset.path : this.#chosen;
    tree.replaceChildren(...this.#rows(".", 1));
    const rows = [...tree.querySelectorAll("[role=treeitem]")];
    const current = rows.find((row) => row.dataset.path === path) ?? rows[0];
    if (!current) return;
    current.tabIndex = 0;
    if (focused) current.focus();
  }

  * #rows(directory, level) {
    const { entries = [], more, error } = this.#known.get(directory) ?? {};
    for (const entry of entries) {
      const path = join(directory, entry.name);
      yield this.#row(path, entry, level);
      if (entry.kind === "directory" && this.#open.has(path)) yield* this.#rows(path, level + 1);
    }
    const said = error ?? (more ? "There are more, which are not listed." : null)
      ?? (entries.length ? null : "empty");
    if (said) yield this.#line({ class: "said", role: "none" }, level, said);
  }

  #row(path, { name, kind, link }, level) {
    const isDirectory = kind === "directory", isOpen = this.#open.has(path);
    const pressed = () => {
      this.#chosen = path;
      if (isDirectory) this.#toggle(path);
      else this.choose(path);
      this.#draw();
    };
    return this.#line({
      role: "treeitem", class: `${kind}${link ? " link" : ""}`, tabindex: -1, title: path,
      "data-path": path, "aria-level": level, "aria-selected": path === this.#chosen,
      "aria-expanded": isDirectory ? isOpen : null, onclick: pressed,
    }, level, name);
  }

  #line(properties, level, text) {
    const row = element("li", properties, text);
    row.style.paddingLeft = `${10 + level * INDENT_PX}px`;
    return row;
  }

  #key(event) {
    const rows = [...find("tree").querySelectorAll("[role=treeitem]")];
    const at = rows.indexOf(document.activeElement);
    if (at < 0) return;
    const isOpen = rows[at].getAttribute("aria-expanded");
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
    if (rows[next]) {
      rows[at].tabIndex = -1;
      rows[next].tabIndex = 0;
      rows[next].focus();
    } else if (event.key === "Enter" || event.key === " "
      || (event.key === "ArrowRight" && isOpen === "false")
      || (event.key === "ArrowLeft" && isOpen === "true")) {
      rows[at].click();
    } else return;
    event.preventDefault();
  }
}
