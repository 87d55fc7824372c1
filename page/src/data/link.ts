// The one WebSocket: subscriptions by cursor, commands and their answers, and coming back.
//
// Decides when to connect again and where each subscription goes on. It must not know what events
// mean. Invariant: a watcher is given every event after its cursor once and in order; whatever was
// asked is answered, refused or lost, and never forgotten.

import type { Event, Incoming, Outgoing, Problem, Sessions } from "./wire";

export interface SocketLike {
  onopen: ((event: never) => void) | null;
  onmessage: ((event: { data: unknown }) => void) | null;
  onclose: ((event: never) => void) | null;
  send(data: string): void;
  close(): void;
}

export interface Clock {
  now(): number;
  later(after_ms: number, what: () => void): () => void;
}

export interface Watcher {
  /** The number of the last event it has. */
  readonly seq: number;
  take(events: Event[]): void;
  lose?(problem: Problem): void;
}

export type LinkState = "connecting" | "open" | "waiting" | "refused" | "closed";

/** The connection went before there was an answer: nobody knows whether it was done. */
export class Lost extends Error {}

export class Refusal extends Error {
  readonly problem: Problem;
  constructor(problem: Problem) {
    super(`${problem.code} ${problem.detail}`);
    this.problem = problem;
  }
}

export interface LinkOptions {
  open(): SocketLike;
  clock: Clock;
  /** Why a socket did not open: a browser does not tell it. */
  probe?(): Promise<"refused" | "down">;
  random?(): number;
}

const FIRST_MS = 250;
const MOST_MS = 10_000;
const OPEN_MS = 10_000;
const WATCHED = "sessions";
/** So long may nothing be heard before the peer is asked, and so long may it then take. */
const PING_MS = 10_000;
const PONG_MS = 6_000;
/** The same when somebody looks, or the network has changed: who is dropped in vain loses nothing. */
const HURRIED_MS = 3_000;

interface Asked {
  resolve(answer: unknown): void;
  reject(why: Error): void;
}

type Command = Extract<Incoming, { type: "send" | "stop" | "answer" }>;
type Unnumbered<C> = C extends { id: string } ? Omit<C, "id"> : never;

export class Link {
  state: LinkState = "connecting";
  /** When it tries again, by the clock; for people to see. */
  retryAt = 0;
  /** Told which sessions change; and, when that begins anew, that anything may have. */
  onSessions: ((told: Sessions) => void) | null = null;
  private socket: SocketLike | null = null;
  private watchers = new Map<string, Watcher>();
  private asked = new Map<string, Asked>();
  private listeners = new Set<() => void>();
  private ids = 0;
  private failures = 0;
  private cancelTimer: () => void = () => {};
  private heard = 0;

  constructor(private readonly options: LinkOptions) {}

  onChange(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  }

  connect(): void {
    if (this.socket !== null || this.state === "closed") return;
    this.cancelTimer();
    this.turn("connecting");
    const socket = this.options.open();
    this.socket = socket;
    socket.onopen = () => this.opened(socket);
    socket.onmessage = (event) => this.hear(socket, event.data);
    socket.onclose = () => this.gone(socket);
    this.cancelTimer = this.options.clock.later(OPEN_MS, () => this.drop(socket));
  }

  /** Somebody looks, or the network is back: do not wait any longer. */
  hurry(): void {
    if (this.state === "waiting" || this.state === "refused") this.connect();
    else if (this.state === "open") this.ping(HURRIED_MS);
  }

  close(): void {
    this.turn("closed");
    const socket = this.socket;
    if (socket !== null) {
      this.gone(socket);
      socket.close();
    }
  }

  watch(session: string, watcher: Watcher): () => void {
    this.watchers.set(session, watcher);
    this.subscribe(session);
    return () => {
      if (this.watchers.get(session) !== watcher) return;
      this.watchers.delete(session);
      if (this.state === "open") this.say({ type: "unsubscribe", session });
    };
  }

  /** A command; what it is answered. */
  ask(command: Unnumbered<Command>): Promise<unknown> {
    if (this.state !== "open") return Promise.reject(new Lost("there is no connection"));
    const id = `c${++this.ids}`;
    return new Promise((resolve, reject) => {
      this.asked.set(id, { resolve, reject });
      this.say({ ...command, id } as Command);
    });
  }

  private opened(socket: SocketLike): void {
    if (socket !== this.socket) return;
    this.failures = 0;
    this.heard = this.options.clock.now();
    this.turn("open");
    for (const session of this.watchers.keys()) this.subscribe(session);
    if (this.onSessions !== null) this.say({ type: "watch_sessions", id: WATCHED });
    this.keepAlive(socket);
  }

  private subscribe(session: string): void {
    const watcher = this.watchers.get(session);
    if (watcher !== undefined && this.state === "open") {
      this.say({ type: "subscribe", session, after: watcher.seq, id: `s${++this.ids}:${session}` });
    }
  }

  private hear(socket: SocketLike, data: unknown): void {
    if (socket !== this.socket || typeof data !== "string") return;
    this.heard = this.options.clock.now();
    const told = JSON.parse(data) as Outgoing;
    switch (told.type) {
      case "events":
        return this.give(told.session, told.events);
      case "sessions":
        return this.onSessions?.({ ...told, everything: told.everything || told.id === WATCHED });
      case "reply":
        return this.settle(told.id, (asked) => asked.resolve(told.answer));
      case "error":
        return this.refused(told.id, told.problem);
      case "goodbye":
      case "subscribed":
      case "unsubscribed":
      case "pong":
        return;
    }
  }

  private give(session: string, events: Event[]): void {
    const watcher = this.watchers.get(session);
    if (watcher === undefined) return;
    const fresh = events.filter((event) => event.seq > watcher.seq);
    const first = fresh[0];
    if (first === undefined) return;
    if (first.seq !== watcher.seq + 1) return this.subscribe(session); // a gap: from the cursor on
    watcher.take(fresh);
  }

  private refused(id: string | null, problem: Problem): void {
    if (id !== null && id.startsWith("s") && id.includes(":")) {
      this.watchers.get(id.slice(id.indexOf(":") + 1))?.lose?.(problem);
    } else if (id !== null) {
      this.settle(id, (asked) => asked.reject(new Refusal(problem)));
    }
  }

  private settle(id: string, how: (asked: Asked) => void): void {
    const asked = this.asked.get(id);
    this.asked.delete(id);
    if (asked !== undefined) how(asked);
  }

  private say(what: Incoming): void {
    this.socket?.send(JSON.stringify(what));
  }

  private ping(within = PONG_MS): void {
    const socket = this.socket;
    if (socket === null) return;
    const before = this.heard;
    this.say({ type: "ping" });
    this.cancelTimer();
    this.cancelTimer = this.options.clock.later(within, () => {
      if (this.heard === before) this.drop(socket);
      else this.keepAlive(socket);
    });
  }

  private keepAlive(socket: SocketLike): void {
    this.cancelTimer();
    this.cancelTimer = this.options.clock.later(PING_MS, () => {
      if (socket === this.socket) this.ping();
    });
  }

  /** A peer that says nothing: whatever its socket says, it is gone. */
  private drop(socket: SocketLike): void {
    this.gone(socket);
    socket.close();
  }

  private gone(socket: SocketLike): void {
    if (socket !== this.socket) return;
    const wasOpen = this.state === "open";
    this.socket = null;
    this.cancelTimer();
    for (const [id, asked] of [...this.asked]) {
      this.asked.delete(id);
      asked.reject(new Lost("the connection went before there was an answer"));
    }
    if (this.state === "closed") return;
    this.comeBack();
    if (!wasOpen) this.askWhy();
  }

  private comeBack(): void {
    const { clock, random = Math.random } = this.options;
    const most = Math.min(MOST_MS, FIRST_MS * 2 ** this.failures++);
    const wait = most / 2 + (random() * most) / 2;
    this.retryAt = clock.now() + wait;
    this.turn("waiting");
    this.cancelTimer = clock.later(wait, () => this.connect());
  }

  private askWhy(): void {
    void this.options.probe?.().then((why) => {
      if (why === "refused" && this.state !== "open" && this.state !== "closed") {
        this.cancelTimer();
        this.socket = null;
        this.turn("refused");
      }
    });
  }

  private turn(state: LinkState): void {
    if (this.state === state) return;
    this.state = state;
    for (const listener of [...this.listeners]) listener();
  }
}
