import { describe, expect, test } from "vitest";
import { Lost, Refusal } from "../src/data/link";
import { LETTER_BYTES, MOST, Outbox, type Letter } from "../src/data/outbox";
import type { AcceptedOut } from "../src/data/wire";
import { settle } from "./fakes";

class Post {
  isOpen = true;
  sent: Letter[] = [];
  waiting: { letter: Letter; ok(): void; fail(why: Error): void }[] = [];

  send(letter: Letter): Promise<AcceptedOut> {
    this.sent.push({ ...letter });
    return new Promise((resolve, reject) => {
      const ok = () => resolve({ message_id: "m", run_id: "r", seq: 1, position: 0, duplicate: false });
      this.waiting.push({ letter, ok, fail: reject });
    });
  }
}

function setUp(stored: string | null = null) {
  const post = new Post();
  const shelf = { text: stored, read: () => shelf.text, write: (text: string) => void (shelf.text = text) };
  let keys = 0;
  const make = () => new Outbox(post, shelf, () => `k${++keys}`);
  return { post, shelf, make, box: make() };
}

const full = { type: "", title: "", status: 429, detail: "the queue is full", code: "TK-506" };

describe("the outbox", () => {
  test("lets a message go when it is accepted, and not before", async () => {
    const { post, box } = setUp();
    box.put("s", { text: "one" }, 1);
    expect(box.letters.map((one) => one.state)).toEqual(["sending"]);
    post.waiting[0]!.ok();
    await settle();
    expect(box.letters).toEqual([]);
  });

  test("keeps a message whose fate nobody knows, and sends it again with the same key", async () => {
    const { post, box } = setUp();
    box.put("s", { text: "one" }, 1);
    post.isOpen = false;
    post.waiting[0]!.fail(new Lost("gone"));
    await settle();
    expect(box.letters[0]).toMatchObject({ state: "waiting", key: "k1" });
    post.isOpen = true;
    box.flush();
    expect(post.sent.map((one) => one.key)).toEqual(["k1", "k1"]);
  });

  test("sends nothing without a connection, and shows what waits", () => {
    const { post, box } = setUp();
    post.isOpen = false;
    box.put("s", { text: "one" }, 1);
    expect(post.sent).toEqual([]);
    expect(box.of("s").map((one) => one.message.text)).toEqual(["one"]);
  });

  test("sends the messages of one session in their order, others meanwhile", async () => {
    const { post, box } = setUp();
    box.put("s", { text: "one" }, 1);
    box.put("s", { text: "two" }, 2);
    box.put("t", { text: "three" }, 3);
    expect(post.sent.map((one) => one.message.text)).toEqual(["one", "three"]);
    post.waiting[0]!.ok();
    await settle();
    expect(post.sent.map((one) => one.message.text)).toEqual(["one", "three", "two"]);
  });

  test("leaves a refused message to a person, who sends it again or discards it", async () => {
    const { post, box } = setUp();
    box.put("s", { text: "one" }, 1);
    post.waiting[0]!.fail(new Refusal(full));
    await settle();
    expect(box.letters[0]).toMatchObject({ state: "refused", problem: full });
    box.flush();
    expect(post.sent.length).toBe(1);
    box.resend("k1");
    expect(post.sent.length).toBe(2);
    post.waiting[1]!.fail(new Refusal(full));
    await settle();
    box.discard("k1");
    expect(box.letters).toEqual([]);
  });

  test("a server that shuts down is not a refusal: the next one takes it", async () => {
    const { post, box } = setUp();
    box.put("s", { text: "one" }, 1);
    post.waiting[0]!.fail(new Refusal({ ...full, status: 503 }));
    await settle();
    expect(box.letters[0]!.state).toBe("waiting");
  });

  test("has what it had after a reload", () => {
    const first = setUp();
    first.post.isOpen = false;
    first.box.put("s", { text: "one" }, 1);
    const again = setUp(first.shelf.text);
    expect(again.box.letters).toMatchObject([{ key: "k1", state: "waiting", message: { text: "one" } }]);
  });

  test("what cannot be read is no outbox", () => {
    expect(setUp("{not json").box.letters).toEqual([]);
  });

  test("refuses to the caller what it has no room for", () => {
    const { post, box } = setUp();
    post.isOpen = false;
    for (let i = 0; i < MOST; i++) expect(box.put("s", { text: "x" }, i)).toBe(true);
    expect(box.put("s", { text: "x" }, 0)).toBe(false);
    expect(box.letters.length).toBe(MOST);
  });

  test("takes nothing that no server would take in one piece", () => {
    const { post, box } = setUp();
    expect(box.put("s", { text: "é".repeat(LETTER_BYTES / 2) }, 1)).toBe(false);
    expect(box.letters).toEqual([]);
    expect(post.sent).toEqual([]);
  });

  test("works where nothing can be kept", () => {
    const { post, shelf, box } = setUp();
    shelf.write = () => { throw new Error("full"); };
    expect(box.put("s", { text: "one" }, 1)).toBe(true);
    expect(post.sent.length).toBe(1);
  });
});
