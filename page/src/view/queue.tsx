// What waits in a session, and what can be done to it: other words, another place, into this turn.
//
// Decides what is offered for each. It must not know how events come. Invariant: the order is the
// server's and is changed there alone; what is shown follows from its events, in every tab alike;
// words that somebody wrote and that came too late stay in sight until they are sent or discarded.

import { useEffect, useRef, useState } from "preact/hooks";
import { agents, change, outbox, steer, stop } from "../app/keeper";
import { Refusal } from "../data/link";
import { inert, line } from "../data/safe";
import type { Session } from "../data/session";
import type { RunStory } from "../data/run";
import { Chip } from "./parts";

const SHOWN = 20;

export function Queue({ session }: { session: Session; rev: number }) {
  const [trouble, setTrouble] = useState("");
  const [dragged, setDragged] = useState("");
  const [late, setLate] = useState<Late[]>([]);
  const waiting = session.queue;
  if (waiting.length === 0 && late.length === 0) return null;
  const keep = (text: string, why: string) => setLate((before) => [...before, { text, why }]);
  const forget = (one: Late) => setLate((before) => before.filter((other) => other !== one));
  const act = async (what: Promise<void>) => {
    try {
      await what;
      setTrouble("");
    } catch (why) {
      setTrouble(why instanceof Refusal ? `${why.problem.detail}` : "The server could not be reached.");
    }
  };
  const alike = (id: string) => waiting.filter((other) => session.runs.get(other)?.priority === session.runs.get(id)?.priority);
  const steers = session.running !== null && (agents.value.find((one) => one.name === session.agent)?.abilities["steer"] ?? false);
  return (
    <section class="queue" aria-label="Queue">
      <h2>{waiting.length === 0 ? "Too late to change" : waiting.length === 1 ? "1 message waits" : `${waiting.length} messages wait`}</h2>
      <ol>
        {waiting.slice(0, SHOWN).map((id) => {
          const run = session.runs.get(id);
          return run === undefined ? null : (
            <Waiting key={id} run={run} alike={alike(id)} steers={steers} act={act} keep={keep} isTarget={dragged !== "" && dragged !== id && alike(id).includes(dragged)}
              onDrag={setDragged} onDrop={() => { void act(change(dragged, { before: id })); setDragged(""); }} />
          );
        })}
      </ol>
      {waiting.length > SHOWN ? <p class="dim">and {waiting.length - SHOWN} more</p> : null}
      {trouble ? <p class="trouble" role="alert">{inert(trouble)}</p> : null}
      {late.map((one) => (
        <div class="letter refused" role="alert">
          <span>{line(one.text, 120)}</span>
          <span class="dim">your words came too late: {line(one.why, 120)}</span>
          <button class="quiet" onClick={() => { if (outbox.put(session.id, { text: one.text }, Date.now() / 1000)) forget(one); }}>Send as a new message</button>
          <button class="quiet" onClick={() => forget(one)}>Discard</button>
        </div>
      ))}
    </section>
  );
}

/** Other words for a message, which it did not get, and why. */
interface Late { text: string; why: string }

interface Line {
  run: RunStory;
  /** Those of its class, in their order. */
  alike: string[];
  steers: boolean;
  isTarget: boolean;
  act(what: Promise<void>): Promise<void>;
  keep(text: string, why: string): void;
  onDrag(run: string): void;
  onDrop(): void;
}

function Waiting({ run, alike, steers, isTarget, act, keep, onDrag, onDrop }: Line) {
  const [text, setText] = useState<string | null>(null);
  /** What it said when somebody began to change it: another tab may change it meanwhile. */
  const [was, setWas] = useState("");
  const draft = useRef<string | null>(null);
  draft.current = text === null || text.trim() === "" || text === was ? null : text;
  useEffect(() => () => {
    if (draft.current !== null) keep(draft.current, "it does not wait any more");
  }, []);
  const name = line(run.text, 40);
  const at = alike.indexOf(run.id);
  const move = (to: number) => void act(change(run.id, { before: alike[to] ?? null }));
  const save = () => {
    const said = draft.current;
    draft.current = null;
    setText(null);
    if (said === null) return;
    change(run.id, { text: said }).catch((why: unknown) => keep(said, why instanceof Refusal ? why.problem.detail : "The server could not be reached."));
  };
  if (text !== null) {
    return (
      <li class="editing">
        <textarea autoFocus rows={Math.min(6, text.split("\n").length)} value={text} aria-label={`Other words for: ${name}`}
          onInput={(event) => setText(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); save(); }
            if (event.key === "Escape") { event.stopPropagation(); setText(null); }
          }} />
        <button class="good" onClick={save}>Save</button>
        <button class="quiet" onClick={() => setText(null)}>Leave it</button>
      </li>
    );
  }
  return (
    <li draggable data-run={run.id} class={isTarget ? "target" : ""}
      onDragStart={(event) => { event.dataTransfer?.setData("text/plain", run.id); onDrag(run.id); }} onDragEnd={() => onDrag("")}
      onDragOver={(event) => { if (isTarget) event.preventDefault(); }} onDrop={(event) => { event.preventDefault(); onDrop(); }}>
      <span class="words">{line(run.text, 120)}</span>
      {run.priority !== "person" ? <Chip tone="idle">{run.priority}</Chip> : null}
      <button class="quiet" disabled={at <= 0} aria-label={`Move up: ${name}`} onClick={() => move(at - 1)}>↑</button>
      <button class="quiet" disabled={at + 1 >= alike.length} aria-label={`Move down: ${name}`} onClick={() => move(at + 2)}>↓</button>
      <button class="quiet" aria-label={`Edit: ${name}`} onClick={() => { setText(run.text); setWas(run.text); }}>Edit</button>
      {steers && run.parent === null ? <button class="quiet" aria-label={`Into this turn: ${name}`} onClick={() => void act(steer(run.id))}>Into this turn</button> : null}
      <button class="quiet" aria-label={`Cancel: ${name}`} onClick={() => void act(stop(run.id))}>Cancel</button>
    </li>
  );
}
