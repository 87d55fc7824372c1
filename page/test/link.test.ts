import { describe, expect, test } from "vitest";
import { Link, Lost, Refusal } from "../src/data/link";
import type { Event, Problem } from "../src/data/wire";
import { FakeClock, FakeSocket, Log, settle } from "./fakes";

function setUp(probe?: () => Promise<"refused" | "down">) {
  const clock = new FakeClock();
  const sockets: FakeSocket[] = [];
  const open = () => {
    const socket = new FakeSocket();
    sockets.push(socket);
    return socket;
  };
  const link = new Link({ open, clock, random: () => 1, ...(probe ? { probe } : {}) });
  link.connect();
  return { clock, sockets, link, newest: () => sockets[sockets.length - 1]! };
}

class Kept {
  seq = 0;
  events: Event[] = [];
  take(events: Event[]): void {
    this.events.push(...events);
    this.seq = events[events.length - 1]!.seq;
  }
}

function log(count: number): Event[] {
  const made = new Log();
  made.add("session.created", null, { agent: "demo" });
  while (made.events.length < count) made.add("output.text", "r1", { text: "x" });
  return made.events;
}

const problem: Problem = { type: "", title: "no", status: 404, detail: "not there", code: "TK-501" };

describe("the link", () => {
  test("asks which sessions change whenever it opens, and says when anything may have", () => {
    const { link, newest, clock } = setUp();
    const told: [number, boolean][] = [];
    link.onSessions = ({ items, everything }) => told.push([items.length, everything]);
    newest().open();
    expect(newest().last()).toEqual({ type: "watch_sessions", id: "sessions" });
    newest().tell({ type: "sessions", items: [], runs: [], everything: false, id: "sessions" });
    newest().tell({ type: "sessions", items: [], runs: [], everything: false, id: null });
    expect(told).toEqual([[0, true], [0, false]]);
    newest().die();
    clock.pass(10_000);
    newest().open();
    expect(newest().last()).toMatchObject({ type: "watch_sessions" });
  });

  test("subscribes with the cursor when it opens", () => {
    const { link, newest } = setUp();
    link.watch("s1", new Kept());
    expect(newest().said).toEqual([]);
    newest().open();
    expect(newest().last()).toMatchObject({ type: "subscribe", session: "s1", after: 0 });
  });

  test("goes on from the cursor after the connection was lost, and shows nothing twice", () => {
    const { clock, link, newest } = setUp();
    const kept = new Kept();
    link.watch("s1", kept);
    newest().open();
    const events = log(5);
    newest().tell({ type: "events", session: "s1", events: events.slice(0, 3) });
    newest().die();
    expect(link.state).toBe("waiting");
    clock.pass(1000);
    newest().open();
    expect(newest().last()).toMatchObject({ type: "subscribe", after: 3 });
    newest().tell({ type: "events", session: "s1", events: events.slice(1) });
    expect(kept.events.map((event) => event.seq)).toEqual([1, 2, 3, 4, 5]);
  });

  test("asks again from the cursor when an event is missing, and gives none after the gap", () => {
    const { link, newest } = setUp();
    const kept = new Kept();
    link.watch("s1", kept);
    newest().open();
    const events = log(5);
    newest().tell({ type: "events", session: "s1", events: events.slice(0, 2) });
    newest().tell({ type: "events", session: "s1", events: events.slice(3) });
    expect(kept.seq).toBe(2);
    expect(newest().last()).toMatchObject({ type: "subscribe", after: 2 });
  });

  test("waits longer each time it fails, up to a bound", () => {
    const { clock, link, sockets, newest } = setUp();
    const waits: number[] = [];
    for (let i = 0; i < 9; i++) {
      newest().die();
      waits.push(link.retryAt - clock.now());
      clock.pass(link.retryAt - clock.now());
    }
    expect(waits).toEqual([250, 500, 1000, 2000, 4000, 8000, 10000, 10000, 10000]);
    expect(sockets.length).toBe(10);
  });

  test("lets go of a peer that does not answer a ping", () => {
    const { clock, link, newest } = setUp();
    newest().open();
    clock.pass(10_000);
    const socket = newest();
    expect(socket.last()).toEqual({ type: "ping" });
    clock.pass(6_000);
    expect(socket.closed).toBe(true);
    expect(link.state).not.toBe("open");
  });

  test("keeps a peer that answers its pings", () => {
    const { clock, link, newest } = setUp();
    newest().open();
    const socket = newest();
    for (let second = 0, answered = 0; second < 60; second++) {
      clock.pass(1000);
      for (; answered < socket.said.filter((one) => one.type === "ping").length; answered++) {
        socket.tell({ type: "pong", id: null });
      }
    }
    expect(socket.said.filter((one) => one.type === "ping").length).toBeGreaterThan(2);
    expect(socket.closed).toBe(false);
    expect(link.state).toBe("open");
  });

  test("answers every command, refuses some, and loses what was under way when it breaks", async () => {
    const { link, newest } = setUp();
    newest().open();
    const stop = () => link.ask({ type: "stop", run: "r1" });
    const id = () => (newest().last() as { id: string }).id;
    const good = stop();
    newest().tell({ type: "reply", id: id(), answer: { run: "r1" } });
    await expect(good).resolves.toEqual({ run: "r1" });
    const bad = stop();
    newest().tell({ type: "error", id: id(), problem });
    await expect(bad).rejects.toBeInstanceOf(Refusal);
    const lost = stop();
    newest().die();
    await expect(lost).rejects.toBeInstanceOf(Lost);
    await expect(stop()).rejects.toBeInstanceOf(Lost);
  });

  test("tells a watcher why its session cannot be watched", () => {
    const { link, newest } = setUp();
    const told: Problem[] = [];
    link.watch("s1", { seq: 0, take() {}, lose: (why) => told.push(why) });
    newest().open();
    const { id } = newest().last() as { id: string };
    newest().tell({ type: "error", id, problem });
    expect(told).toEqual([problem]);
  });

  test("does not knock again with a token that is refused, until somebody asks it to", async () => {
    const { clock, link, sockets, newest } = setUp(async () => "refused");
    newest().die();
    await settle();
    expect(link.state).toBe("refused");
    clock.pass(60_000);
    expect(sockets.length).toBe(1);
    link.hurry();
    expect(sockets.length).toBe(2);
  });

  test("an old socket that wakes up late changes nothing", () => {
    const { clock, link, sockets, newest } = setUp();
    const kept = new Kept();
    link.watch("s1", kept);
    newest().open();
    newest().die();
    clock.pass(1000);
    newest().open();
    sockets[0]!.tell({ type: "events", session: "s1", events: log(1) });
    sockets[0]!.die();
    expect(kept.seq).toBe(0);
    expect(link.state).toBe("open");
  });
});
