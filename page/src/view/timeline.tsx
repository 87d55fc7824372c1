// A run as a picture: what happened when, how long it was silent, and how it ended.
//
// Decides how a story is drawn. It must not know how it was told. Invariant: everything in the picture
// is also there as text.

import type { ComponentChildren } from "preact";
import { now } from "../app/keeper";
import { inert } from "../data/safe";
import type { Gap, RunStory } from "../data/run";
import { clockTime, phaseWord, span } from "./words";

export function Timeline({ story }: { story: RunStory; rev: number }) {
  const from = story.acceptedAt;
  const last = story.spans[story.spans.length - 1];
  const over = story.endedAt === null ? now.value : Math.max(story.endedAt, last?.to ?? story.endedAt);
  const to = Math.max(over, from + 0.05);
  const place = (begin: number, end: number | null) => {
    const left = ((begin - from) / (to - from)) * 100;
    const width = (((end ?? to) - begin) / (to - from)) * 100;
    return { left: `${left}%`, width: `max(3px, ${width}%)` };
  };
  return (
    <figure class="timeline" aria-label={`Timeline of ${story.id}, ${span(to - from)}`}>
      <Lane name="Phases">
        {story.spans.map((one) => (
          <Bar class={`ph-${one.phase}`} style={place(one.from, one.to)} title={`${phaseWord(one.phase)}, ${span((one.to ?? to) - one.from)}`}>{phaseWord(one.phase)}</Bar>
        ))}
      </Lane>
      {story.tools.length > 0 ? (
        <Lane name="Tools">
          {story.tools.map((one) => (
            <Bar class={one.ok === false ? "use-failed" : "use"} style={place(one.from, one.to)} title={`${inert(one.name)}, ${span((one.to ?? to) - one.from)}`}>{inert(one.name)}</Bar>
          ))}
        </Lane>
      ) : null}
      {story.asked.length > 0 ? (
        <Lane name="Questions">
          {story.asked.map((one) => <Bar class="asking" style={place(one.from, one.to)} title={`${inert(one.tool)}: ${one.decision || "open"}`}>{inert(one.tool)}</Bar>)}
        </Lane>
      ) : null}
      <Lane name="Silence">
        {silences(story, to).map((gap) => <Silence gap={gap} budget={budgetAt(story, gap)} style={place(gap.from, gap.to)} to={to} />)}
      </Lane>
      <Lane name="Marks" marks>
        {story.marks.map((mark) => (
          <i class={`mark ${mark.grave ? "grave" : ""}`} style={{ left: place(mark.at, mark.at).left }} title={`${clockTime(mark.at)} ${inert(mark.told)}`} />
        ))}
      </Lane>
      <div class="axis" aria-hidden="true"><span>{clockTime(from)}</span><span>{span((to - from) / 2)}</span><span>{span(to - from)}</span></div>
      <figcaption><Told story={story} from={from} /></figcaption>
    </figure>
  );
}

function Lane({ name, children, marks }: { name: string; children: ComponentChildren; marks?: boolean }) {
  return <div class={`lane ${marks ? "marks" : ""}`}><span class="name">{name}</span><div class="track" aria-hidden="true">{children}</div></div>;
}

function Bar(props: { class: string; style: Record<string, string>; title: string; children: ComponentChildren }) {
  return <span class={`bar ${props.class}`} style={props.style} title={props.title}><b>{props.children}</b></span>;
}

function silences(story: RunStory, to: number): Gap[] {
  if (story.state !== "running" || story.progressAt === null || to - story.progressAt < 1) return story.gaps;
  return [...story.gaps, { from: story.progressAt, to: null }];
}

/** The clock that counted during a silence, by what the run was doing then. */
function budgetAt(story: RunStory, gap: Gap): { clock: string; seconds: number } | null {
  const during = story.spans.find((one) => one.from <= gap.from + 0.001 && (one.to ?? Infinity) > gap.from + 0.001);
  const clock = { waiting: "first_output_s", working: "idle_s", tool: "tool_s", starting: "startup_s" }[during?.phase as "tool"];
  const seconds = clock === undefined ? undefined : story.limits[clock];
  return clock === undefined || !seconds ? null : { clock, seconds };
}

function Silence({ gap, budget, style, to }: { gap: Gap; budget: { clock: string; seconds: number } | null; style: Record<string, string>; to: number }) {
  const length = (gap.to ?? to) - gap.from;
  const used = budget === null ? 0 : Math.min(1, length / budget.seconds);
  const level = used >= 0.98 ? "gone" : used >= 0.5 ? "half" : "little";
  const title = budget === null ? `silent for ${span(length)}` : `silent for ${span(length)} of ${span(budget.seconds)} (${budget.clock})`;
  return <span class={`bar silence ${level}`} style={style} title={title}><b>{title.replace("silent for ", "")}</b></span>;
}

/** The same as the picture, in words. */
function Told({ story, from }: { story: RunStory; from: number }) {
  const lines = [
    ...story.spans.map((one) => ({ at: one.from, told: `${phaseWord(one.phase)}${one.to === null ? "" : `, ${span(one.to - one.from)}`}`, grave: false })),
    ...story.tools.map((one) => ({ at: one.from, told: `tool ${inert(one.name)}${one.to === null ? "" : `, ${span(one.to - one.from)}`}${one.ok === false ? ", failed" : ""}`, grave: one.ok === false })),
    ...story.asked.map((one) => ({ at: one.from, told: `asked for ${inert(one.tool)}: ${one.decision || "open"}`, grave: false })),
    ...story.marks.map((one) => ({ at: one.at, told: inert(one.told), grave: one.grave })),
  ].sort((a, b) => a.at - b.at);
  return (
    <details open={lines.length < 20}><summary>In words ({lines.length})</summary>
      <table class="told"><tbody>
        {lines.slice(0, 400).map((one) => <tr class={one.grave ? "grave" : ""}><td>{`+${span(one.at - from)}`}</td><td>{one.told}</td></tr>)}
      </tbody></table>
    </details>
  );
}
