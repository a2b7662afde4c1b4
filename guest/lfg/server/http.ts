// Answers the requests of the page.
//
// 1. A WebSocket and whatever changes something must come from our own page. 2. What is read must
// not be asked for by another site's page. 3. Then the path decides.
import type { Server } from "bun";
import type { Assets } from "./assets.ts";
import type { Changes } from "./changes.ts";
import type { Files } from "./files.ts";
import { comesFromOwnPage, mayComeFromOtherPage } from "./origin.ts";
import { PROGRAMS } from "./programs.ts";
import { Refusal } from "./refusal.ts";
import type { Seat, Sockets } from "./sockets.ts";
import { MAX_TABS, type Terminals } from "./terminals.ts";

// xterm.js makes style elements of its own. Nothing is loaded from anywhere else, and no other site
// may frame the page.
const HEADERS: Readonly<Record<string, string>> = {
  "content-security-policy": "default-src 'none'; script-src 'self'; connect-src 'self';"
    + " style-src 'self' 'unsafe-inline'; img-src 'self' data:; base-uri 'none';"
    + " form-action 'none'; frame-ancestors 'none'",
  "x-content-type-options": "nosniff",
  "x-frame-options": "DENY",
  "referrer-policy": "no-referrer",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
};
const TERMINAL = "/ws/terminal/";
const TAB = "/api/tabs/";

export class Http {
  constructor(
    private readonly assets: Assets,
    private readonly sockets: Sockets,
    private readonly terminals: Terminals,
    private readonly files: Files,
    private readonly changes: Changes,
  ) {}

  /** The answer; none for a request that became a WebSocket. */
  async answer(request: Request, server: Server<Seat>): Promise<Response | undefined> {
    try {
      const url = new URL(request.url);
      const found = url.pathname.startsWith("/ws/")
        ? this.#socket(request, server, url.pathname) : await this.#route(request, url);
      if (found) this.#finish(found);
      return found;
    } catch (error) {
      if (!(error instanceof Refusal)) console.error(error);
      const refused = error instanceof Refusal
        ? error : new Refusal(500, "lfg failed; see its log.");
      return this.#finish(json({ error: refused.message }, refused.status));
    }
  }

  #finish(response: Response): Response {
    for (const [name, value] of Object.entries(HEADERS)) response.headers.set(name, value);
    if (!response.headers.has("cache-control")) response.headers.set("cache-control", "no-store");
    return response;
  }

  #socket(request: Request, server: Server<Seat>, path: string): Response | undefined {
    if (!comesFromOwnPage(request)) throw new Refusal(403, "Only lfg's own page may connect.");
    if (path === "/ws/session") return this.sockets.accept(request, server, null);
    const terminal = path.startsWith(TERMINAL) && this.terminals.find(path.slice(TERMINAL.length));
    if (!terminal) throw new Refusal(404, "There is no such tab.");
    return this.sockets.accept(request, server, terminal);
  }

  async #route(request: Request, url: URL): Promise<Response> {
    const { method } = request;
    if (method === "GET" || method === "HEAD") {
      if (!url.pathname.startsWith("/api/")) {
        return this.assets.answer(request, url.pathname) ?? missing();
      }
      if (mayComeFromOtherPage(request)) throw new Refusal(403, "Only lfg's own page may read.");
      return this.#read(url);
    }
    if (!comesFromOwnPage(request)) throw new Refusal(403, "Only lfg's own page may do that.");
    if (method === "POST" && url.pathname === "/api/tabs") return this.#openTab(request);
    if (method === "POST" && url.pathname === "/api/repository") {
      await this.changes.begin();
      return json({}, 201);
    }
    if (method === "DELETE" && url.pathname.startsWith(TAB)) {
      return this.terminals.close(url.pathname.slice(TAB.length)) ? json({}, 200) : missing();
    }
    return json({ error: "No such request." }, 405);
  }

  async #read(url: URL): Promise<Response> {
    const path = url.searchParams.get("path") ?? ".";
    switch (url.pathname) {
      case "/api/files": return json(await this.files.list(path));
      case "/api/file": return json(await this.files.read(path));
      case "/api/changes": return json(await this.changes.list());
      case "/api/diff":
        this.files.locate(path);
        return json(await this.changes.diff(path));
      default: return missing();
    }
  }

  async #openTab(request: Request): Promise<Response> {
    const asked = await request.json().catch(() => null) as { program?: unknown } | null;
    const program = asked?.program;
    if (typeof program !== "string" || !Object.hasOwn(PROGRAMS, program)) {
      throw new Refusal(400, "There is no such program.");
    }
    const made = this.terminals.open(program);
    if (!made) throw new Refusal(409, `There are ${MAX_TABS} tabs; close one first.`);
    return json({ id: made.id }, 201);
  }
}

function json(value: object, status = 200): Response {
  return Response.json(value, { status });
}

function missing(): Response {
  return json({ error: "There is nothing here." }, 404);
}
