import { describe, expect, test } from "vitest";
import { ROWS_MAX, Session, type Row } from "../src/data/session";
import { Log } from "./fakes";

function read(log: Log, piece = 1000): Session {
  const session = new Session(log.session);
  for (let at = 0; at < log.events.length; at += piece) session.take(log.events.slice(at, at + piece));
  return session;
}

const shown = (rows: Row[]) => rows.map((row) => (row.kind === "text" ? row.block.text : row.kind));

function turn(): Log {
  const log = new Log();
  log.begin("r1", "hello");
  log.start("r1");
  log.add("output.thinking", "r1", { text: "hm" });
  log.add("output.thinking", "r1", { text: ", yes" });
  log.add("output.text", "r1", { text: "Hel" });
  log.add("output.text", "r1", { text: "lo\n\nthere" });
  log.add("tool.started", "r1", { tool: "t1", name: "shell", input: { command: "ls" } });
  log.add("tool.progress", "r1", { tool: "t1", text: "half" });
  log.add("tool.ended", "r1", { tool: "t1", ok: false, output: "no" });
  log.add("output.text", "r1", { text: "done" });
  log.end("r1");
  return log;
}

describe("a session", () => {
  test.each([1, 2, 5, 100])("is the same however its events were cut (%i)", (piece) => {
    const session = read(turn(), piece);
    expect(shown(session.rows)).toEqual(["message", "thinking", "Hello\n\n", "there", "tool", "done", "ending"]);
  });

  test("takes an event once", () => {
    const log = turn();
    const session = read(log);
    session.take(log.events);
    expect(shown(session.rows)).toEqual(shown(read(log).rows));
  });

  test("tells what a tool did and how long it took", () => {
    const row = read(turn()).rows.find((one) => one.kind === "tool");
    expect(row).toMatchObject({ name: "shell", ok: false, output: "no", progress: "half" });
    expect(row?.kind === "tool" && row.endedAt! - row.at).toBe(2);
  });

  test("shows a message that waits in the queue, and in the conversation when its run begins", () => {
    const log = new Log();
    log.begin("r1", "one");
    log.start("r1");
    log.begin("r2", "two");
    const session = read(log);
    expect(session.queue).toEqual(["r2"]);
    expect(shown(session.rows)).toEqual(["message"]);
    log.end("r1");
    log.start("r2");
    const later = read(log);
    expect(later.queue).toEqual([]);
    expect(later.rows.map((row) => row.run)).toEqual(["r1", "r1", "r2"]);
  });

  test("shows what waits in the server's order, with the words that it has now", () => {
    const log = new Log();
    log.begin("r1", "one");
    log.start("r1");
    for (const run of ["r2", "r3", "r4"]) log.begin(run, run);
    log.add("message.edited", "r3", { message: "m_r3", text: "three" });
    log.add("queue.moved", "r4", { message: "m_r4", before: "r2" });
    log.add("queue.moved", "r2", { message: "m_r2" });
    const session = read(log);
    expect(session.queue).toEqual(["r4", "r3", "r2"]);
    expect(session.runs.get("r3")?.text).toBe("three");
  });

  test("shows words that were given to the running turn there, and as waiting if it did not take them", () => {
    const log = new Log();
    log.begin("r1", "one");
    log.start("r1");
    log.begin("r2", "two");
    log.begin("r3", "three");
    log.add("message.handed_over", "r1", { message: "m_r2", previous: "r2", text: "two" });
    log.end("r2", "cancelled", "superseded");
    const session = read(log);
    expect(session.queue).toEqual(["r3"]);
    expect(session.rows.filter((row) => row.kind === "message").map((row) => [row.run, row.text])).toEqual([["r1", "one"], ["r1", "two"]]);
    log.add("run.requeued", "r2-2", { message: "m_r2", previous: "r1", cause: "not_taken" });
    expect(read(log).queue).toEqual(["r2-2", "r3"]);
    expect(read(log).runs.get("r2-2")?.text).toBe("two");
  });

  test("a message that is cancelled in the queue is told with its ending", () => {
    const log = new Log();
    log.begin("r1", "one");
    log.end("r1", "cancelled", "stopped");
    const session = read(log);
    expect(session.queue).toEqual([]);
    expect(shown(session.rows)).toEqual(["message", "ending"]);
  });

  test("keeps the partial text of a turn that failed, and marks it", () => {
    const log = new Log();
    log.begin("r1", "one");
    log.start("r1");
    log.add("output.text", "r1", { text: "half a" });
    log.end("r1", "timed_out", "idle");
    const session = read(log);
    expect(shown(session.rows)).toEqual(["message", "half a", "ending"]);
    expect(session.rows[2]).toMatchObject({ kind: "ending", partial: true });
  });

  test("what came too late is shown to nobody as an answer", () => {
    const log = turn();
    log.add("late", "r1", { what: "output.text", data: { text: "too late" } });
    const session = read(log);
    expect(shown(session.rows)).not.toContain("too late");
    expect(session.runs.get("r1")?.late).toBe(1);
  });

  test("an approval is open until it is settled", () => {
    const log = new Log();
    log.begin("r1", "one");
    log.start("r1");
    log.add("approval.requested", "r1", { approval: "a1", ref: "q", tool: "delete", input: { path: "x" } });
    expect(read(log).open.map((row) => row.approval)).toEqual(["a1"]);
    log.add("approval.settled", "r1", { approval: "a1", decision: "denied", by: "Ada" });
    const session = read(log);
    expect(session.open).toEqual([]);
    expect(session.approvals.get("a1")?.settled?.by).toBe("Ada");
  });

  test("the answer of an agent that only says it at the end is shown", () => {
    const log = new Log();
    log.begin("r1", "one");
    log.start("r1");
    log.add("run.ended", "r1", { outcome: { kind: "completed", reason: "end_turn", detail: "", evidence: {}, at: 0 }, text: "42" });
    expect(shown(read(log).rows)).toEqual(["message", "42", "ending"]);
  });

  test("a message that is run again is said once", () => {
    const log = new Log();
    log.begin("r1", "one");
    log.start("r1");
    log.end("r1", "cancelled", "preempted");
    log.add("run.requeued", "r2", { message: "m_r1", previous: "r1", cause: "preempted" });
    expect(read(log).queue).toEqual(["r2"]);
    log.start("r2");
    log.end("r2");
    const session = read(log);
    expect(session.rows.filter((row) => row.kind === "message").length).toBe(1);
    expect(session.runs.get("r1")?.next).toBe("r2");
  });

  test("stays small, and counts what it left out", () => {
    const log = new Log();
    log.begin("r1", "one");
    log.start("r1");
    for (let i = 0; i < ROWS_MAX + 500; i++) log.add("output.text", "r1", { text: `line ${i}\n\n` });
    const session = read(log, 100);
    expect(session.rows.length).toBeLessThanOrEqual(ROWS_MAX);
    expect(session.dropped + session.rows.length).toBe(ROWS_MAX + 501);
    expect(session.recent.length).toBeLessThan(1300);
  });
});

describe("the story of a run", () => {
  test("has its phases one after the other, without a hole", () => {
    const story = read(turn()).runs.get("r1")!;
    expect(story.spans.map((span) => span.phase)).toEqual([
      "queued", "starting", "delivering", "waiting", "working", "tool", "working",
    ]);
    for (const [i, span] of story.spans.entries()) {
      expect(span.to).toBe(story.spans[i + 1]?.from ?? story.endedAt);
    }
    expect(story.firstOutputAt).toBe(6);
  });

  test("tells silence, stalling, the stop ladder and the end", () => {
    const log = new Log();
    log.begin("r1", "one");
    log.start("r1");
    log.add("output.text", "r1", { text: "a" }, 10);
    log.add("run.stalling", "r1", { clock: "idle", silent_s: 30, budget_s: 60, diagnosis: "quiet", seen: {} }, 40);
    expect(read(log).runs.get("r1")?.stalling?.clock).toBe("idle");
    log.add("run.stopping", "r1", { outcome: "timed_out", reason: "idle", detail: "", seen: {} }, 70);
    log.add("output.text", "r1", { text: "b" }, 71);
    log.add("attempt.escalated", "r1", { attempt: 1, to: "kill" }, 72);
    log.add("run.ended", "r1", { outcome: { kind: "timed_out", reason: "idle", detail: "", evidence: {}, at: 75 }, cleanup: "kill" }, 75);
    log.add("attempt.ended", "r1", { attempt: 1, how: "gone" }, 76);
    const story = read(log).runs.get("r1")!;
    expect(story.gaps).toContainEqual({ from: 10, to: 71 });
    expect(story.marks.map((mark) => mark.what)).toEqual(["attempt", "stalling", "stopping", "kill", "ended", "gone"]);
    expect(story.spans.slice(-2)).toEqual([
      { phase: "stopping", from: 70, to: 75 }, { phase: "cleanup", from: 75, to: 76 },
    ]);
  });

  test("a stall is over when the agent goes on", () => {
    const log = new Log();
    log.begin("r1", "one");
    log.start("r1");
    log.add("run.stalling", "r1", { clock: "idle", silent_s: 30, budget_s: 60, diagnosis: "quiet", seen: {} }, 40);
    log.add("output.text", "r1", { text: "a" }, 41);
    expect(read(log).runs.get("r1")?.stalling).toBeNull();
  });

  test("keeps a bounded part of what a run does, the longest silences among it", () => {
    const log = new Log();
    log.begin("r1", "one");
    log.start("r1");
    for (let i = 0; i < 5000; i++) log.add("output.text", "r1", { text: "a" }, 10 + i * 2 + (i > 2500 ? 500 : 0));
    const story = read(log).runs.get("r1")!;
    expect(story.gaps.length).toBeLessThanOrEqual(60);
    expect(Math.max(...story.gaps.map((gap) => gap.to! - gap.from))).toBe(502);
  });
});

describe("a session that cannot be watched", () => {
  const problem = { type: "", title: "", status: 404, detail: "not there", code: "TK-502" };

  test("says why, until events come after all", () => {
    const session = new Session("s1");
    session.lose(problem);
    expect(session.problem).toEqual(problem);
    const log = new Log();
    log.begin("r1", "one");
    session.take(log.events);
    expect(session.problem).toBeNull();
  });

  test("is not told of a server that starts or goes", () => {
    const session = new Session("s1");
    session.lose({ ...problem, status: 503 });
    expect(session.problem).toBeNull();
  });
});
