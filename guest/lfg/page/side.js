// The panel beside the terminals: files or changes, and what was chosen of them.
//
// It is read again after a program has shown something and is quiet (that is when files change),
// and now and then, but only while it is open and the page is seen.
import { Changes } from "./changes.js";
import { Content } from "./content.js";
import { find } from "./element.js";
import { Tree } from "./tree.js";

const QUIET_MS = 1200, NOW_AND_THEN_MS = 20_000;
const SHOWN = "lfg.side", WIDTH = "lfg.width";
const TITLES = { files: "Files", changes: "Changes" };
const NARROWEST_PX = 260, STEP_PX = 24;

export class Side {
  shown = null;
  #quiet = null;
  #busy = false;

  constructor(session) {
    this.session = session;
    this.content = new Content();
    this.tree = new Tree((path) => this.content.show("file", path));
    this.changes = new Changes((path) => this.content.show("diff", path));
    for (const name of Object.keys(TITLES)) {
      find(`${name}-button`).addEventListener("click", () => this.toggle(name));
    }
    find("refresh").addEventListener("click", () => this.refresh());
    find("side-close").addEventListener("click", () => this.toggle(this.shown));
    document.addEventListener("visibilitychange", () => this.refresh());
    session.addEventListener("state", () => this.refresh());
    setInterval(() => this.refresh(), NOW_AND_THEN_MS);
    this.#followDivider();
    if (localStorage.getItem(SHOWN) in TITLES) this.toggle(localStorage.getItem(SHOWN));
  }

  toggle(name) {
    this.shown = this.shown === name ? null : name;
    localStorage.setItem(SHOWN, this.shown ?? "");
    find("side").hidden = find("divider").hidden = !this.shown;
    for (const one of Object.keys(TITLES)) {
      find(`${one}-button`).setAttribute("aria-expanded", this.shown === one);
    }
    find("tree").hidden = this.shown !== "files";
    find("changes").hidden = this.shown !== "changes";
    find("side-title").textContent = TITLES[this.shown] ?? "";
    this.content.close();
    this.refresh();
  }

  // A program has shown something.
  worked() {
    clearTimeout(this.#quiet);
    this.#quiet = setTimeout(() => this.refresh(), QUIET_MS);
  }

  async refresh() {
    const isSeen = this.shown && !document.hidden && this.session.state === "connected";
    if (!isSeen || this.#busy) return;
    this.#busy = true;
    try {
      await (this.shown === "files" ? this.tree : this.changes).refresh();
      await this.content.refresh();
    } finally {
      this.#busy = false;
    }
    find("side-note").textContent = this.shown === "changes" ? this.changes.note : "";
  }

  #followDivider() {
    const divider = find("divider"), main = document.querySelector("main");
    const widen = (width) => {
      const px = Math.max(NARROWEST_PX, Math.min(width, main.clientWidth * 0.8));
      main.style.setProperty("--side", `${px}px`);
      localStorage.setItem(WIDTH, px);
    };
    if (Number(localStorage.getItem(WIDTH))) widen(Number(localStorage.getItem(WIDTH)));
    divider.addEventListener("pointerdown", (event) => divider.setPointerCapture(event.pointerId));
    divider.addEventListener("pointermove", (event) => {
      if (divider.hasPointerCapture(event.pointerId)) widen(innerWidth - event.clientX);
    });
    divider.addEventListener("keydown", ({ key }) => {
      const by = { ArrowLeft: STEP_PX, ArrowRight: -STEP_PX }[key];
      if (by) widen(find("side").clientWidth + by);
    });
  }
}
