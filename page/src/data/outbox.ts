// Messages on their way: kept until the server has said that they are durable.
//
// Decides when a message is sent again. It must not know what is shown. Invariant: a message leaves
// the outbox by being accepted or by a person's hand, and by nothing else; it is always sent with
// the same key, so sending it again is harmless; messages of one session go in their order.

import { Lost, Refusal } from "./link";
import type { AcceptedOut, NewMessage, Problem } from "./wire";

export interface Letter {
  key: string;
  session: string;
  message: NewMessage;
  at: number;
  state: "sending" | "waiting" | "refused";
  problem?: Problem;
}

export interface Post {
  readonly isOpen: boolean;
  send(letter: Letter): Promise<AcceptedOut>;
}

export interface Shelf {
  read(): string | null;
  write(text: string): void;
}

export const MOST = 100;
/** Less than what a server takes in one piece (4 MiB): for more it would close the connection. */
export const LETTER_BYTES = 3_500_000;

/** Whether a message can be sent at all. */
export function fits(message: NewMessage): boolean {
  return new TextEncoder().encode(JSON.stringify(message)).length <= LETTER_BYTES;
}

export class Outbox {
  letters: Letter[] = [];
  private listeners = new Set<() => void>();

  constructor(
    private readonly post: Post,
    private readonly shelf: Shelf,
    private readonly newKey: () => string,
  ) {
    this.letters = read(shelf);
  }

  onChange(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  }

  /** Take a message; false if there is no room for it, and then it is still the caller's. */
  put(session: string, message: NewMessage, at: number): boolean {
    if (this.letters.length >= MOST || !fits(message)) return false;
    this.letters.push({ key: this.newKey(), session, message, at, state: "waiting" });
    this.changed();
    this.flush();
    return true;
  }

  /** There is a connection: send what waits, one after the other in each session. */
  flush(): void {
    if (!this.post.isOpen) return;
    const busy = new Set<string>();
    for (const letter of this.letters) {
      if (letter.state === "waiting" && !busy.has(letter.session)) void this.send(letter);
      if (letter.state !== "refused") busy.add(letter.session);
    }
  }

  /** A person wants it tried again. */
  resend(key: string): void {
    const letter = this.letters.find((one) => one.key === key);
    if (letter === undefined || letter.state === "sending") return;
    letter.state = "waiting";
    delete letter.problem;
    this.changed();
    this.flush();
  }

  /** A person does not want it any more. What the server has taken meanwhile it keeps. */
  discard(key: string): void {
    this.letters = this.letters.filter((one) => one.key !== key);
    this.changed();
    this.flush();
  }

  of(session: string): Letter[] {
    return this.letters.filter((one) => one.session === session);
  }

  private async send(letter: Letter): Promise<void> {
    letter.state = "sending";
    this.changed();
    try {
      await this.post.send(letter);
      this.letters = this.letters.filter((one) => one !== letter);
    } catch (why) {
      if (why instanceof Refusal && !passes(why.problem)) {
        letter.state = "refused";
        letter.problem = why.problem;
      } else if (why instanceof Refusal || why instanceof Lost) {
        letter.state = "waiting";
      } else {
        throw why;
      }
      this.changed();
      if (letter.state === "waiting") return; // it goes with the next connection
    }
    this.changed();
    this.flush();
  }

  private changed(): void {
    try {
      this.shelf.write(JSON.stringify(this.letters));
    } catch {
      // More than the browser keeps: it is here as long as this page is, and in sight.
    }
    for (const listener of [...this.listeners]) listener();
  }
}

/** A server that shuts down: the next one takes it. */
function passes(problem: Problem): boolean {
  return problem.status === 503;
}

function read(shelf: Shelf): Letter[] {
  try {
    const found = JSON.parse(shelf.read() ?? "[]") as Letter[];
    return found.map((one) => ({ ...one, state: one.state === "refused" ? "refused" : "waiting" }));
  } catch {
    return [];
  }
}
