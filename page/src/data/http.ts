// What is asked over HTTP: lists, one run, its diagnosis, and what needs no stream.
//
// Decides how a request is made and what a refusal is. It must not know what is shown. Invariant:
// the token goes into a header and nowhere else.

import { Refusal } from "./link";
import type {
  AgentsOut, ApprovalOut, ApprovalsOut, Decision, Diagnosis, EditRun, HandedOut, KnownAgentsOut, NewSession, Problem, RunOut, RunsOut,
  SessionOut, SessionsOut, StopOut,
} from "./wire";

/** The server could not be reached. */
export class Unreachable extends Error {}

type Query = Record<string, string | number | undefined | null>;

export class Api {
  constructor(private readonly token: () => string | null, private readonly base = "") {}

  sessions(query: Query): Promise<SessionsOut> { return this.get("/v1/sessions", query); }
  session(id: string): Promise<SessionOut> { return this.get(`/v1/sessions/${encodeURIComponent(id)}`); }
  runs(query: Query): Promise<RunsOut> { return this.get("/v1/runs", query); }
  run(id: string): Promise<RunOut> { return this.get(`/v1/runs/${encodeURIComponent(id)}`); }
  diagnosis(run: string): Promise<Diagnosis> { return this.get(`/v1/runs/${encodeURIComponent(run)}/diagnosis`); }
  approvals(query: Query): Promise<ApprovalsOut> { return this.get("/v1/approvals", query); }
  approval(id: string): Promise<ApprovalOut> { return this.get(`/v1/approvals/${encodeURIComponent(id)}`); }
  agents(): Promise<AgentsOut> { return this.get("/v1/agents"); }
  known(): Promise<KnownAgentsOut> { return this.get("/v1/agents/known"); }
  async metrics(): Promise<string> { return (await this.fetch("GET", "/metrics")).text(); }

  create(session: NewSession, key: string): Promise<SessionOut> {
    return this.post("/v1/sessions", session, { "Idempotency-Key": key });
  }
  stop(run: string): Promise<StopOut> {
    return this.post(`/v1/runs/${encodeURIComponent(run)}/stop`, { by: "the page" });
  }
  edit(run: string, change: EditRun): Promise<RunOut> {
    return this.post(`/v1/runs/${encodeURIComponent(run)}`, change, {}, "PATCH");
  }
  steer(run: string): Promise<HandedOut> {
    return this.post(`/v1/runs/${encodeURIComponent(run)}/steer`, { by: "the page" });
  }
  answer(approval: string, decision: Decision): Promise<ApprovalOut> {
    return this.post(`/v1/approvals/${encodeURIComponent(approval)}`, decision);
  }

  private async get<T>(path: string, query: Query = {}): Promise<T> {
    const said = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
    const search = new URLSearchParams(said.map(([name, value]) => [name, String(value)]));
    return (await this.fetch("GET", said.length ? `${path}?${search}` : path)).json() as Promise<T>;
  }

  private async post<T>(path: string, body: unknown, headers: Record<string, string> = {}, method = "POST"): Promise<T> {
    const told = await this.fetch(method, path, JSON.stringify(body), { "Content-Type": "application/json", ...headers });
    return told.json() as Promise<T>;
  }

  private async fetch(method: string, path: string, body?: string, headers: Record<string, string> = {}): Promise<Response> {
    const token = this.token();
    if (token !== null) headers["Authorization"] = `Bearer ${token}`;
    let answer: Response;
    try {
      answer = await fetch(this.base + path, { method, headers, cache: "no-store", ...(body === undefined ? {} : { body }) });
    } catch {
      throw new Unreachable(`${path} could not be reached`);
    }
    if (!answer.ok) throw new Refusal(await problemOf(answer));
    return answer;
  }
}

async function problemOf(answer: Response): Promise<Problem> {
  try {
    return (await answer.json()) as Problem;
  } catch {
    return { type: "", title: answer.statusText, status: answer.status, detail: `status ${answer.status}`, code: "" };
  }
}
