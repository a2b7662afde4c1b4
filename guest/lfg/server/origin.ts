// Decides whether a request comes from our own page. Whoever reaches this server has a shell, so no
// other page that a user's browser has open may use it.
//
// That a page and a request name one host proves little: whoever owns a name can let it lead to
// this machine once their page is open (DNS rebinding), and it is the page's own host then. Such a
// page can name any host in `X-Forwarded-Host`, but not in `Origin`, `Host` and `Sec-Fetch-Site`.
// So a name is believed over TLS only, which ends at the edge, and only for names of the edge's.
// Over plain HTTP, as at a host port of the node, the host must be an address or this machine.

/** Does the request name our own page as its origin? Without an origin it does not. */
export function comesFromOwnPage(request: Request): boolean {
  const origin = request.headers.get("origin");
  // The edge says which host the browser asked for, and replaces what a client sends.
  const host = request.headers.get("x-forwarded-host") ?? request.headers.get("host");
  if (!origin || !host) return false;
  try {
    const { protocol, host: named, hostname } = new URL(origin);
    const isProof = protocol === "https:" || (protocol === "http:" && isNobodysName(hostname));
    // Parsed alike: the usual port of a protocol is not written by all.
    return isProof && named === new URL(`${protocol}//${host}`).host;
  } catch {
    return false;
  }
}

/** May another site's page be asking? Browsers say which it is, but to names only over TLS.
 * Top-level visits are no page's asking. */
export function mayComeFromOtherPage(request: Request): boolean {
  const site = request.headers.get("sec-fetch-site");
  if (site === null) {
    const asked = URL.parse(`http://${request.headers.get("host")}`);
    return !asked || !isNobodysName(asked.hostname);
  }
  const visits = request.headers.get("sec-fetch-mode") === "navigate";
  return !visits && site !== "none" && site !== "same-origin";
}

/** An address, or a name of the browser's own machine: nobody can let it lead elsewhere. */
function isNobodysName(hostname: string): boolean {
  return /^[\d.]+$|^\[|^(.+\.)?localhost$/.test(hostname);
}
