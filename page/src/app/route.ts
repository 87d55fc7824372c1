// Where somebody is in the page, as the part of the address after the sign #.
//
// Decides the names of views. It must not know what they show. Invariant: every view has an address,
// and every address leads to a view; the server is never told which.

import { signal } from "@preact/signals";

export type Route =
  | { view: "home" }
  | { view: "new" }
  | { view: "inbox" }
  | { view: "overview" }
  | { view: "session"; session: string }
  | { view: "run"; session: string; run: string };

export function read(hash: string): Route {
  const [kind, session, sub, run] = hash.replace(/^#\/?/, "").split("/").map(decode);
  if (kind === "s" && session) {
    return sub === "r" && run ? { view: "run", session, run } : { view: "session", session };
  }
  return kind === "inbox" || kind === "overview" || kind === "new" ? { view: kind } : { view: "home" };
}

export const to = {
  home: "#/",
  fresh: "#/new",
  inbox: "#/inbox",
  overview: "#/overview",
  session: (id: string) => `#/s/${encodeURIComponent(id)}`,
  run: (session: string, run: string) => `#/s/${encodeURIComponent(session)}/r/${encodeURIComponent(run)}`,
};

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const route = signal<Route>({ view: "home" });

export function followAddress(): void {
  const look = () => {
    route.value = read(location.hash);
  };
  addEventListener("hashchange", look);
  look();
}

/** Not by a link: whoever uses a keyboard or a screen reader is taken along. */
export function go(where: string): void {
  const from = document.activeElement;
  location.hash = where.slice(1);
  requestAnimationFrame(() => {
    // Unless they have gone on elsewhere meanwhile.
    const at = document.activeElement;
    if (at === from || at === document.body) document.querySelector<HTMLElement>("main")?.focus();
  });
}
