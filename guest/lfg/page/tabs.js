// The row of tabs: what runs in which, which one is shown, and opening and closing further ones.
import { ask, element, find, notice } from "./element.js";
import { TerminalView } from "./terminal_view.js";

const STATES = { new: "not started", running: "running", exited: "ended" };
const LAST = "lfg.tab";

// Events: `shown` when another terminal is shown or something of it changed, `worked` when a
// program showed something.
export class Tabs extends EventTarget {
  #tabs = [];
  #views = new Map();
  #buttons = new Map();
  #shown = null;
  #wanted = null;

  constructor(session) {
    super();
    this.session = session;
    session.addEventListener("tabs", ({ detail }) => this.#update(detail.tabs));
    session.addEventListener("hello", ({ detail }) => this.#offer(detail.programs));
    session.addEventListener("state", () => {
      if (session.state === "connected") return;
      for (const view of this.#views.values()) view.disconnect();
    });
    find("tabs").addEventListener("keydown", (event) => this.#move(event));
  }

  get shown() {
    return this.#views.get(this.#shown) ?? null;
  }

  show(id) {
    const tab = this.#tabs.find((one) => one.id === id);
    if (!tab) return;
    if (!this.#views.has(id)) this.#make(tab);
    for (const view of this.#views.values()) if (view.id !== id) view.hide();
    this.#shown = id;
    this.#wanted = null;
    sessionStorage.setItem(LAST, id);
    find("welcome").hidden = true;
    this.shown.unseen = false;
    this.shown.show();
    this.#buttons.get(id).scrollIntoView({ block: "nearest", inline: "nearest" });
    this.#draw();
  }

  // By their place in the row, from 0.
  showPlace(place) {
    this.show(this.#tabs[place]?.id);
  }

  step(by) {
    const place = this.#tabs.findIndex(({ id }) => id === this.#shown);
    this.showPlace((place + by + this.#tabs.length) % this.#tabs.length);
  }

  #make({ id, title }) {
    const view = new TerminalView(id, title, this.session, () => this.#draw());
    view.terminal.onWriteParsed(() => this.dispatchEvent(new Event("worked")));
    this.#views.set(id, view);
    find("terminals").append(view.node);
  }

  #update(tabs) {
    this.#tabs = tabs;
    for (const [id, view] of this.#views) {
      const tab = tabs.find((one) => one.id === id);
      if (!tab) {
        view.remove();
        this.#views.delete(id);
      // Looking at it starts what has not run since the sandbox booted.
      } else if (id === this.#shown || tab.state !== "new") view.reconnect();
    }
    this.#rebuild();
    if (tabs.some(({ id }) => id === this.#wanted)) this.show(this.#wanted);
    else if (!this.#views.has(this.#shown)) this.#begin();
    this.#draw();
  }

  // What was shown last, else what runs, else the choice of programs.
  #begin() {
    const last = this.#tabs.find(({ id }) => id === sessionStorage.getItem(LAST));
    const begun = last ?? this.#tabs.find(({ state }) => state === "running");
    this.#shown = null;
    if (begun) this.show(begun.id);
    else find("welcome").hidden = false;
  }

  #offer(programs) {
    find("choices").replaceChildren(...programs.map(({ program, title }) => element(
      "button", { onclick: () => this.show(program) }, title)));
    find("programs").replaceChildren(...programs.map(({ program, title }) => element(
      "button", { onclick: () => this.#open(program) }, title)));
  }

  async #open(program) {
    find("programs").hidePopover();
    await this.#change(async () => {
      const { id } = await ask("/api/tabs", { method: "POST", body: { program } });
      // The server tells of the new tab by itself, before this answer or after it.
      this.#wanted = id;
      this.show(id);
    });
  }

  async #close(id) {
    await this.#change(() => ask(`/api/tabs/${id}`, { method: "DELETE" }));
  }

  async #change(work) {
    try {
      await work();
    } catch (error) {
      notice(error.message);
    }
  }

  #draw() {
    for (const { id, title, state } of this.#tabs) {
      const button = this.#buttons.get(id), selected = id === this.#shown;
      const unseen = this.#views.get(id)?.unseen ?? false;
      button.className = `tab ${state}${unseen ? " unseen" : ""}`;
      button.title = `${title}: ${STATES[state]}`;
      button.setAttribute("aria-label", `${title}, ${STATES[state]}`);
      button.setAttribute("aria-selected", selected);
      button.tabIndex = selected || !this.#shown ? 0 : -1;
    }
    this.dispatchEvent(new Event("shown"));
  }

  // Only what is new or gone: a button that is being pressed must stay.
  #rebuild() {
    const ids = this.#tabs.map(({ id }) => id).join();
    if (ids === [...this.#buttons.keys()].join()) return;
    this.#buttons.clear();
    find("tabs").replaceChildren(...this.#tabs.map((tab) => this.#button(tab)));
  }

  #button({ id, title, closable }) {
    const button = element("button", {
      id: `tab-${id}`, role: "tab", "aria-controls": `panel-${id}`,
      onclick: () => this.show(id),
    }, element("i", { class: "dot" }), title);
    this.#buttons.set(id, button);
    if (!closable) return button;
    const close = element("button", { class: "close", "aria-label": `End ${title}`,
      title: `End ${title}`, onclick: () => this.#close(id) }, "×");
    return element("span", { class: "closable", role: "presentation" }, button, close);
  }

  #move(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || event.ctrlKey) return;
    event.preventDefault();
    this.step(by);
    find(`tab-${this.#shown}`).focus();
  }
}
