// The keys of the page. All have Ctrl and Shift, which programs on a terminal cannot tell from Ctrl
// alone and so do not use.
import { element, find, notice } from "./element.js";

export const KEYS = [
  ["1 ... 8", "the terminal of this number"],
  ["Page Up, Page Down", "the terminal before, after"],
  ["F", "files, on and off"],
  ["G", "changes, on and off"],
  ["C", "copy what is selected in the terminal"],
  ["V", "paste"],
  ["/", "these keys"],
];

export function listen({ tabs, side }) {
  const actions = {
    KeyF: () => side.toggle("files"),
    KeyG: () => side.toggle("changes"),
    KeyC: () => copy(tabs.shown?.terminal.getSelection()),
    PageUp: () => tabs.step(-1),
    PageDown: () => tabs.step(1),
    Slash: showKeys,
  };
  for (let place = 0; place < 8; place += 1) {
    actions[`Digit${place + 1}`] = () => tabs.showPlace(place);
  }
  addEventListener("keydown", (event) => {
    const action = event.ctrlKey && event.shiftKey && !event.altKey && actions[event.code];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  }, { capture: true });
  find("help-button").addEventListener("click", showKeys);
}

function showKeys() {
  const help = find("help");
  if (help.open) {
    help.close();
    return;
  }
  const rows = KEYS.map(([key, meaning]) => element("tr", {},
    element("td", {}, element("kbd", {}, "Ctrl"), element("kbd", {}, "Shift"),
      element("kbd", {}, key)),
    element("td", {}, meaning)));
  help.replaceChildren(element("h2", {}, "Keys"), element("table", {}, ...rows),
    element("p", {}, "Lists and tabs follow the arrow keys. Esc closes this."),
    element("button", { class: "wide", onclick: () => help.close() }, "Close"));
  help.showModal();
}

async function copy(text) {
  if (!text) return;
  try {
    await navigator.clipboard.writeText(text);
    notice("Copied.");
  } catch {
    notice("The browser did not let this page copy.");
  }
}
