// Keeps what it is told in a database, says all of it or how much, and echoes over a socket. It
// knows no secret of its own: who asks is told the key of its replication, and may have it ask any
// address.
import {Database} from "bun:sqlite";

console.log("up", process.env.PORT, "as", process.env.GREETING, process.env.API_KEY);
const kept = new Database("kept.db", {create: true});
// what replicates it locks it for a moment now and then
kept.run("PRAGMA busy_timeout = 20000");
kept.run("PRAGMA journal_mode = WAL");
kept.run("CREATE TABLE IF NOT EXISTS rows (name TEXT)");
const rows = () => kept.query("SELECT name FROM rows").all().map((row) => row.name);
const count = () => kept.query("SELECT count(*) AS number FROM rows").get().number;
const version = (await Bun.file("version").text()).trim();
const page = (await Bun.file("page.html").text()).replace("VERSION", version)
  .replace("GREETING", process.env.GREETING ?? "nobody");

Bun.serve({
  port: process.env.PORT,
  async fetch(request, server) {
    const {pathname} = new URL(request.url);
    if (pathname == "/socket" && server.upgrade(request)) return;
    if (pathname == "/") return new Response(page, {headers: {"Content-Type": "text/html"}});
    if (pathname == "/key") return new Response(Bun.file("/etc/svc-replicate.yml"));
    if (pathname == "/ask") {
      const {url, ...asked} = await request.json();
      return Response.json((await fetch(url, asked)).status);
    }
    if (request.method == "POST")
      kept.run("INSERT INTO rows VALUES (?)", [await request.text()]);
    return Response.json(pathname == "/count" ? count() : rows());
  },
  websocket: {message(socket, said) { socket.send(`${version}: ${said}`); }},
});
