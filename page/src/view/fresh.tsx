// A new session: agent, folder, and the first message.
//
// Decides what is asked for. It must not know how agents are started. Invariant: the same press of the
// button, however often it is tried, makes one session.

import { useEffect, useState } from "preact/hooks";
import { agents, api, outbox } from "../app/keeper";
import { go, to } from "../app/route";
import { Refusal } from "../data/link";
import { fits } from "../data/outbox";
import { line } from "../data/safe";
import { Chip } from "./parts";
import { TOO_LONG } from "./words";
import type { AgentOut, KnownAgentOut, Problem } from "../data/wire";

type Priority = "person" | "agent" | "background";

export function Fresh() {
  const [agent, setAgent] = useState("");
  const [title, setTitle] = useState("");
  const [cwd, setCwd] = useState("");
  const [text, setText] = useState("");
  const [priority, setPriority] = useState<Priority>("person");
  const [trouble, setTrouble] = useState<Problem | string | null>(null);
  const [key] = useState(() => `page-${Math.random().toString(36).slice(2)}${Date.now().toString(36)}`);
  const known = agents.value;
  useEffect(() => { if (agent === "" && known[0] !== undefined) setAgent((known.find((one) => one.name === "demo") ?? known[0]).name); }, [known]);
  const start = async () => {
    if (!fits({ text, priority })) return setTrouble(TOO_LONG);
    try {
      const made = await api.create({ agent, title: title || line(text, 60), cwd }, key);
      if (text.trim() !== "") outbox.put(made.id, { text, priority }, Date.now() / 1000);
      go(to.session(made.id));
    } catch (why) {
      setTrouble(why instanceof Refusal ? why.problem : "The server could not be reached.");
    }
  };
  return (
    <form class="fresh page" onSubmit={(event) => { event.preventDefault(); void start(); }}>
      <h1>New session</h1>
      <fieldset class="agents">
        <legend>Agent</legend>
        {known.map((one) => (
          <label key={one.name} class={one.name === agent ? "chosen" : ""}>
            <input type="radio" name="agent" value={one.name} checked={one.name === agent} onChange={() => setAgent(one.name)} />
            <span><strong>{one.name}</strong><span class="dim">{about(one)}</span></span>
          </label>
        ))}
      </fieldset>
      <Others />
      <label class="field">First message<textarea rows={3} value={text} onInput={(event) => setText(event.currentTarget.value)} placeholder="What is to be done?" /></label>
      <div class="side-by-side">
        <label class="field">Title <input value={title} maxLength={500} onInput={(event) => setTitle(event.currentTarget.value)} placeholder="optional" /></label>
        <label class="field">Folder <input value={cwd} onInput={(event) => setCwd(event.currentTarget.value)} placeholder="the agent's own" /></label>
        <label class="field">Priority <select value={priority} onChange={(event) => setPriority(event.currentTarget.value as Priority)}>
          <option value="person">person: goes first</option><option value="agent">agent</option><option value="background">background</option>
        </select></label>
      </div>
      {trouble === null ? null : typeof trouble === "string" ? <p class="trouble" role="alert">{trouble}</p> : (
        <p class="trouble" role="alert"><strong>{trouble.code}</strong> {trouble.detail} {trouble.todo}</p>
      )}
      <button class="good" type="submit" disabled={agent === ""}>Start</button>
    </form>
  );
}

/** Known agents that sessions cannot be with yet, or that need a hand first. */
function Others() {
  const [found, setFound] = useState<KnownAgentOut[]>([]);
  useEffect(() => {
    let wanted = true;
    void api.known().then((page) => wanted && setFound(page.items), () => undefined);
    return () => { wanted = false; };
  }, []);
  const others = found.filter((one) => !one.served || one.state !== "ready");
  if (others.length === 0) return null;
  return (
    <details class="others">
      <summary>Other agents that Turnkeeper knows ({others.length})</summary>
      <table><tbody>{others.map((one) => (
        <tr key={one.name}><th scope="row">{one.name}</th><td><Chip tone={one.state === "ready" ? "ph-working" : one.state === "needs login" ? "ph-approval" : "idle"}>{one.state}</Chip></td><td class="dim">{one.state === "ready" ? "It is not among the agents of this server's configuration." : one.todo}</td></tr>
      ))}</tbody></table>
    </details>
  );
}

/** What those of the demo are there for. */
const CAST: Record<string, string> = {
  demo: "does what it is told: say help",
  staller: "falls silent in the middle of its answer",
  stubborn: "ignores Stop; only a kill ends it",
  builder: "is quiet for long, and at work",
  asker: "asks before it does something",
  parent: "starts runs with three others",
  forker: "its tools leave hidden processes behind",
};

function about(agent: AgentOut): string {
  const isCast = agent.driver === "demo" || agent.name === "parent" || agent.name === "forker";
  return (isCast ? CAST[agent.name] : undefined) ?? `${agent.driver}${can(agent.abilities)}`;
}

function can(abilities: Record<string, boolean>): string {
  const found = Object.entries(abilities).filter(([, yes]) => yes).map(([name]) => name);
  return found.length ? `; can ${found.join(", ")}` : "";
}
