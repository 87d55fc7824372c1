// What waits in a session, and what can be done to it: other words, another place, into this turn.
//
// Decides what is offered for each. It must not know how events come. Invariant: the order is the
// server's and is changed there alone; what is shown follows from its events, in every tab alike.

import { useState } from "preact/hooks";
import { agents, change, steer, stop } from "../app/keeper";
import { Refusal } from "../data/link";
import { inert, line } from "../data/safe";
import type { Session } from "../data/session";
import type { RunStory } from "../data/run";
import { Chip } from "./parts";

const SHOWN = 20;

export function Queue({ session }: { session: Session; rev: number }) {
  const [trouble, setTrouble] = useState("");
  const [dragged, setDragged] = useState("");
  const waiting = session.queue;
  if (waiting.length === 0) return null;
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
      <h2>{waiting.length === 1 ? "1 message waits" : `${waiting.length} messages wait`}</h2>
      <ol>
        {waiting.slice(0, SHOWN).map((id) => {
          const run = session.runs.get(id);
          return run === undefined ? null : (
            <Waiting key={id} run={run} alike={alike(id)} steers={steers} act={act} isTarget={dragged !== "" && dragged !== id && alike(id).includes(dragged)}
              onDrag={setDragged} onDrop={() => { void act(change(dragged, { before: id })); setDragged(""); }} />
          );
        })}
      </ol>
      {waiting.length > SHOWN ? <p class="dim">and {waiting.length - SHOWN} more</p> : null}
      {trouble ? <p class="trouble" role="alert">{inert(trouble)}</p> : null}
    </section>
  );
}

interface Line {
  run: RunStory;
  /** Those of its class, in their order. */
  alike: string[];
  steers: boolean;
  isTarget: boolean;
  act(what: Promise<void>): Promise<void>;
  onDrag(run: string): void;
  onDrop(): void;
}

function Waiting({ run, alike, steers, isTarget, act, onDrag, onDrop }: Line) {
  const [text, setText] = useState<string | null>(null);
  const name = line(run.text, 40);
  const at = alike.indexOf(run.id);
  const move = (to: number) => void act(change(run.id, { before: alike[to] ?? null }));
  const save = () => {
    const said = text ?? "";
    setText(null);
    if (said.trim() !== "" && said !== run.text) void act(change(run.id, { text: said }));
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
      <button class="quiet" aria-label={`Edit: ${name}`} onClick={() => setText(run.text)}>Edit</button>
      {steers && run.parent === null ? <button class="quiet" aria-label={`Into this turn: ${name}`} onClick={() => void act(steer(run.id))}>Into this turn</button> : null}
      <button class="quiet" aria-label={`Cancel: ${name}`} onClick={() => void act(stop(run.id))}>Cancel</button>
    </li>
  );
}
