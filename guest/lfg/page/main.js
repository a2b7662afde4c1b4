// Puts the page together, and keeps its status line and title true.
import { find } from "./element.js";
import { listen } from "./keys.js";
import { Session } from "./session.js";
import { Side } from "./side.js";
import { Tabs } from "./tabs.js";

const STATES = {
  connected: "connected", reconnecting: "reconnecting", waking: "waking the sandbox",
  asleep: "asleep or out of reach",
};
const AWAY = {
  waking: ["Waking the sandbox", "All goes on where it was."],
  asleep: ["Asleep, or out of reach", "Press a key or move the pointer to wake it."],
};

const session = new Session();
const tabs = new Tabs(session);
const side = new Side(session);
let name = "";

function tellState() {
  const { state } = session, connection = find("connection");
  connection.className = state;
  connection.lastElementChild.textContent = STATES[state];
  const away = AWAY[state];
  find("away").hidden = !away;
  if (away) {
    [find("away").querySelector("b").textContent, find("away").querySelector("p").textContent]
      = away;
  }
}

function tellTab() {
  const view = tabs.shown;
  document.title = [view?.title, name, "lfg"].filter(Boolean).join(" · ");
  find("program").textContent = view?.title ?? "";
  find("size").textContent = view ? `${view.terminal.cols}×${view.terminal.rows}` : "";
}

session.addEventListener("state", tellState);
session.addEventListener("hello", ({ detail }) => {
  name = detail.name;
  find("project").textContent = detail.name;
  find("directory").textContent = detail.directory;
  tellTab();
});
tabs.addEventListener("shown", tellTab);
tabs.addEventListener("worked", () => side.worked());
listen({ tabs, side });
tellState();
session.connect();
