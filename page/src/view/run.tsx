// One run: the cause in a sentence, its timeline, the evidence, and its raw events.
//
// Decides what is told of a run. It must not know how it is known. Invariant: what nobody could see is
// said to be unknown, and never guessed.

import { useEffect, useState } from "preact/hooks";
import { api, beat, hold, open, unfinished } from "../app/keeper";
import { to } from "../app/route";
import { inert, line } from "../data/safe";
import type { RunStory } from "../data/run";
import type { Diagnosis, ProcessSeen, Sample, Seen } from "../data/wire";
import { Ago, Detail, Empty, OutcomeChip, PhaseChip } from "./parts";
import { NextClock, StopButton } from "./session";
import { Timeline } from "./timeline";
import { cause, clockTime, span } from "./words";

export function RunView({ session: id, run }: { session: string; run: string }) {
  const opened = open(id);
  useEffect(() => hold(id), [id]);
  void opened.rev.value;
  const { session } = opened;
  const story = session.runs.get(run);
  if (story === undefined) {
    return <Empty title={session.seq > 0 ? "There is no such run here" : "Reading the log …"}><p><a href={to.session(id)}>The session</a></p></Empty>;
  }
  return (
    <article class="run page" aria-label={`Run ${run}`}>
      <header class="head">
        <a class="back" href={to.session(id)} aria-label="Back to the session">‹</a>
        <div class="names"><h1>{line(story.text, 80)}</h1><p class="dim">{run} in <a href={to.session(id)}>{line(session.title || id, 40)}</a>, <Ago at={story.acceptedAt} /></p></div>
        {story.outcome === null ? <Live story={story} rev={session.rev} /> : <OutcomeChip kind={story.outcome.kind} />}
      </header>
      <Cause story={story} />
      <Timeline story={story} rev={session.rev} />
      <Evidence run={run} story={story} rev={session.rev} />
      {story.children.length > 0 ? (
        <section><h2>Runs it started</h2><ul>{story.children.map((one) => <li><a href={to.run(one.session, one.run)}>{one.run}</a> {one.outcome ?? "not ended"}</li>)}</ul></section>
      ) : null}
      {story.late > 0 ? <p class="dim">{story.late === 1 ? "One thing" : `${story.late} things`} came after its end: kept as evidence, shown to nobody as an answer.</p> : null}
      {story.parent !== null ? <p>Started by <a href={to.run(story.parent.session, story.parent.run)}>{story.parent.run}</a>.</p> : null}
      {story.next !== null ? <p>Its message goes on as <a href={to.run(id, story.next)}>{story.next}</a>.</p> : null}
      <Raw events={session.recent.filter((one) => one.run === run)} />
    </article>
  );
}

function Live({ story }: { story: RunStory; rev: number }) {
  const seen = unfinished.value.get(story.id);
  return (
    <div class="live">
      <PhaseChip phase={story.phase} stalling={story.stalling !== null} />
      {seen === undefined ? null : <NextClock run={seen} />}
      <StopButton run={story.id} stopping={story.stopping !== null} />
    </div>
  );
}

function Cause({ story }: { story: RunStory }) {
  if (story.outcome !== null) {
    return <p class={`cause out-${story.outcome.kind}`}><strong>{cause(story.outcome)}</strong> <Detail detail={story.outcome.detail} /></p>;
  }
  if (story.stalling !== null) {
    return <p class="cause out-timed_out" role="status"><strong>It may hang.</strong> {inert(story.stalling.diagnosis)}</p>;
  }
  return null;
}

function Evidence({ run, story }: { run: string; story: RunStory; rev: number }) {
  const [found, setFound] = useState<Diagnosis | null>(null);
  void beat.value;
  useEffect(() => {
    let wanted = true;
    void api.diagnosis(run).then((told) => wanted && setFound(told), () => undefined);
    return () => { wanted = false; };
  }, [run, beat.value, story.state]);
  const seen = story.outcome?.evidence ?? null;
  return (
    <section class="evidence" aria-label="Evidence">
      <h2>{seen === null ? "What it is doing" : "What was seen when it was decided"}</h2>
      {seen !== null ? <SeenTable seen={seen} /> : found === null ? <p class="dim">Looking …</p> : <Now told={found} />}
    </section>
  );
}

function SeenTable({ seen }: { seen: Seen }) {
  const rows: [string, string][] = [];
  const add = (name: string, value: unknown) => {
    if (value !== undefined && value !== null && value !== "" && value !== 0) rows.push([name, inert(String(value))]);
  };
  add("phase", seen.phase);
  add("clock", seen.clock && `${seen.clock}, ${span(seen.budget_s ?? 0)}`);
  add("silent for", seen.silent_s ? span(seen.silent_s) : "");
  add("last heartbeat", seen.heartbeat_s == null ? "" : `${span(seen.heartbeat_s)} before`);
  add("last seen", seen.last);
  add("tools", seen.tools?.join(", "));
  add("exit code", seen.exit_code == null ? "" : String(seen.exit_code));
  add("by", seen.by);
  for (const row of sampleRows(seen.sample ?? null)) rows.push(row);
  return <Table rows={rows} />;
}

function sampleRows(sample: Sample | null): [string, string][] {
  if (sample === null) return [];
  const rows: [string, string][] = [["processes", `${sample.busy ? "working" : "not working"}, state ${sample.state || "?"}, ${span(sample.cpu_s ?? 0)} of CPU, ${sample.children ?? 0} children`]];
  if (sample.waiting_in) rows.push(["waiting in", sample.waiting_in]);
  if (sample.sockets?.length) rows.push(["sockets", sample.sockets.join(", ")]);
  return rows;
}

function Now({ told }: { told: Diagnosis }) {
  const rows: [string, string][] = [["phase", told.phase]];
  if (told.silent_s !== null) rows.push(["last progress", `${span(told.silent_s)} ago${told.last ? ` (${told.last})` : ""}`]);
  if (told.heartbeat_s !== null) rows.push(["last heartbeat", `${span(told.heartbeat_s)} ago`]);
  for (const clock of told.clocks) rows.push([`${clock.clock} clock`, `runs out in ${span(clock.in_s)} of ${span(clock.budget_s)}: ${clock.then}`]);
  if (told.position !== null) rows.push(["position", `${told.position}${told.behind ? `, behind ${told.behind}` : ""}`]);
  for (const row of sampleRows(told.sample)) rows.push(row);
  if (told.sockets.length) rows.push(["sockets", told.sockets.join(", ")]);
  for (const hint of told.hints) rows.push(["hint", hint]);
  return <><Table rows={rows.map(([name, value]) => [name, inert(value)])} />{told.processes === null ? <p class="dim">It has no process of its own here.</p> : <Processes processes={told.processes} />}</>;
}

function Table({ rows }: { rows: [string, string][] }) {
  return <table class="facts"><tbody>{rows.map(([name, value]) => <tr><th scope="row">{name}</th><td>{value}</td></tr>)}</tbody></table>;
}

/** The process tree: whoever was started by another stands below it. */
function Processes({ processes }: { processes: ProcessSeen[] }) {
  const pids = new Set(processes.map((one) => one.pid));
  const below = (parent: number | null): ProcessSeen[] => processes.filter((one) => (parent === null ? !pids.has(one.parent) : one.parent === parent));
  const rows: { one: ProcessSeen; depth: number }[] = [];
  const walk = (parent: number | null, depth: number) => {
    for (const one of below(parent)) {
      if (rows.length > 200 || rows.some((row) => row.one.pid === one.pid)) continue;
      rows.push({ one, depth });
      walk(one.pid, depth + 1);
    }
  };
  walk(null, 0);
  return (
    <div class="table" tabIndex={0} role="region" aria-label="Processes"><table class="processes">
      <thead><tr><th>PID</th><th>Command</th><th>State</th><th>CPU</th><th>Age</th></tr></thead>
      <tbody>{rows.map(({ one, depth }) => (
        <tr><td>{one.pid}</td><td><code>{`${"  ".repeat(depth)}${depth ? "└ " : ""}${inert(one.command).slice(0, 120)}`}</code></td><td>{one.state}{one.waiting_in ? ` in ${inert(one.waiting_in)}` : ""}</td><td>{span(one.cpu_s)}</td><td>{span(one.age_s)}</td></tr>
      ))}</tbody>
    </table></div>
  );
}

function Raw({ events }: { events: { seq: number; kind: string; at: number; data: unknown }[] }) {
  const last = events.slice(-300);
  return (
    <details class="raw"><summary>Raw events ({events.length === last.length ? last.length : `the last ${last.length} of ${events.length}`} kept here)</summary>
      <div class="table" tabIndex={0} role="region" aria-label="Raw events"><table><tbody>
        {last.map((one) => <tr key={one.seq}><td>{one.seq}</td><td>{clockTime(one.at)}</td><td>{one.kind}</td><td><code>{inert(JSON.stringify(one.data))}</code></td></tr>)}
      </tbody></table></div>
    </details>
  );
}
