// Streamed text, cut into blocks that never change again once they are closed.
//
// Decides where a block ends: at a blank line outside of a code fence, or where it gets too long. It
// must not know how Markdown is shown. Invariant: the blocks, put together, are the text; one call
// costs as much as the text that is new.

export const BLOCK_CHARS = 6000;

const FENCE = /^ {0,3}(`{3,}|~{3,})(.*)$/;

export interface Block {
  text: string;
  /** The opening line of a fence that this block goes on with. */
  inside: string;
  open: boolean;
}

export class Blocks {
  private last: Block | null = null;
  private scanned = 0;
  private fence = "";

  /** Text that was added: the block that has grown, if one was open, and those that are new. */
  add(text: string): { grown: Block | null; fresh: Block[] } {
    const grown = this.last;
    const fresh: Block[] = [];
    for (let at = 0; at < text.length; ) {
      const block = this.last ?? this.begin(fresh);
      const piece = text.slice(at, at + BLOCK_CHARS - Math.min(block.text.length, BLOCK_CHARS - 1));
      at += piece.length;
      block.text += piece;
      const rest = this.scan(block);
      if (rest !== null) at -= rest;
      else if (block.text.length >= BLOCK_CHARS) this.cut(block);
    }
    return { grown, fresh };
  }

  /** No more text comes to the open block. */
  end(): void {
    if (this.last !== null) this.close(this.last);
    this.fence = "";
  }

  private begin(fresh: Block[]): Block {
    const block = { text: "", inside: this.fence, open: true };
    fresh.push(block);
    this.last = block;
    this.scanned = 0;
    return block;
  }

  /** Look at the lines that are complete now. If the block ends at one of them: how much of its
   * text belongs to the next one. */
  private scan(block: Block): number | null {
    for (;;) {
      const end = block.text.indexOf("\n", this.scanned);
      if (end < 0) return null;
      const line = block.text.slice(this.scanned, end);
      this.scanned = end + 1;
      this.look(line);
      if (line.trim() === "" && this.fence === "" && block.text.slice(0, end).trim() !== "") {
        const rest = block.text.length - this.scanned;
        block.text = block.text.slice(0, this.scanned);
        this.close(block);
        return rest;
      }
    }
  }

  private look(line: string): void {
    const found = FENCE.exec(line);
    if (found === null) return;
    const marks = found[1] ?? "";
    if (this.fence === "") this.fence = line;
    else if (closes(this.fence, marks, found[2] ?? "")) this.fence = "";
  }

  private cut(block: Block): void {
    const code = block.text.charCodeAt(block.text.length - 1);
    if (code >= 0xd800 && code < 0xdc00) return; // half of a sign: the other half comes next
    this.close(block);
  }

  private close(block: Block): void {
    block.open = false;
    this.last = null;
  }
}

function closes(fence: string, marks: string, after: string): boolean {
  const opened = FENCE.exec(fence)?.[1] ?? "";
  return after.trim() === "" && marks[0] === opened[0] && marks.length >= opened.length;
}
