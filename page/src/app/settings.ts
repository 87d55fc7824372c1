// What a person has chosen for this browser: colours, notifications, which endings were seen.
//
// Decides what is remembered here. It must not know sessions' contents. Invariant: nothing secret is
// kept, and everything works where nothing can be kept.

import { effect, signal } from "@preact/signals";
import { line } from "../data/safe";
import type { ApprovalOut, RunOut } from "../data/wire";
import { endings, questions, titleOf } from "./keeper";
import { go, to } from "./route";

const CALLS_AT_ONCE = 3;

export type Theme = "system" | "light" | "dark";

function kept(key: string): string | null {
  try {
    return localStorage.getItem(`turnkeeper.${key}`);
  } catch {
    return null;
  }
}

function keep(key: string, value: string): void {
  try {
    localStorage.setItem(`turnkeeper.${key}`, value);
  } catch {
    // It is forgotten with this page, which harms nobody.
  }
}

export const theme = signal<Theme>((kept("theme") as Theme | null) ?? "system");
export const notifies = signal(kept("notifies") === "yes");
/** Endings up to here were seen: those before the first visit, and then what was marked. A reload marks nothing. */
export const seenUntil = signal(Number(kept("seen") ?? Date.now() / 1000));
keep("seen", String(seenUntil.value));

export function chooseTheme(next: Theme): void {
  theme.value = next;
  keep("theme", next);
}

export function markSeen(): void {
  seenUntil.value = Date.now() / 1000;
  keep("seen", String(seenUntil.value));
}

export function unseen() {
  return endings.value.filter((run) => (run.ended_at ?? 0) > seenUntil.value && run.outcome?.kind !== "completed");
}

export async function askToNotify(): Promise<void> {
  if (!("Notification" in window)) return;
  notifies.value = (await Notification.requestPermission()) === "granted";
  keep("notifies", notifies.value ? "yes" : "no");
}

interface Call { tag: string; title: string; body: string; where: string }

function asked(one: ApprovalOut): Call {
  return { tag: one.id, title: `May it use ${line(one.tool, 60)}?`, body: `${titleOf(one.session)} waits for you`, where: to.session(one.session) };
}

function ended(run: RunOut): Call {
  return { tag: run.id, title: `${titleOf(run.session)}: ${run.outcome?.kind.replace("_", " ")}`, body: line(run.text, 100), where: to.run(run.session, run.id) };
}

function call({ tag, title, body, where }: Call): void {
  const shown = new Notification(`Turnkeeper: ${title}`, { body, tag });
  shown.onclick = () => {
    window.focus();
    go(where);
    shown.close();
  };
}

export function beginSettings(): void {
  effect(() => {
    const root = document.documentElement;
    if (theme.value === "system") delete root.dataset.theme;
    else root.dataset.theme = theme.value;
  });
  effect(() => {
    const waiting = questions.value.length + unseen().length;
    document.title = waiting ? `(${waiting}) Turnkeeper` : "Turnkeeper";
  });
  let known = new Set<string>();
  effect(() => {
    const waiting = [...questions.value.map(asked), ...unseen().map(ended)];
    const fresh = waiting.filter((one) => !known.has(one.tag));
    known = new Set(waiting.map((one) => one.tag));
    if (notifies.value && document.hidden) for (const one of fresh.slice(0, CALLS_AT_ONCE)) call(one);
  });
}
