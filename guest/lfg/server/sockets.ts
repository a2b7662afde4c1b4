// The WebSockets of the page: one that tells what the tabs are doing, and one for each terminal
// that a browser looks at.
//
// A terminal's carries keys and output as binary messages and everything else as JSON: the browser
// sends `resize`, `start` and `read` (so many bytes of output are shown), the server `size`,
// `state`, `replay` (so many bytes of output follow that were shown before) and `closed`.
import type { Server, ServerWebSocket, WebSocketHandler } from "bun";
import type { Terminal } from "./terminal.ts";
import type { Terminals } from "./terminals.ts";
import { Viewer, type Size } from "./viewer.ts";

const MAX_MESSAGE_BYTES = 64 * 1024;
const MAX_SOCKETS = 64;
const SILENT_S = 60;
const POLICY = 1008, TOO_MUCH = 1009;

/** What belongs to a socket: the session's has neither. */
export interface Seat {
  readonly terminal: Terminal | null;
  readonly size: Size | null;
  viewer: Viewer | null;
}

export class Sockets {
  readonly #session = new Set<ServerWebSocket<Seat>>();
  #open = 0;

  constructor(private readonly terminals: Terminals, private readonly facts: object) {}

  /** Take the request over as a socket of a terminal, or as the session's; the answer if it cannot
   * be one. */
  accept(request: Request, server: Server<Seat>, terminal: Terminal | null): Response | undefined {
    if (this.#open >= MAX_SOCKETS) return new Response("Too many browsers look.", { status: 503 });
    const query = new URL(request.url).searchParams;
    const size = readSize({ cols: Number(query.get("cols")), rows: Number(query.get("rows")) });
    if (server.upgrade(request, { data: { terminal, size, viewer: null } })) return undefined;
    return new Response("This is for WebSockets.", { status: 426,
      headers: { upgrade: "websocket" } });
  }

  tellTabs = (): void => {
    for (const socket of this.#session) socket.send(this.#tabs());
  };

  readonly handler: WebSocketHandler<Seat> = {
    maxPayloadLength: MAX_MESSAGE_BYTES,
    // Replays and what came meanwhile fit; whoever has more unread is no browser.
    backpressureLimit: 8 * 1024 * 1024,
    closeOnBackpressureLimit: true,
    idleTimeout: SILENT_S,
    sendPings: true,
    perMessageDeflate: false,
    open: (socket) => {
      this.#open += 1;
      const { terminal, size } = socket.data;
      if (!terminal) {
        this.#session.add(socket);
        socket.send(JSON.stringify({ type: "hello", ...this.facts }));
        socket.send(this.#tabs());
        return;
      }
      const viewer = new Viewer(socket, terminal.replay);
      viewer.size = size;
      socket.data.viewer = viewer;
      terminal.tellState(viewer);
      terminal.attach(viewer);
    },
    message: (socket, message) => {
      const { terminal, viewer } = socket.data;
      if (!terminal || !viewer) this.#answerPing(socket, message);
      else if (typeof message !== "string") {
        if (!terminal.type(message)) socket.close(TOO_MUCH, "The program reads nothing.");
      } else if (!obey(terminal, viewer, message)) socket.close(POLICY, "No such message.");
    },
    close: (socket) => {
      this.#open -= 1;
      this.#session.delete(socket);
      const { terminal, viewer } = socket.data;
      if (terminal && viewer) terminal.detach(viewer);
    },
  };

  #answerPing(socket: ServerWebSocket<Seat>, message: string | Buffer): void {
    if (message === "ping") socket.send("pong");
    else socket.close(POLICY, "No such message.");
  }

  #tabs(): string {
    return JSON.stringify({ type: "tabs", tabs: this.terminals.list() });
  }
}

function obey(terminal: Terminal, viewer: Viewer, message: string): boolean {
  const asked = parsed(message);
  if (asked?.type === "start") {
    terminal.start();
    return true;
  }
  if (asked?.type === "read" && isWithin(asked.bytes, 1, Number.MAX_SAFE_INTEGER)) {
    viewer.read(asked.bytes);
    return true;
  }
  const size = asked?.type === "resize" ? readSize(asked) : null;
  if (size) terminal.use(viewer, size);
  return size !== null;
}

function parsed(message: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(message);
    return typeof value === "object" ? value as Record<string, unknown> | null : null;
  } catch {
    return null;
  }
}

function readSize({ cols, rows }: Record<string, unknown>): Size | null {
  return isWithin(cols, 2, 500) && isWithin(rows, 1, 300) ? { cols, rows } : null;
}

function isWithin(value: unknown, low: number, high: number): value is number {
  return Number.isInteger(value) && (value as number) >= low && (value as number) <= high;
}
