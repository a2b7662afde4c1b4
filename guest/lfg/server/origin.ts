// Decides whether a request comes from our own page. Whoever reaches this server has a shell, so no
// other page that a user's browser has open may use it.

/** Does the request name our own page as its origin? Without an origin it does not. */
export function comesFromOwnPage(request: Request): boolean {
  const origin = request.headers.get("origin");
  // The edge says which host the browser asked for, and replaces what a client sends.
  const host = request.headers.get("x-forwarded-host") ?? request.headers.get("host");
  if (!origin || !host) return false;
  try {
    const { protocol, host: named } = new URL(origin);
    const isWeb = protocol === "https:" || protocol === "http:";
    // Parsed alike: the usual port of a protocol is not written by all.
    return isWeb && named === new URL(`${protocol}//${host}`).host;
  } catch {
    return false;
  }
}

/** Does the browser say that another site's page asks? Top-level visits are no page's asking. */
export function comesFromOtherPage(request: Request): boolean {
  const site = request.headers.get("sec-fetch-site") ?? "none";
  const visits = request.headers.get("sec-fetch-mode") === "navigate";
  return !visits && site !== "none" && site !== "same-origin";
}
