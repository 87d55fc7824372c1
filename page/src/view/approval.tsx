// One question of an agent, answerable in place: the same card in a session and in the inbox.
//
// Decides how a question is put to a person. It must not know who waits for it. Invariant: what is
// allowed is shown whole or said to be cut; a settled question cannot be answered.

import { useState } from "preact/hooks";
import { answer, api } from "../app/keeper";
import { Refusal } from "../data/link";
import { inert } from "../data/safe";
import { Until } from "./parts";
import { readable } from "./words";

export interface Question {
  id: string;
  tool: string;
  input: unknown;
  inputIsCut: boolean;
  what: string;
  /** In a line; empty where only the whole is known. */
  summary: string;
  expiresAt: number | null;
  settled: { decision: string; by: string; note: string } | null;
}

export function ApprovalCard({ question, keys }: { question: Question; keys: boolean }) {
  const [note, setNote] = useState<string | null>(null);
  const [trouble, setTrouble] = useState("");
  const [whole, setWhole] = useState<unknown>(undefined);
  const [busy, setBusy] = useState(false);
  /** What is to be allowed from now on, while somebody considers it. */
  const [rule, setRule] = useState<string | null>(null);
  const consider = async () => {
    try {
      setRule((await api.approval(question.id)).rule);
      setTrouble("");
    } catch (why) {
      setTrouble(why instanceof Refusal ? why.problem.detail : "The server could not be reached.");
    }
  };
  const say = async (decision: "allow" | "deny", always: string | null = null) => {
    setBusy(true);
    try {
      await answer(question.id, decision, note ?? "", always);
    } catch (why) {
      setTrouble(why instanceof Refusal ? why.problem.detail : "The server could not be reached.");
    } finally {
      setBusy(false);
      // The buttons are gone, and with them the focus.
      setTimeout(() => { if (document.activeElement === document.body) document.querySelector<HTMLElement>("main")?.focus(); });
    }
  };
  const { settled } = question;
  const input = whole === undefined ? question.input : whole;
  return (
    <section class={`card approval ${settled ? "settled" : "open"}`} aria-label={`The agent asks: ${question.tool}`}
      data-approval={settled ? undefined : question.id} tabIndex={settled ? -1 : 0}>
      <header>
        <strong title={question.summary}>{question.what === "plan" ? "Agree to this plan?" : <>May it use <code>{inert(question.tool)}</code>?</>}</strong>
        {settled === null && question.expiresAt !== null ? <span class="dim">denied in <Until at={question.expiresAt} /></span> : null}
      </header>
      <pre class="input" tabIndex={0} aria-label="What it is for">{inert(readable(input)) || "nothing more was said"}</pre>
      {question.inputIsCut && whole === undefined ? (
        <button class="quiet" onClick={async () => setWhole((await api.approval(question.id)).input)}>Show all of it</button>
      ) : null}
      {settled !== null ? (
        <p class={`decision ${settled.decision}`}>{settled.decision}{settled.by ? ` by ${settled.by}` : ""}{settled.note ? `: ${inert(settled.note)}` : ""}</p>
      ) : rule !== null ? (
        <form class="actions always" onSubmit={(event) => { event.preventDefault(); void say("allow", rule); }}>
          <label for={`rule-${question.id}`}>Always allow here</label>
          <input id={`rule-${question.id}`} autoFocus value={rule} required placeholder={`${question.tool}(pattern)`} spellcheck={false}
            onInput={(event) => setRule(event.currentTarget.value)}
            onKeyDown={(event) => { if (event.key === "Escape") setRule(null); }} />
          <button class="good" type="submit" disabled={busy || rule.trim() === ""}>Allow always</button>
          <button class="quiet" type="button" onClick={() => setRule(null)}>Back</button>
        </form>
      ) : (
        <div class="actions">
          <button class="good" disabled={busy} data-answer="allow" onClick={() => say("allow")}>Allow once {keys ? <kbd>A</kbd> : null}</button>
          {question.what === "plan" ? null : <button class="quiet" disabled={busy} data-answer="always" onClick={() => void consider()}>Always for this pattern {keys ? <kbd>W</kbd> : null}</button>}
          <button class="bad" disabled={busy} data-answer="deny" onClick={() => say("deny")}>Deny {keys ? <kbd>D</kbd> : null}</button>
          {note === null ? (
            <button class="quiet" data-answer="note" onClick={() => setNote("")}>Add a note {keys ? <kbd>N</kbd> : null}</button>
          ) : (
            <input autoFocus value={note} aria-label="A note for the agent" placeholder="A note for the agent"
              onInput={(event) => setNote(event.currentTarget.value)}
              onKeyDown={(event) => { if (event.key === "Enter") void say("deny"); }} />
          )}
        </div>
      )}
      {trouble ? <p class="trouble" role="alert">{trouble}</p> : null}
    </section>
  );
}

/** One key answers the question that has the focus, or the first that is open. */
export function answerByKey(event: KeyboardEvent): boolean {
  const wanted = { a: "allow", d: "deny", n: "note", w: "always" }[event.key.toLowerCase()];
  if (wanted === undefined || event.ctrlKey || event.metaKey || event.altKey) return false;
  const focused = document.activeElement?.closest("[data-approval]");
  const card = focused ?? document.querySelector("[data-approval]");
  const button = card?.querySelector<HTMLButtonElement>(`[data-answer="${wanted}"]`);
  if (button === null || button === undefined) return false;
  button.click();
  return true;
}
