// Decides which programs may run in a tab, and in which environment.
import { homedir, userInfo } from "node:os";

export interface Program {
  readonly title: string;
  readonly command: readonly string[];
}

/** By slug, in the order of the tabs. */
export const PROGRAMS: Readonly<Record<string, Program>> = {
  opencode: { title: "opencode", command: ["opencode"] },
  pi: { title: "pi", command: ["pi"] },
  codex: { title: "codex", command: ["codex"] },
  claude: { title: "claude", command: ["claude"] },
  shell: { title: "shell", command: ["bash", "-l"] },
};

/** What a program is told: everything the server was, and what its terminal can do. */
export function environment(): Record<string, string> {
  const { username } = userInfo();
  const told: Record<string, string> = {
    HOME: homedir(), USER: username, LOGNAME: username, SHELL: "/bin/bash", LANG: "C.UTF-8",
  };
  for (const [name, value] of Object.entries(process.env)) {
    if (value !== undefined) told[name] = value;
  }
  return { ...told, TERM: "xterm-256color", COLORTERM: "truecolor" };
}
