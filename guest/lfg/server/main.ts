// Serves the web UI lfg, the four coding agents in a browser: `bun main.ts [PORT [HOST]]`, for the
// directory that it is started in.
import { basename } from "node:path";
import { Assets } from "./assets.ts";
import { Changes } from "./changes.ts";
import { Files } from "./files.ts";
import { Http } from "./http.ts";
import { PROGRAMS } from "./programs.ts";
import { Sockets, type Seat } from "./sockets.ts";
import { Terminals } from "./terminals.ts";

const [port = "8766", host = "0.0.0.0"] = process.argv.slice(2);
const directory = process.cwd();
const titles = Object.entries(PROGRAMS).map(([program, { title }]) => ({ program, title }));
const facts = { directory, name: basename(directory) || "/", programs: titles };

const terminals = new Terminals(directory, () => sockets.tellTabs());
const sockets = new Sockets(terminals, facts);
const files = new Files(directory);
const http = new Http(new Assets(), sockets, terminals, files, new Changes(directory));

const server = Bun.serve<Seat>({
  port: Number(port),
  hostname: host,
  idleTimeout: 60,
  maxRequestBodySize: 64 * 1024,
  fetch: (request, self) => http.answer(request, self),
  websocket: sockets.handler,
});
console.log(`${new Date().toISOString()} lfg serves ${directory} on port ${server.port}`);

for (const signal of ["SIGTERM", "SIGINT"] as const) {
  process.on(signal, () => {
    terminals.closeAll();
    process.exit(0);
  });
}
// One tab's failure must not end what runs in the others.
process.on("uncaughtException", (error) => console.error(error));
process.on("unhandledRejection", (error) => console.error(error));
