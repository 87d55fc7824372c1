// One session as people see it, made of its events and of nothing else.
//
// Decides what is a row of the conversation and what waits. It must not know how rows are drawn.
// Invariant: the same events give the same rows, however they were cut into frames; an event is
// taken once; what is kept is bounded, and what was left out is counted.

import { Blocks, type Block } from "./blocks";
import { RunStory } from "./run";
import type { ApprovalSettled, Event, MessageAccepted, Outcome, Parent, Problem, RunRequeued } from "./wire";

interface Base { id: number; run: string | null; at: number; rev: number }
export interface MessageRow extends Base {
  kind: "message"; text: string; sender: string; priority: string; steered: boolean;
}
export interface TextRow extends Base { kind: "text"; block: Block }
export interface ThinkingRow extends Base { kind: "thinking"; text: string; cut: number }
export interface ToolRow extends Base {
  kind: "tool"; tool: string; name: string; input: unknown;
  progress: string; output: string; ok: boolean | null; endedAt: number | null;
}
export interface ApprovalRow extends Base {
  kind: "approval"; approval: string; tool: string; input: unknown; what: string;
  expiresAt: number | null; settled: ApprovalSettled | null;
}
export interface EndingRow extends Base { kind: "ending"; outcome: Outcome; partial: boolean }
export interface NoticeRow extends Base { kind: "notice"; tone: "plain" | "warn"; text: string; more: string }
export type Row =
  | MessageRow | TextRow | ThinkingRow | ToolRow | ApprovalRow | EndingRow | NoticeRow;

interface Waiting { text: string; priority: Priority; parent: Parent | null; place: number }
type Priority = NonNullable<MessageAccepted["priority"]>;
const CLASSES: Priority[] = ["person", "agent", "background"];

type Fresh<R> = R extends Row ? Omit<R, "id" | "rev"> : never;

export const ROWS_MAX = 20_000;
const THINKING_CHARS = 6000;
const OUTPUT_CHARS = 20_000;
const EVENTS_MAX = 1000;
const EVENT_CHARS = 2000;

export class Session {
  seq = 0;
  rev = 0;
  agent = "";
  title = "";
  cwd = "";
  rows: Row[] = [];
  /** Rows that were left out at the beginning, so that the page stays small. */
  dropped = 0;
  runs = new Map<string, RunStory>();
  /** Runs that wait, in the order in which they will run. */
  queue: string[] = [];
  approvals = new Map<string, ApprovalRow>();
  /** The last events, as they came. */
  recent: Event[] = [];
  problem: Problem | null = null;
  private ids = 0;
  private current = "";
  private flow: { run: string; blocks: Blocks; rows: Map<Block, TextRow> } | null = null;
  private tools = new Map<string, ToolRow>();
  private said = new Set<string>();
  /** What is known of each message: its words, its class, and its place in the queue. */
  private messages = new Map<string, Waiting>();
  private listeners = new Set<() => void>();

  constructor(readonly id: string) {}

  onChange(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  }

  get running(): RunStory | null {
    const run = this.runs.get(this.current);
    return run?.state === "running" ? run : null;
  }

  get open(): ApprovalRow[] {
    return [...this.approvals.values()].filter((row) => row.settled === null);
  }

  take(events: Event[]): void {
    this.problem = null;
    for (const event of events) {
      if (event.seq !== this.seq + 1) continue;
      this.seq = event.seq;
      this.keep(event);
      this.fold(event);
    }
    this.trim();
    this.changed();
  }

  /** It cannot be watched. A server that starts or goes is none of its problems: the link comes back. */
  lose(problem: Problem): void {
    if (problem.status === 503) return;
    this.problem = problem;
    this.changed();
  }

  private changed(): void {
    this.rev += 1;
    for (const listener of [...this.listeners]) listener();
  }

  private keep(event: Event): void {
    this.recent.push(short(event));
    if (this.recent.length > EVENTS_MAX * 1.2) this.recent = this.recent.slice(-EVENTS_MAX);
  }

  private trim(): void {
    if (this.rows.length <= ROWS_MAX) return;
    const out = this.rows.splice(0, ROWS_MAX / 10);
    this.dropped += out.length;
    for (const row of out) if (row.kind === "tool" && row.endedAt !== null) this.tools.delete(row.tool);
  }

  private fold(event: Event): void {
    const run = event.run;
    if (event.kind === "message.accepted") return this.accepted(event.data, event.at, event.seq);
    if (event.kind === "run.requeued") this.requeued(event.run ?? "", event.data, event.at);
    if (run !== null) this.runs.get(run)?.take(event);
    switch (event.kind) {
      case "session.created":
        this.agent = event.data.agent;
        this.title = event.data.title ?? "";
        this.cwd = event.data.cwd ?? "";
        return;
      case "run.started":
        this.unqueue(run);
        this.current = run ?? "";
        return this.say(run, event.at);
      case "message.edited":
        return this.edited(run ?? "", event.data.message, event.data.text);
      case "queue.moved":
        return this.moved(run ?? "", event.data.before ?? null);
      case "message.handed_over":
        this.said.add(event.data.previous);
        this.add({ kind: "message", run, at: event.at, text: event.data.text, sender: "", priority: "person", steered: true });
        return;
      case "output.text":
        return this.text(run ?? "", event.data.text, event.at);
      case "output.thinking":
        return this.think(run, event.data.text, event.at);
      case "tool.started":
      case "tool.progress":
      case "tool.ended":
        return this.tool(event);
      case "approval.requested":
      case "approval.settled":
        return this.question(event);
      case "run.ended":
        return this.ended(run ?? "", event.data.outcome, event.data.text ?? null, event.at);
      default:
        return this.notice(event);
    }
  }

  private accepted(data: MessageAccepted, at: number, place: number): void {
    const { priority = "person", sender = "", steered = false, parent = null } = data;
    this.messages.set(data.message, { text: data.text, priority, parent, place });
    if (steered) {
      this.add({ kind: "message", run: data.run, at, text: data.text, sender, priority, steered });
      return;
    }
    this.runs.set(data.run, new RunStory(data.run, data.message, data.text, priority, at, parent));
    this.wait(data.run);
  }

  /** A message is back: of a run that gave it back, or one that steered and was not taken. */
  private requeued(run: string, { message, previous, cause }: RunRequeued, at: number): void {
    const known = this.messages.get(message);
    if (known === undefined) return;
    const before = this.runs.get(previous);
    if (before !== undefined && cause !== "not_taken") before.next = run;
    this.runs.set(run, new RunStory(run, message, known.text, known.priority, at, known.parent));
    this.said.add(run);
    this.wait(run);
  }

  private edited(run: string, message: string, text: string): void {
    const known = this.messages.get(message);
    const story = this.runs.get(run);
    if (known !== undefined) known.text = text;
    if (story !== undefined) story.text = text;
  }

  /** The places of a class stay, and those who wait there stand at them in the new order. */
  private moved(run: string, before: string | null): void {
    const priority = this.placeOf(run)?.priority;
    const alike = this.queue.filter((id) => this.placeOf(id)?.priority === priority);
    const places = alike.map((id) => this.placeOf(id)?.place ?? 0);
    alike.splice(alike.indexOf(run), 1);
    alike.splice(before === null ? alike.length : alike.indexOf(before), 0, run);
    alike.forEach((id, at) => Object.assign(this.placeOf(id) ?? {}, { place: places[at] }));
    this.sort();
  }

  private wait(run: string): void {
    this.queue.push(run);
    this.sort();
  }

  private sort(): void {
    const key = (run: string) => {
      const { priority, place } = this.placeOf(run) ?? { priority: "person" as const, place: 0 };
      return CLASSES.indexOf(priority) * 1e12 + place;
    };
    this.queue.sort((a, b) => key(a) - key(b));
  }

  private placeOf(run: string): Waiting | undefined {
    return this.messages.get(this.runs.get(run)?.message ?? "");
  }

  private unqueue(run: string | null): void {
    const at = this.queue.indexOf(run ?? "");
    if (at >= 0) this.queue.splice(at, 1);
  }

  /** The message of a run stands where its run begins, not where it came in. */
  private say(run: string | null, at: number): void {
    const story = this.runs.get(run ?? "");
    if (story === undefined || this.said.has(story.id)) return;
    this.said.add(story.id);
    const { text, priority } = story;
    this.add({ kind: "message", run, at, text, sender: "", priority, steered: false });
  }

  private text(run: string, text: string, at: number): void {
    if (this.flow === null || this.flow.run !== run) {
      this.flow = { run, blocks: new Blocks(), rows: new Map() };
    }
    const { blocks, rows } = this.flow;
    const { grown, fresh } = blocks.add(text);
    const row = grown === null ? undefined : rows.get(grown);
    if (row !== undefined) row.rev += 1;
    if (grown !== null && !grown.open) rows.delete(grown);
    for (const block of fresh) {
      const made = this.add({ kind: "text", run, at, block }) as TextRow;
      if (block.open) rows.set(block, made);
    }
  }

  private think(run: string | null, text: string, at: number): void {
    const last = this.rows[this.rows.length - 1];
    if (last !== undefined && last.kind === "thinking" && last.run === run) {
      const room = THINKING_CHARS - last.text.length;
      last.text += text.slice(0, Math.max(0, room));
      last.cut += Math.max(0, text.length - Math.max(0, room));
      last.rev += 1;
      return;
    }
    this.add({ kind: "thinking", run, at, text: text.slice(0, THINKING_CHARS), cut: Math.max(0, text.length - THINKING_CHARS) });
  }

  private tool(event: Extract<Event, { kind: "tool.started" | "tool.progress" | "tool.ended" }>): void {
    const { at, run } = event;
    if (event.kind === "tool.started") {
      const { tool, name, input = null } = event.data;
      const row = this.add({ kind: "tool", run, at, tool, name, input, progress: "", output: "", ok: null, endedAt: null });
      this.tools.set(tool, row as ToolRow);
      return;
    }
    const row = this.tools.get(event.data.tool);
    if (row === undefined) return;
    row.rev += 1;
    if (event.kind === "tool.progress") {
      const said = event.data.text ?? "";
      row.progress = (row.progress + (row.progress && said ? "\n" : "") + said).slice(-OUTPUT_CHARS);
    } else {
      row.ok = event.data.ok ?? true;
      row.output = (event.data.output ?? "").slice(0, OUTPUT_CHARS);
      row.endedAt = at;
    }
  }

  private question(event: Extract<Event, { kind: "approval.requested" | "approval.settled" }>): void {
    if (event.kind === "approval.requested") {
      const { approval, tool, input = null, what = "tool", expires_at = null } = event.data;
      const row = this.add({ kind: "approval", run: event.run, at: event.at, approval, tool, input, what, expiresAt: expires_at, settled: null });
      this.approvals.set(approval, row as ApprovalRow);
      return;
    }
    const row = this.approvals.get(event.data.approval);
    if (row === undefined) return;
    row.settled = event.data;
    row.rev += 1;
  }

  private ended(run: string, outcome: Outcome, text: string | null, at: number): void {
    this.unqueue(run);
    this.say(run, at);
    const streamed = this.flow?.run === run;
    if (text !== null && !streamed) this.text(run, text, at);
    this.flow?.blocks.end();
    this.flow = null;
    for (const tool of this.tools.values()) {
      if (tool.run === run && tool.endedAt === null) Object.assign(tool, { endedAt: at, rev: tool.rev + 1 });
    }
    const partial = outcome.kind !== "completed" && streamed;
    this.add({ kind: "ending", run, at, outcome, partial });
  }

  private notice(event: Event): void {
    const told = noticeOf(event);
    if (told !== null) {
      this.add({ kind: "notice", run: event.run, at: event.at, ...told });
    }
  }

  private add(row: Fresh<Row>): Row {
    if (row.kind !== "text") this.flow?.blocks.end();
    const made = { ...row, id: ++this.ids, rev: 0 } as Row;
    this.rows.push(made);
    return made;
  }
}

function noticeOf(event: Event): Pick<NoticeRow, "tone" | "text" | "more"> | null {
  switch (event.kind) {
    case "run.stalling":
      return { tone: "warn", text: `It may hang: ${event.data.diagnosis}`, more: "" };
    case "run.stopping":
      return { tone: "plain", text: `Decided: ${event.data.outcome.replace("_", " ")}, ${event.data.reason.replaceAll("_", " ")}`, more: "" };
    case "attempt.failed":
      return { tone: "warn", text: `Attempt ${event.data.attempt} failed before any progress`, more: event.data.detail ?? event.data.reason };
    case "attempt.escalated":
      return { tone: "warn", text: "It did not go when it was asked: it is killed", more: "" };
    case "run.requeued":
      return { tone: "plain", text: "The message is back in the queue", more: event.data.cause };
    case "session.rule_added":
      return { tone: "plain", text: `From now on ${event.data.rule} is allowed here`, more: event.data.by ? `by ${event.data.by}` : "" };
    case "session.context_lost":
      return { tone: "warn", text: "The agent began a fresh conversation: it does not know what was said before", more: "" };
    case "child.started":
      return { tone: "plain", text: `Started ${event.data.child} in ${event.data.session}`, more: "" };
    case "child.ended":
      return { tone: "plain", text: `${event.data.child} ended: ${event.data.outcome}`, more: event.data.reason };
    default:
      return null;
  }
}

/** An event with its long texts cut, to be looked at. */
function short(event: Event): Event {
  const data: Record<string, unknown> = { ...event.data };
  for (const [name, value] of Object.entries(data)) {
    if (typeof value === "string" && value.length > EVENT_CHARS) {
      data[name] = `${value.slice(0, EVENT_CHARS)}… (${value.length} characters)`;
    }
  }
  return { ...event, data } as unknown as Event;
}
