// One session: its conversation, its queue, and the way to say something.
//
// Decides what stands where on the screen. It must not know how events come. Invariant: whoever sends
// sees at once where the message is: on its way, waiting, or refused. A part that looks at a signal is
// drawn anew only for another signal or prop: so whoever is given a session is given its `rev`, too.

import { useEffect, useState } from "preact/hooks";
import { agents, hold, letters, open, outbox, seenAt, stop, unfinished } from "../app/keeper";
import { to } from "../app/route";
import { fits } from "../data/outbox";
import { inert, line } from "../data/safe";
import type { Session } from "../data/session";
import type { RunOut } from "../data/wire";
import { Announcer } from "./announcer";
import { Ago, Chip, Empty, List, PhaseChip, Until } from "./parts";
import { Queue } from "./queue";
import { RowView } from "./rows";
import { clockWord, TOO_LONG } from "./words";

export function SessionView({ id }: { id: string }) {
  const opened = open(id);
  useEffect(() => hold(id), [id]);
  void opened.rev.value;
  const { session } = opened;
  if (session.problem !== null) {
    return <Empty title="This session cannot be shown"><p>{session.problem.detail}</p><p>{session.problem.todo}</p><p><button onClick={() => location.reload()}>Try again</button></p></Empty>;
  }
  return (
    <article class="session" aria-label={`Session ${id}`}>
      <Head session={session} />
      <Announcer session={session} />
      {session.dropped > 0 ? <p class="notice dropped">{session.dropped} older parts are left out here; the log has them: turnkeeper events {session.id}</p> : null}
      <List items={session.rows} keyOf={(row) => row.id} estimate={48} role="log" label="Conversation" follow class="talk"
        draw={(row) => <RowView row={row} session={id} />} />
      {session.rows.length === 0 && session.seq > 0 ? <Hints agent={session.agent} /> : null}
      <Queue session={session} rev={session.rev} />
      <Letters session={id} />
      <Composer session={session} rev={session.rev} />
    </article>
  );
}

function Head({ session }: { session: Session }) {
  const running = session.running;
  return (
    <header class="head">
      <a class="back" href={to.home} aria-label="Back to the sessions">‹</a>
      <div class="names">
        <h1>{line(session.title || session.id, 80)}</h1>
        <p class="dim">{session.agent}{session.cwd ? ` in ${session.cwd}` : ""}</p>
      </div>
      {running !== null ? <Live run={running.id} session={session} rev={session.rev} /> : <Chip tone="idle">idle</Chip>}
    </header>
  );
}

function Live({ run, session }: { run: string; session: Session; rev: number }) {
  const story = session.runs.get(run);
  const seen = unfinished.value.get(run);
  const phase = story?.phase ?? "working";
  return (
    <div class="live">
      <PhaseChip phase={phase} stalling={story?.stalling != null} />
      {seen !== undefined ? <NextClock run={seen} /> : <span class="clock" />}
      <a class="button quiet" href={to.run(session.id, run)}>Timeline</a>
      <StopButton run={run} stopping={story?.stopping != null} />
    </div>
  );
}

/** The clock that runs out next, counting down. */
export function NextClock({ run }: { run: RunOut }) {
  const next = run.clocks[0];
  if (next === undefined) return null;
  const at = seenAt(run.id) + next.in_s;
  return <span class="clock dim" title={`${next.clock}_s = ${next.budget_s}`}><Until at={at} /> {clockWord(next.clock)}</span>;
}

export function StopButton({ run, stopping }: { run: string; stopping: boolean }) {
  const [asked, setAsked] = useState("");
  const waiting = stopping || asked === run;
  return (
    <button class="stop" disabled={waiting} data-stop={run} onClick={() => { setAsked(run); void stop(run).catch(() => setAsked("")); }}>
      {waiting ? "Stopping …" : "Stop"}
    </button>
  );
}

/** What has not been acknowledged: it is only here, and says so. */
function Letters({ session }: { session: string }) {
  void letters.value;
  const mine = outbox.of(session);
  if (mine.length === 0) return null;
  return (
    <section class="outbox" aria-label="Not sent yet">
      {mine.map((letter) => (
        <div key={letter.key} class={`letter ${letter.state}`}>
          <span>{line(letter.message.text ?? "", 120)}</span>
          <span class="dim">
            {letter.state === "refused" ? `refused: ${letter.problem?.detail ?? ""} ${letter.problem?.todo ?? ""}` : letter.state === "sending" ? "sending …" : <>not sent, <Ago at={letter.at} /></>}
          </span>
          {letter.state === "sending" ? null : <button class="quiet" onClick={() => outbox.resend(letter.key)}>Send again</button>}
          <button class="quiet" onClick={() => outbox.discard(letter.key)}>Discard</button>
        </div>
      ))}
    </section>
  );
}

type Busy = "queue" | "steer" | "interrupt";

function Composer({ session }: { session: Session; rev: number }) {
  const [text, setText] = useState("");
  const [busy, setBusy] = useState<Busy>("queue");
  const [full, setFull] = useState(false);
  const running = session.running;
  const steers = agents.value.find((one) => one.name === session.agent)?.abilities["steer"] ?? false;
  const send = () => {
    if (text.trim() === "") return;
    const taken = outbox.put(session.id, { text, when_busy: running === null ? "queue" : busy }, Date.now() / 1000);
    setFull(!taken);
    if (taken) setText("");
  };
  return (
    <form class="composer" onSubmit={(event) => { event.preventDefault(); send(); }}>
      <textarea id="say" rows={Math.min(8, Math.max(1, text.split("\n").length))} value={text} aria-label="Message"
        placeholder={running === null ? `Message ${session.agent}` : "Say something meanwhile"}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
          if (event.key === "Escape") event.currentTarget.blur();
        }} />
      {running !== null ? (
        <select value={busy} aria-label="What to do while it is busy" onChange={(event) => setBusy(event.currentTarget.value as Busy)}>
          <option value="queue">after this turn</option>
          {steers ? <option value="steer">into this turn</option> : null}
          <option value="interrupt">instead of this turn</option>
        </select>
      ) : null}
      <button class="good" type="submit" disabled={text.trim() === ""}>Send</button>
      {full ? <p class="trouble" role="alert">{fits({ text }) ? "Too much is waiting to be sent; discard something first." : TOO_LONG}</p> : null}
    </form>
  );
}

const TRY: Record<string, string[]> = {
  demo: ["hello", "help", "think", "tool", "ask", "build 30", "long 500"],
};

function Hints({ agent }: { agent: string }) {
  const tries = TRY[agent];
  return (
    <div class="hints">
      <p>Nothing was said yet.{tries === undefined ? "" : " Try one of these:"}</p>
      {(tries ?? []).map((text) => <button class="quiet" onClick={() => fill(text)}>{inert(text)}</button>)}
    </div>
  );
}

function fill(text: string): void {
  const box = document.querySelector<HTMLTextAreaElement>("#say");
  if (box === null) return;
  box.value = text;
  box.dispatchEvent(new Event("input", { bubbles: true }));
  box.focus();
}
