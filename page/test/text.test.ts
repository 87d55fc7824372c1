import { describe, expect, test } from "vitest";
import { BLOCK_CHARS, Blocks, type Block } from "../src/data/blocks";
import { inert, line, safeLink } from "../src/data/safe";

function blocksOf(text: string, piece: number): Block[] {
  const blocks = new Blocks();
  const found: Block[] = [];
  for (let at = 0; at < text.length; at += piece) found.push(...blocks.add(text.slice(at, at + piece)).fresh);
  return found;
}

const TEXT = "# Title\n\nSome *words*\nand more.\n\n```js\nlet a;\n\nlet b;\n```\n\n- one\n- two\n\nlast";

describe("blocks of streamed text", () => {
  test.each([1, 2, 3, 7, 50, 1000])("are the same however the text was cut (%i)", (piece) => {
    expect(blocksOf(TEXT, piece).map((block) => block.text)).toEqual([
      "# Title\n\n", "Some *words*\nand more.\n\n", "```js\nlet a;\n\nlet b;\n```\n\n", "- one\n- two\n\n", "last",
    ]);
  });

  test("put together are the text, however long a line is", () => {
    const text = "x".repeat(BLOCK_CHARS * 3 + 5) + "\n\n" + "y".repeat(10);
    const found = blocksOf(text, 997);
    expect(found.map((block) => block.text).join("")).toBe(text);
    expect(Math.max(...found.map((block) => block.text.length))).toBeLessThanOrEqual(BLOCK_CHARS + 1);
  });

  test("a long piece of code goes on as code", () => {
    const text = "```py\n" + "print(1)\n".repeat(1500) + "```\nafter\n\n";
    const found = blocksOf(text, 500);
    expect(found.length).toBeGreaterThan(1);
    expect(found.map((block) => block.inside)).toEqual(["", ...found.slice(1).map(() => "```py")]);
    expect(found.map((block) => block.text).join("")).toBe(text);
  });

  test("do not cut a sign into halves", () => {
    const text = "😀".repeat(BLOCK_CHARS);
    for (const block of blocksOf(text, 333)) expect(block.text.isWellFormed()).toBe(true);
  });

  test("cost as much as the text is long", () => {
    const began = performance.now();
    blocksOf("word ".repeat(1_000_000), 50);
    expect(performance.now() - began).toBeLessThan(5000);
  });
});

describe("agents' text", () => {
  test("has no terminal sequences and no control signs", () => {
    expect(inert("a\u001b[31mred\u001b[0m b\u001b]0;title\u0007c\u0000d\u0008e")).toBe("ared bc␀d␈e");
  });

  test("shows what would turn its direction", () => {
    expect(inert("abc\u202edef\u2066")).toBe("abc⟨U+202E⟩def⟨U+2066⟩");
  });

  test("keeps people's letters, tabs and lines", () => {
    expect(inert("שלום\tπ\r\n漢字 😀\n")).toBe("שלום\tπ\n漢字 😀\n");
  });

  test("an unended sequence costs no time", () => {
    const began = performance.now();
    inert("\u001b]".repeat(200_000));
    expect(performance.now() - began).toBeLessThan(3000);
  });

  test("is one short line in a list", () => {
    expect(line("a\n\n b\u001b[1m", 10)).toBe("a b");
    expect(line("x".repeat(50), 10)).toBe(`${"x".repeat(9)}…`);
  });

  test("links lead to the web or nowhere", () => {
    expect(safeLink("https://example.com/a")).toBe("https://example.com/a");
    for (const bad of ["javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "/v1/runs", " vbscript:x"]) {
      expect(safeLink(bad)).toBeNull();
    }
  });
});
