// One terminal in the page: xterm.js over a WebSocket to a tab of the server.
import { Terminal } from "/xterm/xterm.mjs";
import { FitAddon } from "/xterm/addon-fit.mjs";
import { element, notice } from "./element.js";
import { FONT, PALETTE } from "./palette.js";
import { silence } from "./questions.js";
import { address } from "./session.js";

const PIECE_BYTES = 16 * 1024, LONGEST_PASTE_BYTES = 512 * 1024;
const AGAIN_MS = 1000;
// The server is told what was shown in steps of this, so that it knows who does not keep up.
const STEP_BYTES = 32 * 1024;
const encoder = new TextEncoder();

export class TerminalView {
  #socket = null;
  #replayed = 0;
  #silent = false;
  #shown = 0;
  #mine = true;
  #early = [];

  // `told` is called after every change of what the status line says.
  constructor(id, title, session, told) {
    Object.assign(this, { id, title, session, told });
    this.fit = new FitAddon();
    this.terminal = new Terminal({
      theme: PALETTE, fontFamily: FONT, fontSize: 13.5, lineHeight: 1.2, scrollback: 8000,
      cursorBlink: true, allowProposedApi: false,
    });
    this.terminal.loadAddon(this.fit);
    silence(this.terminal, () => this.#silent || !this.#mine);
    this.terminal.onData((text) => this.#type(encoder.encode(text)));
    this.terminal.onBinary((text) => this.#type(Uint8Array.from(text, (c) => c.charCodeAt(0))));
    this.screen = element("div", { class: "screen" });
    this.strip = element("div", { class: "strip", hidden: "" });
    this.node = element("div", { class: "view", role: "tabpanel", id: `panel-${id}`,
      "aria-labelledby": `tab-${id}`, hidden: "" }, this.screen, this.strip);
    new ResizeObserver(() => this.takeSize()).observe(this.screen);
  }

  show() {
    this.node.hidden = false;
    if (!this.terminal.element) this.terminal.open(this.screen);
    if (this.#socket) this.takeSize();
    else this.connect();
    this.terminal.focus();
  }

  hide() {
    this.node.hidden = true;
  }

  // The size that fits the window, if the terminal is shown.
  #own() {
    const size = this.node.hidden ? undefined : this.fit.proposeDimensions();
    return size && size.cols > 1 && size.rows > 0 ? size : null;
  }

  // This window's size becomes the terminal's.
  takeSize() {
    const own = this.#own();
    const same = own && own.cols === this.terminal.cols && own.rows === this.terminal.rows;
    if (own && !(same && this.#mine)) this.#send({ type: "resize", ...own });
  }

  // Unless it is connected.
  reconnect() {
    if (!this.#socket) this.connect();
  }

  connect() {
    this.disconnect();
    if (this.session.state !== "connected") return;
    const size = this.#own();
    const query = size ? `?cols=${size.cols}&rows=${size.rows}` : "";
    const socket = this.#socket = new WebSocket(address(`/ws/terminal/${this.id}${query}`));
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      for (const keys of this.#early.splice(0)) this.#send(keys);
    };
    socket.onmessage = ({ data }) => this.#hear(data);
    socket.onclose = () => {
      if (socket !== this.#socket) return;
      this.#socket = null;
      setTimeout(() => this.removed || this.reconnect(), AGAIN_MS);
    };
  }

  disconnect() {
    const socket = this.#socket;
    this.#socket = null;
    this.#early = [];
    socket?.close();
  }

  start() {
    this.#send({ type: "start" });
    this.terminal.focus();
  }

  remove() {
    this.removed = true;
    this.disconnect();
    this.terminal.dispose();
    this.node.remove();
  }

  #hear(data) {
    if (typeof data !== "string") {
      this.#output(new Uint8Array(data));
      return;
    }
    const told = JSON.parse(data);
    if (told.type === "replay") {
      this.terminal.reset();
      this.#replayed = told.bytes;
      this.#silent = told.bytes > 0;
    } else if (told.type === "size") {
      this.#mine = told.yours;
      this.terminal.resize(told.cols, told.rows);
    } else if (told.type === "state") this.#state(told);
    this.#tellSize();
    this.told();
  }

  #output(bytes) {
    const ends = this.#replayed > 0 && this.#replayed <= bytes.length;
    this.#replayed = Math.max(0, this.#replayed - bytes.length);
    this.session.used();
    if (this.node.hidden && !this.#silent && !this.unseen) {
      this.unseen = true;
      this.told();
    }
    this.terminal.write(bytes, () => {
      if (ends) this.#silent = false;
      this.#shown += bytes.length;
      if (this.#shown < STEP_BYTES) return;
      this.#send({ type: "read", bytes: this.#shown });
      this.#shown = 0;
    });
  }

  #type(keys) {
    if (keys.length > LONGEST_PASTE_BYTES) {
      notice("This is too much to paste: at most 512 KiB at a time. Put it into a file instead.");
      return;
    }
    if (!this.#mine) this.takeSize();
    for (let start = 0; start < keys.length; start += PIECE_BYTES) {
      const piece = keys.subarray(start, start + PIECE_BYTES);
      if (this.#socket?.readyState === WebSocket.CONNECTING) this.#early.push(piece);
      else this.#send(piece);
    }
  }

  #send(message) {
    if (this.#socket?.readyState !== WebSocket.OPEN) return;
    this.#socket.send(message instanceof Uint8Array ? message : JSON.stringify(message));
  }

  #state({ state, exitCode, reason }) {
    this.state = state;
    this.strip.hidden = state !== "exited";
    if (state !== "exited") return;
    this.strip.replaceChildren(
      element("span", {}, reason ?? `${this.title} ended with code ${exitCode}.`),
      element("button", { onclick: () => this.start() }, "Start again"));
  }

  #tellSize() {
    const own = this.#own();
    const other = own && (own.cols !== this.terminal.cols || own.rows !== this.terminal.rows);
    this.node.classList.toggle("foreign", Boolean(other) && !this.#mine);
  }
}
