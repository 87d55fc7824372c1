// Everything that lives as long as the page: the link, the outbox, open sessions, lists, the clock.
//
// Decides who is asked what and how often. It must not know how anything looks. Invariant: whatever is
// shown changes by a signal; a screen is drawn at most once a frame, however fast events come.

import { batch, signal } from "@preact/signals";
import { Api, Unreachable } from "../data/http";
import { Link, Refusal, type LinkState } from "../data/link";
import { Outbox } from "../data/outbox";
import { line } from "../data/safe";
import { Session } from "../data/session";
import { TokenKeeper } from "../data/token";
import type { AcceptedOut, AgentOut, ApprovalOut, EditRun, RunOut, SessionOut, Sessions } from "../data/wire";

const SESSIONS_KEPT = 8;
/** How often everything is looked at anew: where the server tells what changes, and where not. */
const LOOK_TOLD_MS = 30_000;
const LOOK_MS = 2000;
/** Changes that come together are looked at together. */
const TOGETHER_MS = 150;
/** A page that nobody sees looks less often; but it looks: it may have to call somebody. */
const HIDDEN_LOOKS = 2;
const OUTBOX = "turnkeeper.outbox";

export const tokens = new TokenKeeper(sessionStorage);
export const api = new Api(() => tokens.get());

/** Seconds since 1970, once a second. */
export const now = signal(Date.now() / 1000);
export const linkState = signal<LinkState>("connecting");
export const letters = signal(0);
/** What has not ended, by run; and the questions that are open. */
export const unfinished = signal<Map<string, RunOut>>(new Map());
export const lookedAt = signal(0);
export const questions = signal<ApprovalOut[]>([]);
export const endings = signal<RunOut[]>([]);
/** Sessions that have changed since they were listed, as they are now. */
export const changed = signal<SessionOut[]>([]);
export const agents = signal<AgentOut[]>([]);
export const needsToken = signal(false);
/** Counts up when something has changed that lists show. */
export const beat = signal(0);

export const link = new Link({
  open: () => {
    const where = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/v1/ws`;
    return new WebSocket(where, offered(tokens.get())) as never;
  },
  clock: {
    now: () => performance.now(),
    later: (after, what) => {
      const timer = setTimeout(what, after);
      return () => clearTimeout(timer);
    },
  },
  probe: async () => {
    try {
      await api.agents();
      return "down";
    } catch (why) {
      return why instanceof Refusal && why.problem.status === 401 ? "refused" : "down";
    }
  },
});

/** Browsers can say nothing in a handshake but such names; see gateway/auth.py. */
function offered(token: string | null): string[] {
  if (token === null) return ["turnkeeper"];
  const packed = btoa(String.fromCharCode(...new TextEncoder().encode(token)));
  return ["turnkeeper", `turnkeeper.token.${packed.replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "")}`];
}

export const outbox = new Outbox(
  {
    get isOpen() {
      return link.state === "open";
    },
    send: async ({ session, message, key }) =>
      (await link.ask({ type: "send", session, message, key })) as AcceptedOut,
  },
  { read: () => sessionStorage.getItem(OUTBOX), write: (text) => sessionStorage.setItem(OUTBOX, text) },
  () => crypto.randomUUID?.() ?? `k${Math.random().toString(36).slice(2)}${Date.now().toString(36)}`,
);

// Sessions that are open ------------------------------------------------------------------------

export interface Opened {
  session: Session;
  /** Changes at most once a frame. */
  rev: ReturnType<typeof signal<number>>;
  /** Views that show it. */
  holders: number;
  leave: (() => void) | null;
}

const opened = new Map<string, Opened>();

/** A session with what is known of it. */
export function open(id: string): Opened {
  const known = opened.get(id);
  const one = known ?? make(id);
  opened.delete(id);
  opened.set(id, one);
  return one;
}

/** It is watched until this view and every other one that shows it has let go of it: the next view
 * comes before the last one goes. */
export function hold(id: string): () => void {
  const one = open(id);
  one.holders += 1;
  one.leave ??= link.watch(id, one.session);
  return () => {
    one.holders -= 1;
    if (one.holders > 0) return;
    one.leave?.();
    one.leave = null;
    for (const [other, { holders }] of opened) {
      if (opened.size <= SESSIONS_KEPT) break;
      if (holders === 0) opened.delete(other);
    }
  };
}

function make(id: string): Opened {
  const session = new Session(id);
  const rev = signal(0);
  let asked = false;
  let state = "";
  session.onChange(() => {
    const now_ = `${session.running?.id} ${session.queue.length} ${session.open.length}`;
    if (now_ !== state) setTimeout(() => void look(), 100);
    state = now_;
    if (asked) return;
    asked = true;
    nextFrame(() => {
      asked = false;
      rev.value = session.rev;
    });
  });
  return { session, rev, holders: 0, leave: null };
}

declare global {
  interface Window {
    /** For whoever measures the page from outside. */
    turnkeeper: { seq(session: string): number };
  }
}

window.turnkeeper = { seq: (session) => opened.get(session)?.session.seq ?? 0 };

/** A page that nobody sees is given no frames, but it goes on. */
function nextFrame(what: () => void): void {
  if (document.hidden) setTimeout(what, 250);
  else requestAnimationFrame(what);
}

// Lists -----------------------------------------------------------------------------------------

const titles = signal<Map<string, string>>(new Map());

/** What people call a session: its title, as far as it was heard of. */
export function titleOf(session: string): string {
  return line(titles.value.get(session) || session, 60);
}

/** What stands behind a session's title where runs are listed: its agent, and its message if that is not the title. */
export function besides(run: RunOut): string {
  const said = line(run.text, 60);
  return said === titleOf(run.session) ? line(run.agent, 60) : `${line(run.agent, 60)}: ${said}`;
}

export function learnTitles(sessions: { id: string; title: string }[]): void {
  const known = titles.value;
  const fresh = sessions.filter((one) => known.get(one.id) !== one.title);
  if (fresh.length) titles.value = new Map([...known, ...fresh.map((one) => [one.id, one.title] as const)].slice(-2000));
}

/** When each run was seen as it is in `unfinished`, where that was not when all were looked at. */
const seen = new Map<string, number>();

export function seenAt(run: string): number {
  return seen.get(run) ?? lookedAt.value;
}

/** The server tells what changes: nothing has to be asked for again and again. */
let isTold = false;

/** The server says which sessions have changed: only what that does not tell is asked for. */
export function hear(told: Sessions): void {
  isTold = true;
  if (told.everything) return lookSoon();
  let news = false;
  const runs = new Map(unfinished.value);
  for (const one of told.items) {
    const run = told.runs.find((other) => other.id === one.running);
    const before = [...runs.values()].find((other) => other.session === one.id && other.state === "running");
    if (before !== undefined && before.id !== one.running) runs.delete(before.id);
    if (run !== undefined) {
      runs.set(run.id, run);
      seen.set(run.id, Date.now() / 1000);
    }
    news ||= before?.id !== run?.id || before?.phase !== run?.phase || before === undefined || run?.phase === "approval";
  }
  batch(() => {
    unfinished.value = runs;
    changed.value = told.items;
  });
  if (news) lookSoon();
}

let soon: ReturnType<typeof setTimeout> | null = null;

function lookSoon(): void {
  soon ??= setTimeout(() => {
    soon = null;
    void look();
  }, TOGETHER_MS);
}

let looking = false;
/** Somebody wanted a look while one was under way: what that one brings may be older than the wish. */
let wanted = false;
let looks = 0;

/** What runs and what waits for a person, over all sessions. */
export async function look(): Promise<void> {
  if (looking) wanted = true;
  if (looking || needsToken.value) return;
  looking = true;
  wanted = false;
  try {
    const [runs, open_, ended] = await Promise.all([
      api.runs({ state: "unfinished", limit: 500 }),
      api.approvals({ state: "open", limit: 200 }),
      api.runs({ state: "ended", limit: 50 }),
    ]);
    batch(() => {
      unfinished.value = new Map(runs.items.map((run) => [run.id, run]));
      questions.value = open_.items;
      endings.value = ended.items;
      lookedAt.value = Date.now() / 1000;
      seen.clear();
      beat.value += 1;
    });
  } catch (why) {
    if (!(why instanceof Refusal || why instanceof Unreachable)) throw why;
  } finally {
    looking = false;
    if (wanted) lookSoon();
  }
}

export async function stop(run: string): Promise<void> {
  await api.stop(run);
  void look();
}

/** Other words for what waits, or another place. What comes of it, the session's events tell. */
export async function change(run: string, what: EditRun): Promise<void> {
  await api.edit(run, { ...what, by: "the page" });
}

export async function steer(run: string): Promise<void> {
  await api.steer(run);
}

/** `rule`: what is alike is allowed from now on, too. */
export async function answer(approval: string, decision: "allow" | "deny", note = "", rule: string | null = null): Promise<void> {
  try {
    await api.answer(approval, { decision, note, by: "the page", ...(rule === null ? {} : { always: true, rule }) });
    settled(approval);
  } catch (why) {
    if (why instanceof Refusal && why.problem.code === SETTLED) settled(approval);
    throw why;
  }
}

const SETTLED = "TK-507";

function settled(approval: string): void {
  questions.value = questions.value.filter((one) => one.id !== approval);
  void look();
}

export async function begin(): Promise<void> {
  link.onChange(() => {
    linkState.value = link.state;
    if (link.state !== "open") isTold = false;
    if (link.state === "refused") needsToken.value = true;
    if (link.state === "open") {
      needsToken.value = false;
      outbox.flush();
      void look();
      void learnAgents();
    }
  });
  outbox.onChange(() => (letters.value += 1));
  setInterval(() => (now.value = Date.now() / 1000), 1000);
  link.onSessions = hear;
  setInterval(() => {
    looks += 1;
    const isDue = !isTold || Date.now() / 1000 - lookedAt.value > LOOK_TOLD_MS / 1000;
    if (link.state === "open" && isDue && (!document.hidden || looks % HIDDEN_LOOKS === 0)) void look();
  }, LOOK_MS);
  for (const event of ["online", "offline", "focus"]) addEventListener(event, () => link.hurry());
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) link.hurry();
  });
  await tokens.find(location, (rest) => history.replaceState(null, "", rest));
  link.connect();
}

export function useToken(token: string): void {
  tokens.set(token);
  needsToken.value = false;
  link.hurry();
}

async function learnAgents(): Promise<void> {
  try {
    agents.value = (await api.agents()).items;
  } catch (why) {
    if (!(why instanceof Refusal || why instanceof Unreachable)) throw why;
  }
}
