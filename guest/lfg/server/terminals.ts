// The tabs: one for each program to begin with, more if somebody opens them, MAX_TABS in all.
import { PROGRAMS } from "./programs.ts";
import { Terminal } from "./terminal.ts";

export const MAX_TABS = 8;

export class Terminals {
  readonly #tabs = new Map<string, Terminal>();

  constructor(private readonly directory: string, private readonly changed: () => void) {
    for (const program of Object.keys(PROGRAMS)) this.#add(program, program);
  }

  find(id: string): Terminal | undefined {
    return this.#tabs.get(id);
  }

  /** A further tab; null if there are MAX_TABS. */
  open(program: string): Terminal | null {
    if (this.#tabs.size >= MAX_TABS) return null;
    let number = 2;
    while (this.#tabs.has(`${program}-${number}`)) number += 1;
    const made = this.#add(`${program}-${number}`, program);
    this.changed();
    return made;
  }

  /** End and remove a tab that somebody opened; false if there is none of this name. */
  close(id: string): boolean {
    const tab = this.#tabs.get(id);
    if (!tab || id in PROGRAMS) return false;
    this.#tabs.delete(id);
    tab.close();
    for (const viewer of tab.viewers) viewer.tell({ type: "closed" });
    this.changed();
    return true;
  }

  list(): object[] {
    return [...this.#tabs.values()].map(({ id, program, state, exitCode }) => ({
      id, program, state, exitCode, title: id.replace("-", " "), closable: !(id in PROGRAMS),
    }));
  }

  closeAll(): void {
    for (const tab of this.#tabs.values()) tab.close();
  }

  #add(id: string, program: string): Terminal {
    const made = new Terminal(id, program, this.directory, this.changed);
    this.#tabs.set(id, made);
    return made;
  }
}
