// Words for people: states, causes, times.
//
// Decides how a fact is said. It must not know where it is shown. Invariant: an outcome is said with
// the same word everywhere, the one of the API.

import type { Outcome, OutcomeOut } from "../data/wire";

const CAUSES: Record<string, string> = {
  "completed/end_turn": "The agent finished its turn.",
  "completed/max_tokens": "The agent reached its limit of tokens.",
  "completed/max_turns": "The agent reached its limit of steps.",
  "completed/refused": "The agent declined.",
  "cancelled/stopped": "It was stopped.",
  "cancelled/superseded": "A newer message took its place.",
  "cancelled/preempted": "A person's message went first; this one is back in the queue.",
  "cancelled/parent_ended": "The run that started it ended.",
  "cancelled/shutdown": "The server shut down.",
  "timed_out/startup": "The agent did not get ready in time.",
  "timed_out/write": "The agent did not take the message in time.",
  "timed_out/first_output": "The agent said nothing at all in time.",
  "timed_out/idle": "The agent fell silent for too long.",
  "timed_out/tool": "A tool made no progress and showed no sign of work.",
  "timed_out/deadline": "Its own deadline passed.",
  "timed_out/ceiling": "It reached the operator's ceiling for any run.",
  "timed_out/queue": "It waited in the queue for too long.",
  "failed/agent_error": "The agent itself said that the turn failed.",
  "failed/agent_exited": "The agent's process ended in the middle of the turn.",
  "failed/protocol_error": "The agent broke its protocol.",
  "failed/spawn_failed": "The agent could not be started.",
  "failed/output_limit": "The agent said more than may be kept.",
  "failed/internal": "A mistake of Turnkeeper's own.",
  "lost/server_lost": "The agent is gone, and nobody was there to see how it ended.",
  "lost/node_lost": "Nobody knows how it went on: the machine that had it is gone.",
};

export function cause(outcome: Pick<Outcome | OutcomeOut, "kind" | "reason" | "detail">): string {
  if (outcome.reason === "superseded" && outcome.detail.includes("its words were given to run")) return "Its words went into the running turn.";
  return CAUSES[`${outcome.kind}/${outcome.reason}`] ?? `${outcome.kind}: ${outcome.reason}`;
}

/** The server's words on an ending, without what the cause says already. */
export function detailOf(detail: string): { code: string; rest: string } {
  const found = /^(TK-\d+) [^:]*: (.*)$/s.exec(detail);
  return found === null ? { code: "", rest: detail } : { code: found[1] ?? "", rest: found[2] ?? "" };
}

export const TOO_LONG = "This is too long for one message. Put it into a file, and say where it is.";

const PHASES: Record<string, string> = {
  queued: "waits its turn",
  starting: "starting",
  delivering: "taking the message",
  waiting: "no output yet",
  working: "working",
  tool: "using a tool",
  approval: "waits for you",
  retrying: "trying again",
  draining: "stopping",
  stopping: "stopping",
  sweeping: "cleaning up",
  terminating: "ending its processes",
  killing: "killing its processes",
  cleanup: "cleaning up",
  closed: "over",
};

export function phaseWord(phase: string): string {
  return PHASES[phase] ?? phase;
}

export function outcomeWord(kind: string): string {
  return kind.replace("_", " ");
}

/** A length of time, short: 0.4 s, 12 s, 3 min 5 s, 2 h 10 min. */
export function span(seconds: number): string {
  const s = Math.max(0, seconds);
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 10) return `${s.toFixed(1).replace(/\.0$/, "")} s`;
  if (s < 60) return `${Math.round(s)} s`;
  const whole = Math.round(s);
  if (whole < 3600) return `${Math.floor(whole / 60)} min${whole % 60 ? ` ${whole % 60} s` : ""}`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h${Math.floor((whole % 3600) / 60) ? ` ${Math.floor((whole % 3600) / 60)} min` : ""}`;
  return `${Math.floor(whole / 86400)} d`;
}

/** What is left, as exact as people can use it. */
export function left(seconds: number): string {
  return seconds < 600 ? span(Math.max(1, Math.round(seconds))) : span(Math.round(seconds / 60) * 60);
}

const CLOCKS: Record<string, string> = {
  startup: "to start",
  write: "to take the message",
  first_output: "for a first word",
  idle: "if silent",
  tool: "if the tool is idle",
  approval: "for your answer",
  deadline: "to its deadline",
  ceiling: "to the ceiling",
  queue: "to begin",
};

/** What a clock leaves time for, behind what is left. */
export function clockWord(clock: string): string {
  return CLOCKS[clock] ?? `to ${clock.replace("_", " ")}`;
}

export function ago(at: number, now: number): string {
  const s = now - at;
  return s < 2 ? "now" : s < 60 ? `${Math.round(s)} s ago` : s < 3600 ? `${Math.floor(s / 60)} min ago` : s < 86400 ? `${Math.floor(s / 3600)} h ago` : `${Math.floor(s / 86400)} d ago`;
}

export function clockTime(at: number): string {
  return new Date(at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

/** What a tool is given, readable: one plain value as it is, else as JSON. */
export function readable(input: unknown): string {
  if (typeof input === "string") return input;
  if (input === null || input === undefined) return "";
  if (typeof input === "object" && !Array.isArray(input)) {
    const entries = Object.entries(input as Record<string, unknown>);
    if (entries.length === 1 && typeof entries[0]![1] === "string") return `${entries[0]![0]}: ${entries[0]![1]}`;
  }
  return JSON.stringify(input, null, 2) ?? "";
}
