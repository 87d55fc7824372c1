// What somebody who listens is told of a session: little, and in time.
//
// Decides what is said aloud, and how often. It must not know how it is said. Invariant: however fast
// an agent writes, so much is said at the most; what waits for a person is said at once.

import type { Row, Session } from "./session";
import { inert, line } from "./safe";

export const TEXT_EVERY = 6;
const TEXT_CHARS = 300;

export class News {
  private seen = 0;
  private began = false;
  private looks = 0;
  private text = "";

  /** What is new since the last look; looks come once a second. What was there at the first is not. */
  look(session: Session): string {
    const fresh = this.fresh(session.rows);
    if (!this.began) {
      this.began = session.seq > 0;
      return "";
    }
    this.looks += 1;
    const now: string[] = [];
    for (const row of fresh) {
      if (row.kind === "text") this.text = row.block.text;
      else now.push(...told(row));
    }
    const isOver = fresh.some((row) => row.kind === "ending");
    if (this.text !== "" && (isOver || this.looks >= TEXT_EVERY)) {
      now.unshift(line(this.text, TEXT_CHARS));
      this.text = "";
      this.looks = 0;
    }
    return now.join(" ");
  }

  /** Rows that are new and do not change any more, up to the first that may. */
  private fresh(rows: Row[]): Row[] {
    let from = rows.length;
    while (from > 0 && rows[from - 1]!.id > this.seen) from -= 1;
    const found: Row[] = [];
    for (const row of rows.slice(from)) {
      if (row.kind === "text" && row.block.open) break;
      found.push(row);
      this.seen = row.id;
    }
    return found;
  }
}

function told(row: Row): string[] {
  switch (row.kind) {
    case "approval":
      return row.settled === null ? [`The agent asks: may it use ${inert(row.tool)}? A allows, D denies.`] : [];
    case "ending":
      return [`The turn is over: ${row.outcome.kind.replace("_", " ")}.`];
    case "notice":
      return row.tone === "warn" ? [line(row.text, TEXT_CHARS)] : [];
    default:
      return [];
  }
}
