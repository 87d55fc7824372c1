import { describe, expect, test } from "vitest";
import { News, TEXT_EVERY } from "../src/data/news";
import { Session } from "../src/data/session";
import type { Facts, Kind } from "../src/data/wire";
import { Log } from "./fakes";

describe("what is said aloud", () => {
  test("is nothing of what was there before", () => {
    const { session, add } = setUp();
    add("output.text", { text: "an old answer\n\n" });
    const news = new News();
    expect(news.look(session)).toBe("");
    expect(news.look(session)).toBe("");
  });

  test("is the newest paragraph of a stream, now and then, and no word before it is whole", () => {
    const { session, add } = setUp();
    const news = new News();
    news.look(session);
    const said: string[] = [];
    for (let second = 1; second <= TEXT_EVERY * 3; second++) {
      for (let i = 0; i < 50; i++) add("output.text", { text: `paragraph ${second}.${i}\n\n` });
      add("output.text", { text: "and a beginn" });
      const told = news.look(session);
      if (told !== "") said.push(told);
      add("output.text", { text: "ing\n\n" });
    }
    expect(said.length).toBe(3);
    expect(said[0]).toBe(`paragraph ${TEXT_EVERY}.49`);
    expect(said.join(" ")).not.toMatch(/beginn$/);
  });

  test("is at once what waits for a person, and how it ended, with the last of the answer", () => {
    const { session, add } = setUp();
    const news = new News();
    news.look(session);
    add("approval.requested", { approval: "a1", ref: "x", tool: "delete" });
    expect(news.look(session)).toContain("may it use delete?");
    add("output.text", { text: "Done." });
    add("run.ended", { outcome: { kind: "completed", reason: "end_turn", detail: "", evidence: {}, at: 9 } });
    expect(news.look(session)).toBe("Done. The turn is over: completed.");
    expect(news.look(session)).toBe("");
  });
});

function setUp() {
  const log = new Log();
  const session = new Session(log.session);
  log.begin("r1", "go");
  log.start("r1");
  session.take(log.events);
  const add = <K extends Kind>(kind: K, data: Facts[K]) => session.take([log.add(kind, "r1", data)]);
  return { session, add };
}
