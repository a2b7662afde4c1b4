// Makes elements, finds those of the page, and asks the server.

export const find = (id) => document.getElementById(id);

// Properties that begin with `on` listen; others are attributes, left out if they are null.
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// The JSON of an answer; throws an Error with the server's sentence.
export async function ask(path, { method = "GET", body } = {}) {
  const answer = await fetch(path, {
    method, body: body && JSON.stringify(body), signal: AbortSignal.timeout(60_000) });
  const told = await answer.json().catch(() => ({ error: "The sandbox did not answer." }));
  if (!answer.ok) throw new Error(told.error ?? `It answered ${answer.status}.`);
  return told;
}

let timer;

// A sentence at the bottom of the page, for some seconds.
export function notice(sentence) {
  const shown = find("notice");
  shown.textContent = sentence;
  shown.hidden = false;
  clearTimeout(timer);
  timer = setTimeout(() => { shown.hidden = true; }, 6000);
}
