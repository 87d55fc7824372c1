// The list of sessions, with what each is doing now.
//
// Decides which are shown and in which order they are asked for. It must not know events. Invariant:
// however many sessions there are, a page of them is asked for at a time and a screenful is drawn.

import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { api, beat, changed, endings, learnTitles, now, questions, seenAt, unfinished } from "../app/keeper";
import { route, to } from "../app/route";
import { Refusal } from "../data/link";
import { Unreachable } from "../data/http";
import { line } from "../data/safe";
import type { RunOut, SessionOut } from "../data/wire";
import { Ago, Chip, List, OutcomeChip, PhaseChip, Until } from "./parts";
import { clockWord, span } from "./words";

const PAGE = 100;
const SILENT = new Set(["idle", "tool", "first_output"]);

const items = signal<SessionOut[]>([]);
const more = signal<string | null>(null);
const loaded = signal(false);

export function Sessions() {
  const [search, setSearch] = useState("");
  const [state, setState] = useState("");
  const wanted = { search, state };
  void beat.value;
  useEffect(() => {
    const timer = setTimeout(() => void refresh(wanted, true), search ? 200 : 0);
    return () => clearTimeout(timer);
  }, [search, state]);
  useEffect(() => merge(changed.value, search !== "" || state !== ""), [changed.value]);
  useEffect(() => { if (beat.value > 0) void refresh(wanted, false); }, [beat.value]);
  const here = route.value;
  const selected = here.view === "session" || here.view === "run" ? here.session : "";
  return (
    <section class="sessions" aria-label="Sessions">
      <div class="filters">
        <input type="search" placeholder="Search sessions" aria-label="Search sessions" value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
        <select value={state} aria-label="Which sessions" onChange={(event) => setState(event.currentTarget.value)}>
          <option value="">all</option><option value="busy">busy</option><option value="idle">idle</option>
        </select>
        <a class="button good" href={to.fresh} title="A new session">New</a>
      </div>
      {items.value.length === 0 && loaded.value ? <p class="dim none">{search || state ? "None is like that." : "No sessions yet."}</p> : null}
      <List items={items.value} keyOf={(one) => one.id} estimate={66} role="list" label="Sessions"
        draw={(one) => <Line session={one} selected={one.id === selected} />} onEnd={() => void next(wanted)} />
    </section>
  );
}

function Line({ session, selected }: { session: SessionOut; selected: boolean }) {
  const run = session.running === null ? undefined : unfinished.value.get(session.running);
  const asks = questions.value.some((one) => one.session === session.id);
  return (
    <a class={`line ${selected ? "selected" : ""}`} href={to.session(session.id)} aria-current={selected ? "page" : undefined}>
      <span class="top"><span class="title">{line(session.title || session.id, 80)}</span>
      {asks ? <Chip tone="ph-approval">waits for you</Chip> : run !== undefined ? <PhaseChip phase={run.phase} stalling={isStalling(run)} /> : <span class="dim"><Ago at={session.updated_at} /></span>}</span>
      <span class="dim under"><span>{session.agent}{session.queued ? `, ${session.queued} queued` : ""}</span>
        <span class="when">{run !== undefined ? <Clock run={run} /> : session.running === null ? <LastEnding session={session.id} /> : null}</span></span>
    </a>
  );
}

/** How the last turn ended, if it did not complete: nobody shall have to open a session to learn that. */
function LastEnding({ session }: { session: string }) {
  let last: RunOut | undefined;
  for (const run of endings.value) {
    if (run.session === session && (last === undefined || (run.ended_at ?? 0) > (last.ended_at ?? 0))) last = run;
  }
  return last?.outcome == null || last.outcome.kind === "completed" ? null : <OutcomeChip kind={last.outcome.kind} />;
}

/** Half of a silence budget is gone: that is when the server warns. A quiet tool may be at work, which only the server sees. */
function isStalling(run: RunOut): boolean {
  const clock = run.clocks.find((one) => one.clock !== "tool" && SILENT.has(one.clock));
  return clock !== undefined && clock.in_s - (now.value - seenAt(run.id)) < clock.budget_s / 2;
}

function Clock({ run }: { run: RunOut }) {
  const silent = run.clocks.find((one) => SILENT.has(one.clock));
  const next = run.clocks[0];
  if (next === undefined) return null;
  const seen = seenAt(run.id);
  const at = seen + next.in_s;
  const silence = silent === undefined ? 0 : now.value - seen + silent.budget_s - silent.in_s;
  return <>{silence > 2 ? `silent for ${span(Math.round(silence))}, ` : ""}<span title={`${next.clock}_s = ${next.budget_s}`}><Until at={at} /> {silence > 2 && silent === next ? "left" : clockWord(next.clock)}</span></>;
}

interface Wanted { search: string; state: string }

async function refresh(wanted: Wanted, whole: boolean): Promise<void> {
  const page = await ask({ ...wanted, limit: PAGE });
  if (page === null) return;
  if (whole) {
    items.value = page.items;
    more.value = page.next;
  } else {
    const fresh = new Set(page.items.map((one) => one.id));
    const last = page.items[page.items.length - 1];
    const rest = page.next === null || last === undefined ? [] : items.value.filter((one) => !fresh.has(one.id));
    items.value = [...page.items, ...rest];
    if (rest.length === 0) more.value = page.next;
  }
  loaded.value = true;
  learnTitles(items.value);
}

/** Sessions that have changed stand as they are now; a new one comes first, where all are shown. */
function merge(fresh: SessionOut[], filtered: boolean): void {
  if (fresh.length === 0) return;
  const by = new Map(fresh.map((one) => [one.id, one]));
  const known = new Set(items.value.map((one) => one.id));
  const added = filtered ? [] : fresh.filter((one) => !known.has(one.id) && one.created_at > (items.value[0]?.created_at ?? 0));
  items.value = [...added, ...items.value.map((one) => by.get(one.id) ?? one)];
  learnTitles(fresh);
}

let asking = false;

async function next(wanted: Wanted): Promise<void> {
  if (asking || more.value === null) return;
  asking = true;
  const page = await ask({ ...wanted, limit: PAGE, before: more.value });
  asking = false;
  if (page === null) return;
  const known = new Set(items.value.map((one) => one.id));
  items.value = [...items.value, ...page.items.filter((one) => !known.has(one.id))];
  more.value = page.next;
  learnTitles(page.items);
}

async function ask(query: Record<string, string | number>) {
  try {
    return await api.sessions(query);
  } catch (why) {
    if (why instanceof Refusal || why instanceof Unreachable) return null;
    throw why;
  }
}
