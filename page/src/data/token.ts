// The token: taken once out of the address, kept for this tab, given to other tabs of this page.
//
// Decides where it is kept. It must not know what it is for. Invariants: it is in no address longer
// than it takes to read it there; it is never in a cookie, which every port of this host would be
// sent, nor on disk; only pages of this very origin can be given it.

const KEY = "turnkeeper.token";
const CHANNEL = "turnkeeper.token";
const ASK_MS = 300;

interface Place { hash: string; search: string; pathname: string }

/** The token in an address, and the address without it. */
export function tokenIn(place: Place): { token: string | null; rest: string } {
  const hash = new URLSearchParams(place.hash.startsWith("#/") ? "" : place.hash.slice(1));
  const search = new URLSearchParams(place.search);
  const token = hash.get("token") ?? search.get("token");
  if (token === null) return { token, rest: place.pathname + place.search + place.hash };
  search.delete("token");
  const left = search.toString();
  const where = place.hash.startsWith("#/") ? place.hash : "";
  return { token, rest: place.pathname + (left ? `?${left}` : "") + where };
}

export class TokenKeeper {
  private channel: BroadcastChannel | null = null;

  constructor(private readonly storage: Pick<Storage, "getItem" | "setItem" | "removeItem">) {}

  get(): string | null {
    return this.storage.getItem(KEY);
  }

  set(token: string): void {
    this.storage.setItem(KEY, token.trim());
  }

  forget(): void {
    this.storage.removeItem(KEY);
  }

  /** Take it from the address, or from another tab that has it. */
  async find(place: Place, replace: (rest: string) => void): Promise<string | null> {
    const { token, rest } = tokenIn(place);
    if (token !== null) {
      this.set(token);
      replace(rest);
    }
    this.share();
    return this.get() ?? (await this.askOthers());
  }

  private share(): void {
    if (typeof BroadcastChannel === "undefined") return;
    this.channel = new BroadcastChannel(CHANNEL);
    this.channel.addEventListener("message", (event: MessageEvent) => {
      const token = this.get();
      if (event.data === "ask" && token !== null) this.channel?.postMessage({ token });
    });
  }

  private askOthers(): Promise<string | null> {
    const channel = this.channel;
    if (channel === null) return Promise.resolve(null);
    return new Promise((resolve) => {
      const done = (token: string | null) => {
        clearTimeout(timer);
        channel.removeEventListener("message", hear);
        if (token !== null) this.set(token);
        resolve(token);
      };
      const hear = (event: MessageEvent) => {
        const token = (event.data as { token?: unknown }).token;
        if (typeof token === "string") done(token);
      };
      const timer = setTimeout(() => done(null), ASK_MS);
      channel.addEventListener("message", hear);
      channel.postMessage("ask");
    });
  }
}
