// Typed stand-ins for a browser's socket and clock.

import type { Clock, SocketLike } from "../src/data/link";
import type { Event, Facts, Incoming, Kind, Outgoing } from "../src/data/wire";

export class FakeSocket implements SocketLike {
  onopen: (() => void) | null = null;
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onclose: (() => void) | null = null;
  said: Incoming[] = [];
  closed = false;

  send(data: string): void {
    this.said.push(JSON.parse(data) as Incoming);
  }
  close(): void {
    this.closed = true;
  }
  open(): void {
    this.onopen?.();
  }
  tell(told: Outgoing): void {
    this.onmessage?.({ data: JSON.stringify(told) });
  }
  die(): void {
    this.onclose?.();
  }
  last(): Incoming {
    const found = this.said[this.said.length - 1];
    if (found === undefined) throw new Error("nothing was said");
    return found;
  }
}

export class FakeClock implements Clock {
  private time = 0;
  private timers: { at: number; what: () => void }[] = [];

  now(): number {
    return this.time;
  }
  later(after_ms: number, what: () => void): () => void {
    const timer = { at: this.time + after_ms, what };
    this.timers.push(timer);
    return () => {
      this.timers = this.timers.filter((one) => one !== timer);
    };
  }
  pass(ms: number): void {
    const until = this.time + ms;
    for (;;) {
      const next = this.timers.filter((one) => one.at <= until).sort((a, b) => a.at - b.at)[0];
      if (next === undefined) break;
      this.timers = this.timers.filter((one) => one !== next);
      this.time = next.at;
      next.what();
    }
    this.time = until;
  }
}

export class Log {
  events: Event[] = [];
  constructor(readonly session = "s1") {}

  add<K extends Kind>(kind: K, run: string | null, data: Facts[K], at = this.events.length): Event {
    const event = { seq: this.events.length + 1, session: this.session, run, kind, at, data } as unknown as Event;
    this.events.push(event);
    return event;
  }

  begin(run: string, text: string): void {
    if (this.events.length === 0) this.add("session.created", null, { agent: "demo" });
    this.add("message.accepted", null, { message: `m_${run}`, run, text });
  }

  start(run: string): void {
    this.add("run.started", run, { message: `m_${run}`, limits: { idle_s: 10 } });
    this.add("attempt.started", run, { attempt: 1, process: "p", fresh: true });
    this.add("attempt.ready", run, {});
    this.add("message.delivered", run, { frame: 1 });
  }

  end(run: string, kind: "completed" | "cancelled" | "timed_out" = "completed", reason = "end_turn"): void {
    this.add("run.ended", run, { outcome: { kind, reason, detail: "", evidence: {}, at: 0 } });
  }
}

export const settle = () => new Promise<void>((resolve) => setImmediate(resolve));
declare function setImmediate(what: () => void): void;
