// The story of one run, told by its events: phases, silence, tools, attempts, the stop ladder, the end.
//
// Decides what a run's timeline consists of. It must not know how it is drawn. Invariant: what is kept
// of a run is bounded, however much it says.

import type { Event, Outcome, RunStalling, RunStopping } from "./wire";

export type Phase =
  | "queued" | "starting" | "delivering" | "waiting" | "working" | "tool" | "approval"
  | "retrying" | "stopping" | "cleanup" | "closed";

export interface Span { phase: Phase; from: number; to: number | null }
export interface Gap { from: number; to: number | null }
export interface ToolUse {
  id: string; name: string; from: number; to: number | null; ok: boolean | null;
}
export interface Mark { at: number; what: string; told: string; grave: boolean }
export interface Asked { id: string; tool: string; from: number; to: number | null; decision: string }

const SPANS_MAX = 1000;
const GAPS_MAX = 60;
const TOOLS_MAX = 300;
const MARKS_MAX = 200;
const GAP_S = 1;

const PROGRESS = new Set([
  "message.delivered", "output.text", "output.thinking", "tool.started", "tool.progress", "tool.ended",
]);

export class RunStory {
  state: "queued" | "running" | "ended" = "queued";
  phase: Phase = "queued";
  spans: Span[] = [];
  gaps: Gap[] = [];
  tools: ToolUse[] = [];
  asked: Asked[] = [];
  marks: Mark[] = [];
  children: { run: string; session: string; outcome: string | null }[] = [];
  limits: Record<string, number> = {};
  startedAt: number | null = null;
  endedAt: number | null = null;
  firstOutputAt: number | null = null;
  progressAt: number | null = null;
  attempts = 0;
  late = 0;
  stalling: RunStalling | null = null;
  stopping: (RunStopping & { at: number }) | null = null;
  outcome: Outcome | null = null;
  /** What it is called after it was given back to the queue. */
  next: string | null = null;

  constructor(
    readonly id: string,
    readonly message: string,
    public text: string,
    readonly priority: string,
    readonly acceptedAt: number,
    readonly parent: { session: string; run: string } | null,
  ) {
    this.spans.push({ phase: "queued", from: acceptedAt, to: null });
  }

  get lastAt(): number {
    const last = this.spans[this.spans.length - 1];
    return this.endedAt ?? last?.from ?? this.acceptedAt;
  }

  take(event: Event): void {
    const { at } = event;
    if (PROGRESS.has(event.kind) && this.state === "running") this.progress(at);
    switch (event.kind) {
      case "run.started":
        this.state = "running";
        this.startedAt = at;
        this.limits = event.data.limits;
        return this.enter("starting", at);
      case "attempt.started":
        this.attempts = event.data.attempt;
        this.mark(at, "attempt", `attempt ${event.data.attempt}${event.data.fresh ? ", a new process" : ""}`);
        return this.enter("starting", at);
      case "attempt.ready":
        return this.enter("delivering", at);
      case "attempt.failed":
        this.mark(at, "attempt", `attempt ${event.data.attempt} failed: ${event.data.reason}`, true);
        return this.enter("retrying", at);
      case "attempt.escalated":
        return this.mark(at, "kill", "it did not go when it was asked: killed", true);
      case "attempt.ended":
        this.mark(at, "gone", event.data.how === "gone" ? "nothing of its processes is left" : "the agent is free again");
        return this.enter("closed", at);
      case "message.delivered":
        return this.enter("waiting", at);
      case "output.text":
      case "output.thinking":
        this.firstOutputAt ??= at;
        return this.enter(this.atWork(), at);
      case "tool.started":
        this.firstOutputAt ??= at;
        if (this.tools.length < TOOLS_MAX) {
          const { tool, name } = event.data;
          this.tools.push({ id: tool, name, from: at, to: null, ok: null });
        }
        return this.enter("tool", at);
      case "tool.ended": {
        const tool = this.tools.findLast((one) => one.id === event.data.tool && one.to === null);
        if (tool !== undefined) Object.assign(tool, { to: at, ok: event.data.ok ?? true });
        return this.enter(this.atWork(), at);
      }
      case "approval.requested":
        this.asked.push({ id: event.data.approval, tool: event.data.tool, from: at, to: null, decision: "" });
        return this.enter("approval", at);
      case "approval.settled": {
        const asked = this.asked.find((one) => one.id === event.data.approval);
        if (asked !== undefined) Object.assign(asked, { to: at, decision: event.data.decision });
        this.progressAt = at;
        return this.enter(this.atWork(), at);
      }
      case "run.stalling":
        this.stalling = event.data;
        return this.mark(at, "stalling", `silent for ${round(event.data.silent_s)} s of ${round(event.data.budget_s)} s (${event.data.clock})`, true);
      case "run.stopping":
        this.stopping = { ...event.data, at };
        this.mark(at, "stopping", `decided: ${event.data.outcome}, ${event.data.reason}`, event.data.outcome !== "completed");
        return this.enter("stopping", at);
      case "run.ended":
        return this.ended(at, event.data.outcome, event.data.cleanup ?? "none");
      case "run.requeued":
        return this.mark(at, "requeued", `back in the queue: ${event.data.cause}`);
      case "child.started":
        this.children.push({ run: event.data.child, session: event.data.session, outcome: null });
        return this.mark(at, "child", `started ${event.data.child}`);
      case "child.ended": {
        const child = this.children.find((one) => one.run === event.data.child);
        if (child !== undefined) child.outcome = event.data.outcome;
        return this.mark(at, "child", `${event.data.child} ended: ${event.data.outcome}`);
      }
      case "late":
        this.late += 1;
        return;
      default:
        return;
    }
  }

  private ended(at: number, outcome: Outcome, cleanup: string): void {
    this.state = "ended";
    this.outcome = outcome;
    this.endedAt = at;
    this.stalling = null;
    this.closeGap(at);
    for (const tool of this.tools) tool.to ??= at;
    for (const asked of this.asked) asked.to ??= at;
    this.mark(at, "ended", `${outcome.kind}: ${outcome.reason}`, outcome.kind !== "completed");
    this.enter(cleanup === "none" ? "closed" : "cleanup", at);
  }

  private atWork(): Phase {
    if (this.asked.some((one) => one.to === null)) return "approval";
    return this.tools.some((one) => one.to === null) ? "tool" : "working";
  }

  private enter(phase: Phase, at: number): void {
    if (this.stopping !== null && this.state === "running" && phase !== "stopping") return;
    if (this.state === "ended" && phase !== "cleanup" && phase !== "closed") return;
    if (phase === this.phase) return;
    this.phase = phase;
    const last = this.spans[this.spans.length - 1];
    if (last !== undefined) last.to = at;
    if (phase !== "closed" && this.spans.length < SPANS_MAX) this.spans.push({ phase, from: at, to: null });
  }

  private progress(at: number): void {
    this.closeGap(at);
    this.progressAt = at;
    this.stalling = null;
  }

  private closeGap(at: number): void {
    const from = this.progressAt;
    if (from === null || at - from < GAP_S) return;
    this.gaps.push({ from, to: at });
    if (this.gaps.length <= GAPS_MAX) return;
    const length = (gap: Gap) => (gap.to ?? gap.from) - gap.from;
    const shortest = this.gaps.reduce((a, b) => (length(b) < length(a) ? b : a));
    this.gaps.splice(this.gaps.indexOf(shortest), 1);
  }

  private mark(at: number, what: string, told: string, grave = false): void {
    if (this.marks.length < MARKS_MAX || what === "ended") this.marks.push({ at, what, told, grave });
  }
}

function round(seconds: number): string {
  return seconds < 10 ? seconds.toFixed(1).replace(/\.0$/, "") : seconds.toFixed(0);
}
