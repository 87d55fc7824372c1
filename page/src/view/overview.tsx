// How it goes, over all sessions, from the server's own data.
//
// Decides what is counted. It must not know any one session. Invariant: what is shown says how much it
// is made of.

import { useEffect, useState } from "preact/hooks";
import { api, beat, besides, titleOf, unfinished } from "../app/keeper";
import { to } from "../app/route";
import { parse, quantile, sumBy, type Series } from "../data/metrics";
import type { RunOut } from "../data/wire";
import { Empty, PhaseChip } from "./parts";
import { NextClock } from "./session";
import { clockTime, outcomeWord, span } from "./words";

const KINDS = ["completed", "cancelled", "timed_out", "failed", "lost"] as const;
const BUCKETS = 30;
const EVERY = 3;

export function Overview() {
  const [runs, setRuns] = useState<RunOut[] | null>(null);
  const [metrics, setMetrics] = useState<Map<string, Series[]>>(new Map());
  const turn = Math.floor(beat.value / EVERY);
  useEffect(() => {
    let wanted = true;
    void Promise.all([api.runs({ state: "ended", limit: 500 }), api.metrics().catch(() => "")]).then(
      ([page, text]) => {
        if (!wanted) return;
        setRuns(page.items);
        setMetrics(parse(text));
      },
      () => undefined,
    );
    return () => { wanted = false; };
  }, [turn]);
  if (runs === null) return <Empty title="Looking …" />;
  const active = [...unfinished.value.values()];
  return (
    <div class="overview page">
      <h1>Overview</h1>
      <div class="numbers">
        <Number name="running now" value={String(active.filter((one) => one.state === "running").length)} />
        <Number name="queued" value={String(active.filter((one) => one.state === "queued").length)} />
        <Number name="first output, median" value={upTo(quantile(metrics, "turnkeeper_first_output_seconds", 0.5))} />
        <Number name="first output, 95 %" value={upTo(quantile(metrics, "turnkeeper_first_output_seconds", 0.95))} />
        <Number name="stopping, 95 %" value={upTo(quantile(metrics, "turnkeeper_stop_latency_seconds", 0.95))} />
      </div>
      <Outcomes runs={runs} />
      <div class="side-by-side">
        <Counts title="Stalls by clock" rows={sumBy(metrics, "turnkeeper_stalls_total", "clock")} none="No run has stalled since the server began." />
        <Counts title="Endings by cause" rows={reasons(runs)} none="No run has ended yet." />
      </div>
      <section aria-label="Running now"><h2>Running now</h2>
        {active.length === 0 ? <p class="dim">Nothing runs.</p> : active.slice(0, 50).map((run) => (
          <a key={run.id} class="ended-line" href={to.run(run.session, run.id)}><PhaseChip phase={run.phase} /><span>{titleOf(run.session)} <span class="dim">{besides(run)}</span></span><NextClock run={run} /></a>
        ))}
      </section>
    </div>
  );
}

function Number({ name, value }: { name: string; value: string }) {
  return <div class="number"><strong>{value}</strong><span class="dim">{name}</span></div>;
}

function upTo(seconds: number | null): string {
  return seconds === null ? "–" : seconds === Infinity ? "long" : `≤ ${span(seconds)}`;
}

function reasons(runs: RunOut[]): [string, number][] {
  const sums = new Map<string, number>();
  for (const { outcome } of runs) {
    if (outcome === null) continue;
    const key = `${outcomeWord(outcome.kind)}: ${outcome.reason.replaceAll("_", " ")}`;
    sums.set(key, (sums.get(key) ?? 0) + 1);
  }
  return [...sums].sort(([, a], [, b]) => b - a).slice(0, 12);
}

function Counts({ title, rows, none }: { title: string; rows: [string, number][]; none: string }) {
  const most = Math.max(1, ...rows.map(([, count]) => count));
  return (
    <section aria-label={title}><h2>{title}</h2>
      {rows.length === 0 ? <p class="dim">{none}</p> : (
        <table class="counts"><tbody>{rows.map(([name, count]) => (
          <tr><th scope="row">{name.replaceAll("_", " ")}</th><td>{count}</td><td class="wide"><span class="count-bar" style={{ width: `${(count / most) * 100}%` }} /></td></tr>
        ))}</tbody></table>
      )}
    </section>
  );
}

/** Stacked bars: how many ended how, in equal parts of the time that these runs cover. */
function Outcomes({ runs }: { runs: RunOut[] }) {
  const ended = runs.filter((run) => run.outcome !== null && run.ended_at !== null);
  if (ended.length === 0) return null;
  const times = ended.map((run) => run.ended_at!);
  const from = Math.min(...times);
  const step = Math.max(1, (Math.max(...times) - from) / BUCKETS);
  const buckets = Array.from({ length: BUCKETS }, () => new Map<string, number>());
  for (const run of ended) {
    const bucket = buckets[Math.min(BUCKETS - 1, Math.floor((run.ended_at! - from) / step))]!;
    bucket.set(run.outcome!.kind, (bucket.get(run.outcome!.kind) ?? 0) + 1);
  }
  const most = Math.max(...buckets.map((bucket) => [...bucket.values()].reduce((a, b) => a + b, 0)));
  const totals = KINDS.map((kind) => `${ended.filter((run) => run.outcome!.kind === kind).length} ${outcomeWord(kind)}`).join(", ");
  return (
    <figure class="outcomes" aria-label={`Outcomes of the last ${ended.length} runs: ${totals}`}>
      <h2>{ended.length === 1 ? "Outcome of the only run" : `Outcomes of the last ${ended.length} runs`}</h2>
      <div class="bars" aria-hidden="true">
        {buckets.map((bucket, i) => (
          <div class="column" title={`${clockTime(from + i * step)}: ${[...bucket].map(([kind, count]) => `${count} ${outcomeWord(kind)}`).join(", ") || "none"}`}>
            {KINDS.map((kind) => bucket.has(kind) ? <span class={`fill out-${kind}`} style={{ height: `${(bucket.get(kind)! / most) * 100}%` }} /> : null)}
          </div>
        ))}
      </div>
      <div class="axis" aria-hidden="true"><span>{clockTime(from)}</span><span>{clockTime(from + step * BUCKETS)}</span></div>
      <figcaption class="legend">{KINDS.map((kind) => <span class={`key out-${kind}`}><i aria-hidden="true" />{outcomeWord(kind)} {ended.filter((run) => run.outcome!.kind === kind).length}</span>)}</figcaption>
    </figure>
  );
}
