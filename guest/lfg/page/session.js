// The page's line to its sandbox, and whether there is one.
//
// 1. Every request wakes a sandbox that sleeps. So a lost line is taken up again only while
// somebody is there: who was last seen a minute ago wakes it with the next key or move.
// 2. An open line keeps the sandbox awake. A page on which nothing has happened for half an hour
// lets go of it.
const PRESENT_MS = 60_000, REST_MS = 30 * 60_000;
const PING_MS = 20_000, SILENT_MS = 45_000;
const FIRST_PAUSE_MS = 300, LONGEST_PAUSE_MS = 5000;
// A line that is merely lost is back sooner.
const WAKING_AFTER_MS = 1500;
const SIGNS = ["keydown", "pointerdown", "pointermove", "wheel", "touchstart", "focus"];

export const address = (path) => location.origin.replace(/^http/, "ws") + path;

// Events: `state` (connected, reconnecting, waking, asleep), `hello` and `tabs` with what the
// server says.
export class Session extends EventTarget {
  state = "reconnecting";
  #socket = null;
  #seenAt = performance.now();
  #usedAt = performance.now();
  #heardAt = 0;
  #pause = FIRST_PAUSE_MS;
  #lostAt = performance.now();
  #again = null;

  constructor() {
    super();
    for (const sign of SIGNS) {
      addEventListener(sign, () => this.#seen(), { capture: true, passive: true });
    }
    document.addEventListener("visibilitychange", () => document.hidden || this.#seen());
    setInterval(() => this.#look(), PING_MS);
  }

  // Something was shown: somebody may be reading it.
  used() {
    this.#usedAt = performance.now();
  }

  connect() {
    clearTimeout(this.#again);
    if (this.state === "asleep") this.#become("waking");
    const socket = this.#socket = new WebSocket(address("/ws/session"));
    setTimeout(() => this.#wait(), WAKING_AFTER_MS + 50);
    socket.onopen = () => {
      this.#pause = FIRST_PAUSE_MS;
      this.#heardAt = performance.now();
    };
    socket.onmessage = ({ data }) => this.#hear(data);
    socket.onclose = () => this.#lost(socket);
  }

  #hear(data) {
    this.#heardAt = performance.now();
    if (data === "pong") return;
    const { type, ...told } = JSON.parse(data);
    // Without its tabs, which follow `hello`, the page does nothing that a key asks for.
    if (type === "tabs") this.#become("connected");
    this.dispatchEvent(new CustomEvent(type, { detail: told }));
  }

  #lost(socket) {
    if (socket !== this.#socket) return;
    this.#socket = null;
    if (performance.now() - this.#seenAt > PRESENT_MS || document.hidden) {
      this.#become("asleep");
      return;
    }
    if (this.state === "connected") {
      this.#lostAt = performance.now();
      this.#become("reconnecting");
    }
    this.#wait();
    this.#again = setTimeout(() => this.connect(), this.#pause);
    this.#pause = Math.min(this.#pause * 2, LONGEST_PAUSE_MS);
  }

  #seen() {
    this.#seenAt = this.#usedAt = performance.now();
    if (this.state === "asleep") this.connect();
  }

  // Is the line still there, and is it needed?
  #look() {
    if (this.state !== "connected") return;
    const now = performance.now();
    if (now - this.#usedAt > REST_MS) {
      this.#leave();
      this.#become("asleep");
    } else if (now - this.#heardAt > SILENT_MS + PING_MS) {
      const socket = this.#socket;
      socket.close();
      this.#lost(socket);
    } else this.#socket.send("ping");
  }

  #leave() {
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
  }

  #become(state) {
    if (state === this.state) return;
    this.state = state;
    this.dispatchEvent(new Event("state"));
  }

  // It takes longer than a line that was merely lost.
  #wait() {
    const isLong = performance.now() - this.#lostAt >= WAKING_AFTER_MS;
    if (isLong && this.state === "reconnecting") this.#become("waking");
  }
}
