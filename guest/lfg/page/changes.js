// The list of what changed in the project since its last commit.
import { ask, element, find, notice } from "./element.js";

const LETTERS = {
  added: "A", changed: "M", deleted: "D", renamed: "R", conflict: "!", untracked: "N",
};
const MEANINGS = {
  added: "added", changed: "changed", deleted: "deleted", renamed: "renamed",
  conflict: "in conflict", untracked: "new",
};

export class Changes {
  #chosen = null;
  #drawn = "";
  // What stands beside the panel's title.
  note = "";

  // `choose` is called with the path of a change that was clicked.
  constructor(choose) {
    this.choose = choose;
  }

  async refresh() {
    let told;
    try {
      told = await ask("/api/changes");
    } catch (error) {
      told = { error: error.message };
    }
    const drawn = JSON.stringify([told, this.#chosen]);
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    this.#count(told);
    find("changes").replaceChildren(...this.#rows(told));
  }

  #count({ changes, branch, more }) {
    const count = find("change-count");
    count.hidden = !changes?.length;
    count.textContent = changes ? `${changes.length}${more ? "+" : ""}` : "";
    this.note = branch ?? "";
  }

  #rows({ error, repository, changes = [], more }) {
    if (error) return [element("p", {}, error)];
    if (repository === null) return this.#without();
    if (!changes.length) return [element("p", {}, "Nothing changed since the last commit.")];
    const rows = changes.map((change) => this.#row(change));
    if (more) rows.push(element("p", {}, "There are more changes, which are not listed."));
    return rows;
  }

  #without() {
    const begin = async () => {
      await ask("/api/repository", { method: "POST" }).catch((error) => notice(error.message));
      await this.refresh();
    };
    return [
      element("p", {}, "There is no git repository here, so nobody knows what changed."),
      element("button", { class: "wide", onclick: begin }, "git init"),
    ];
  }

  #row({ path, kind }) {
    const slash = path.lastIndexOf("/") + 1;
    const pressed = () => {
      this.#chosen = path;
      this.choose(path);
      this.refresh();
    };
    return element("button", {
      class: `change ${kind}`, title: `${path}: ${MEANINGS[kind]}`, onclick: pressed,
      "aria-current": path === this.#chosen,
    }, element("b", { "aria-label": MEANINGS[kind] }, LETTERS[kind]),
    element("span", {}, path.slice(slash)), element("small", {}, path.slice(0, slash)));
  }
}
