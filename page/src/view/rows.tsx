// The rows of a conversation.
//
// Decides how each kind of row looks. It must not know how rows are come by. Invariant: an agent's
// text is inert wherever it is shown; a row is drawn anew only when it has changed.

import { now } from "../app/keeper";
import { to } from "../app/route";
import { inert } from "../data/safe";
import type { EndingRow, NoticeRow, Row, ThinkingRow, ToolRow } from "../data/session";
import { ApprovalCard } from "./approval";
import { Markdown } from "./markdown";
import { Detail, Memo, OutcomeChip } from "./parts";
import { cause, readable, span } from "./words";

export function RowView({ row, session }: { row: Row; session: string }) {
  return <Memo rev={`${row.id}.${row.rev}`} draw={() => <div class={`row row-${row.kind}`}>{draw(row, session)}</div>} />;
}

function draw(row: Row, session: string) {
  switch (row.kind) {
    case "message":
      return (
        <div class="said" dir="auto">
          <span class="who">{row.steered ? "You add" : row.priority === "person" ? "You" : row.priority}{row.sender ? ` (${inert(row.sender)})` : ""}</span>
          <p>{inert(row.text)}</p>
        </div>
      );
    case "text":
      return <Markdown text={row.block.text} inside={row.block.inside} />;
    case "thinking":
      return <Thinking row={row} />;
    case "tool":
      return <Tool row={row} rev={row.rev} />;
    case "approval":
      return (
        <ApprovalCard keys={row.settled === null} question={{
          id: row.approval, tool: row.tool, input: row.input, inputIsCut: false, what: row.what, summary: "", expiresAt: row.expiresAt,
          settled: row.settled === null ? null : { decision: row.settled.decision, by: row.settled.by ?? "", note: row.settled.note ?? "" },
        }} />
      );
    case "ending":
      return <Ending row={row} session={session} />;
    case "notice":
      return <Notice row={row} />;
  }
}

function Thinking({ row }: { row: ThinkingRow }) {
  return (
    <details class="thinking">
      <summary>Thinking</summary>
      <p>{inert(row.text)}{row.cut ? `… (${row.cut} more characters)` : ""}</p>
    </details>
  );
}

function Tool({ row }: { row: ToolRow; rev: number }) {
  const running = row.endedAt === null;
  const took = (row.endedAt ?? now.value) - row.at;
  const state = running ? "running" : row.ok === true ? "done" : row.ok === false ? "failed" : "broken off";
  const said = row.output || row.progress;
  return (
    <details class={`tool ${state.replace(" ", "-")}`}>
      <summary>
        <code>{inert(row.name)}</code>
        <span class="gist">{inert(readable(row.input)).replace(/\s+/g, " ").slice(0, 160)}</span>
        <span class="dim">{state}, {span(took)}</span>
      </summary>
      {row.input !== null ? <pre tabIndex={0} aria-label="Input">{inert(readable(row.input)).slice(0, 20_000)}</pre> : null}
      {said ? <pre tabIndex={0} aria-label="Output">{inert(said)}</pre> : null}
    </details>
  );
}

function Ending({ row, session }: { row: EndingRow; session: string }) {
  const { outcome } = row;
  const good = outcome.kind === "completed" && outcome.reason === "end_turn";
  const where = to.run(session, row.run ?? "");
  if (good) {
    return <div class="ending good"><a href={where}>completed</a></div>;
  }
  return (
    <div class={`ending out-${outcome.kind}`} role="note">
      <OutcomeChip kind={outcome.kind} />
      <span><strong>{cause(outcome)}</strong> {row.partial ? <em>The text above is not whole. </em> : null}
        <Detail detail={outcome.detail} /></span>
      <a href={where}>Timeline</a>
    </div>
  );
}

function Notice({ row }: { row: NoticeRow }) {
  return <p class={`notice ${row.tone}`}>{inert(row.text)}{row.more ? <span class="dim"> {inert(row.more)}</span> : null}</p>;
}
