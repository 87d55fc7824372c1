// What a person has chosen for this browser: colours, notifications, which endings were seen.
//
// Decides what is remembered here. It must not know sessions' contents. Invariant: nothing secret is
// kept, and everything works where nothing can be kept.

import { effect, signal } from "@preact/signals";
import { endings, questions } from "./keeper";

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
/** Endings up to here were seen. */
export const seenUntil = signal(Number(kept("seen") ?? Date.now() / 1000));

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

export function beginSettings(): void {
  effect(() => {
    const root = document.documentElement;
    if (theme.value === "system") delete root.dataset.theme;
    else root.dataset.theme = theme.value;
  });
  let known = new Set<string>();
  effect(() => {
    const open = questions.value;
    const fresh = open.filter((one) => !known.has(one.id));
    known = new Set(open.map((one) => one.id));
    if (notifies.value && document.hidden) {
      for (const one of fresh) new Notification(`Turnkeeper: ${one.tool}?`, { body: `Session ${one.session} waits for you`, tag: one.id });
    }
  });
}
