// Everything that waits for a person, over all sessions.
//
// Decides what counts as waiting. It must not know how questions are answered. Invariant: what is
// answered elsewhere goes from here by itself.

import { besides, questions, titleOf } from "../app/keeper";
import { to } from "../app/route";
import { markSeen, unseen } from "../app/settings";
import { inert, line } from "../data/safe";

import { ApprovalCard } from "./approval";
import { Ago, Empty, OutcomeChip } from "./parts";
import { cause, detailOf } from "./words";

export function Inbox() {
  const asked = questions.value;
  const ended = unseen();
  if (asked.length === 0 && ended.length === 0) {
    return <Empty title="Nothing waits for you"><p>Questions of agents and turns that did not complete come here, from all sessions.</p></Empty>;
  }
  return (
    <div class="inbox page">
      <h1>Inbox</h1>
      {asked.map((one) => (
        <div key={one.id} class="asked">
          <p class="dim"><a href={to.session(one.session)}>{titleOf(one.session)}</a>, <Ago at={one.requested_at} />{one.summary ? `: ${line(one.summary, 100)}` : ""}</p>
          <ApprovalCard keys={one === asked[0]} question={{
            id: one.id, tool: one.tool, input: one.input, inputIsCut: one.input_is_cut, what: one.tool === "plan" ? "plan" : "tool", summary: one.summary, expiresAt: one.expires_at, settled: null,
          }} />
        </div>
      ))}
      {ended.length > 0 ? (
        <section aria-label="Endings not yet seen">
          <h2>Did not complete <button class="quiet" onClick={markSeen}>Mark all as seen</button></h2>
          {ended.map((run) => (
            <a key={run.id} class="ended-line" href={to.run(run.session, run.id)}>
              <OutcomeChip kind={run.outcome!.kind} />
              <span><strong>{titleOf(run.session)}</strong> {besides(run)}<br /><span class="dim">{cause(run.outcome!)} {inert(detailOf(run.outcome!.detail).rest).slice(0, 200)}</span></span>
              <span class="dim"><Ago at={run.ended_at ?? run.accepted_at} /></span>
            </a>
          ))}
        </section>
      ) : null}
    </div>
  );
}
