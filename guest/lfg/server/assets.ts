// The files of the page, with their types, compressed once, and what browsers may keep of them.
import { readdirSync, readFileSync } from "node:fs";
import { extname, join } from "node:path";
import { gzipSync } from "bun";

const TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
  ".mjs": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
};
const SMALL_BYTES = 1024;
const XTERM: Readonly<Record<string, string>> = {
  "/xterm/xterm.mjs": "@xterm/xterm/lib/xterm.mjs",
  "/xterm/xterm.css": "@xterm/xterm/css/xterm.css",
  "/xterm/addon-fit.mjs": "@xterm/addon-fit/lib/addon-fit.mjs",
};
const PAGE = join(import.meta.dir, "../page");

interface Asset {
  readonly path: string;
  readonly caching: string;
}

interface Body {
  readonly plain: Uint8Array<ArrayBuffer>;
  readonly packed: Uint8Array<ArrayBuffer> | null;
  readonly tag: string;
}

/** Files by the path of their address. */
export class Assets {
  readonly #known = new Map<string, Asset>();
  readonly #read = new Map<string, Body>();

  constructor() {
    for (const name of readdirSync(PAGE)) {
      // Small, and must fit each other: asked for again each time.
      this.#known.set(`/${name}`, { path: join(PAGE, name), caching: "no-cache" });
    }
    this.#known.set("/", this.#known.get("/index.html")!);
    for (const [name, file] of Object.entries(XTERM)) this.#addPackaged(name, file);
  }

  /** The answer, or null if there is no such file. */
  answer(request: Request, path: string): Response | null {
    const asset = this.#known.get(path);
    if (!asset) return null;
    const body = this.#body(asset.path);
    const headers = new Headers({
      "content-type": TYPES[extname(asset.path)] ?? "application/octet-stream",
      "cache-control": asset.caching, etag: body.tag, vary: "accept-encoding",
    });
    if (request.headers.get("if-none-match")?.includes(body.tag)) {
      return new Response(null, { status: 304, headers });
    }
    const accepts = request.headers.get("accept-encoding")?.includes("gzip");
    if (!body.packed || !accepts) return new Response(body.plain, { headers });
    headers.set("content-encoding", "gzip");
    return new Response(body.packed, { headers });
  }

  #addPackaged(name: string, file: string): void {
    try {
      const path = Bun.resolveSync(file, import.meta.dir);
      this.#known.set(name, { path, caching: "public, max-age=86400" });
    } catch {
      console.error(`${file} is not installed: the page will show no terminal`);
    }
  }

  #body(path: string): Body {
    let body = this.#read.get(path);
    if (!body) {
      const plain = new Uint8Array(readFileSync(path));
      const packed = plain.length > SMALL_BYTES ? gzipSync(plain) : null;
      body = { plain, packed, tag: `"${Bun.hash(plain).toString(36)}"` };
      this.#read.set(path, body);
    }
    return body;
  }
}
