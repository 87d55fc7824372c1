// The shapes of the API and of the events. Made from turnkeeper.api and
// turnkeeper.core.events by `make diagram`; do not edit it by hand.

export interface Parent {
  session: string;
  run: string;
  depth: number;
  not_after?: number | null;
}

export interface Rules {
  allow?: string[];
  ask?: string[];
  deny?: string[];
}

export interface RulesIn {
  allow?: string[];
  ask?: string[];
  deny?: string[];
}

export interface NewSession {
  agent: string;
  id?: string | null;
  title?: string;
  cwd?: string;
  limits?: Record<string, number>;
  labels?: Record<string, string>;
  approvals?: RulesIn;
}

export interface TextPart {
  text: string;
  type?: "text";
}

export interface NewMessage {
  text?: string | null;
  content?: TextPart[] | null;
  priority?: "person" | "agent" | "background";
  when_busy?: "queue" | "steer" | "interrupt";
  deadline_s?: number | null;
  limits?: Record<string, number>;
  sender?: string;
}

export interface EditRun {
  text?: string | null;
  content?: TextPart[] | null;
  before?: string | null;
  by?: string;
}

export interface Steer {
  by?: string;
}

export interface Decision {
  decision: "allow" | "deny";
  note?: string;
  by?: string;
  always?: boolean;
  rule?: string | null;
}

export interface Stop {
  by?: string;
}

export interface Subscribe {
  type: "subscribe";
  session: string;
  after?: number;
  id?: string | null;
}

export interface Unsubscribe {
  type: "unsubscribe";
  session: string;
  id?: string | null;
}

export interface WatchSessions {
  type: "watch_sessions";
  id?: string | null;
}

export interface UnwatchSessions {
  type: "unwatch_sessions";
  id?: string | null;
}

export interface SendMessage {
  type: "send";
  id: string;
  session: string;
  message: NewMessage;
  key?: string | null;
}

export interface StopRun {
  type: "stop";
  id: string;
  run: string;
  by?: string;
}

export interface Answer {
  type: "answer";
  id: string;
  approval: string;
  decision: "allow" | "deny";
  note?: string;
  by?: string;
  always?: boolean;
  rule?: string | null;
}

export interface Ping {
  type: "ping";
  id?: string | null;
}

export interface Sample {
  busy?: boolean;
  state?: string;
  cpu_s?: number;
  io_bytes?: number;
  children?: number;
  waiting_in?: string;
  sockets?: string[];
}

export interface Seen {
  phase?: string;
  attempt?: number;
  clock?: string;
  budget_s?: number;
  silent_s?: number;
  heartbeat_s?: number | null;
  last?: string;
  tools?: string[];
  sample?: Sample | null;
  exit_code?: number | null;
  by?: string;
}

export interface Outcome {
  kind: "completed" | "cancelled" | "timed_out" | "failed" | "lost";
  reason: string;
  detail: string;
  evidence: Seen;
  at: number;
}

export interface NextClock {
  clock: string;
  in_s: number;
  budget_s: number;
}

export interface SessionOut {
  id: string;
  agent: string;
  title: string;
  cwd: string;
  limits: Record<string, number>;
  labels: Record<string, string>;
  created_at: number;
  updated_at: number;
  seq: number;
  state: "idle" | "busy";
  running: string | null;
  queued: number;
}

export interface AcceptedOut {
  message_id: string;
  run_id: string;
  seq: number;
  position: number;
  duplicate: boolean;
}

export interface OutcomeOut {
  kind: "completed" | "cancelled" | "timed_out" | "failed" | "lost";
  reason: string;
  detail: string;
  evidence: Seen;
  at: number;
  code: string | null;
}

export interface RunOut {
  id: string;
  session: string;
  message: string;
  agent: string;
  state: "queued" | "running" | "ended";
  phase: string;
  clocks: NextClock[];
  parent: string | null;
  position: number | null;
  successor: string | null;
  priority: "person" | "agent" | "background";
  text: string;
  accepted_at: number;
  started_at: number | null;
  ended_at: number | null;
  outcome: OutcomeOut | null;
}

export interface StopOut {
  run: string;
  state: "stopping" | "ended";
  changed: boolean;
}

export interface HandedOut {
  run: string;
  message: string;
  into: string;
  changed: boolean;
}

export interface ApprovalOut {
  id: string;
  session: string;
  run: string;
  tool: string;
  input: unknown;
  input_is_cut: boolean;
  state: "open" | "allowed" | "denied" | "expired" | "withdrawn";
  requested_at: number;
  expires_at: number | null;
  settled_at: number | null;
  by: string;
  note: string;
  summary: string;
  rule: string;
}

export interface AgentOut {
  name: string;
  driver: string;
  abilities: Record<string, boolean>;
  outlives_server: boolean;
}

export interface SessionsOut {
  items: SessionOut[];
  next: string | null;
}

export interface RunsOut {
  items: RunOut[];
  next: string | null;
}

export interface ApprovalsOut {
  items: ApprovalOut[];
  next: string | null;
}

export interface AgentsOut {
  items: AgentOut[];
  next: string | null;
}

export interface KnownAgentOut {
  name: string;
  driver: string;
  state: "ready" | "not installed" | "needs login" | "does not answer";
  version: string;
  todo: string;
  served: boolean;
}

export interface KnownAgentsOut {
  items: KnownAgentOut[];
  next: string | null;
}

export interface Problem {
  type: string;
  title: string;
  status: number;
  detail: string;
  code: string;
  todo?: string;
  field?: string | null;
  extra?: Record<string, unknown>;
}

export interface ProcessSeen {
  pid: number;
  parent: number;
  command: string;
  state: string;
  cpu_s: number;
  age_s: number;
  waiting_in: string;
}

export interface ClockSeen {
  clock: string;
  in_s: number;
  budget_s: number;
  then: string;
}

export interface Diagnosis {
  run: string;
  session: string;
  agent: string;
  state: "queued" | "running" | "ended";
  phase: string;
  running_s: number | null;
  attempt: number;
  last: string;
  silent_s: number | null;
  heartbeat_s: number | null;
  stalling_in_s: number | null;
  clocks: ClockSeen[];
  tools: string[];
  approvals: string[];
  position: number | null;
  behind: string | null;
  process: string | null;
  processes: ProcessSeen[] | null;
  sockets: string[];
  sample: Sample | null;
  elsewhere: boolean;
  outcome: Outcome | null;
  hints: string[];
}

export interface Subscribed {
  type: "subscribed";
  session: string;
  after: number;
  seq: number;
  id: string | null;
}

export interface Unsubscribed {
  type: "unsubscribed";
  session: string;
  id: string | null;
}

export interface Sessions {
  type: "sessions";
  items: SessionOut[];
  runs: RunOut[];
  everything: boolean;
  id: string | null;
}

export interface Reply {
  type: "reply";
  id: string;
  answer: unknown;
}

export interface Refused {
  type: "error";
  problem: Problem;
  id: string | null;
}

export interface Pong {
  type: "pong";
  id: string | null;
}

export interface Goodbye {
  type: "goodbye";
  why: string;
}

export interface SessionCreated {
  agent: string;
  title?: string;
  cwd?: string;
  limits?: Record<string, number>;
  labels?: Record<string, string>;
  rules?: Rules;
}

export interface MessageAccepted {
  message: string;
  run: string;
  text: string;
  priority?: "person" | "agent" | "background";
  when_busy?: "queue" | "steer" | "interrupt";
  limits?: Record<string, number>;
  key?: string | null;
  fingerprint?: string;
  parent?: Parent | null;
  sender?: string;
  position?: number;
  steered?: boolean;
  labels?: Record<string, string>;
}

export interface MessageEdited {
  message: string;
  text: string;
  by?: string;
}

export interface QueueMoved {
  message: string;
  before?: string | null;
  by?: string;
}

export interface MessageHandedOver {
  message: string;
  previous: string;
  text: string;
  by?: string;
}

export interface MessageDelivered {
  frame: number;
}

export interface MessageSteered {
  message: string;
  frame: number;
}

export interface RunRequeued {
  message: string;
  previous: string;
  cause: "preempted" | "lost" | "not_taken";
}

export interface RunStarted {
  message: string;
  limits: Record<string, number>;
  not_after?: number | null;
}

export interface AttemptStarted {
  attempt: number;
  process: string;
  fresh: boolean;
  conversation?: string | null;
  node?: string;
}

export interface AttemptReady {
  conversation?: string | null;
}

export interface AttemptFailed {
  attempt: number;
  reason: string;
  detail?: string;
}

export interface AttemptEscalated {
  attempt: number;
  to: "kill";
}

export interface AttemptEnded {
  attempt: number;
  how: "boundary" | "gone";
}

export interface ProcessEnded {
  process: string;
  detail?: string;
}

export interface OutputText {
  text: string;
}

export interface OutputThinking {
  text: string;
}

export interface ToolStartedFact {
  tool: string;
  name: string;
  input?: unknown;
}

export interface ToolProgressFact {
  tool: string;
  text?: string;
}

export interface ToolEndedFact {
  tool: string;
  ok?: boolean;
  output?: string;
}

export interface ApprovalRequested {
  approval: string;
  ref: string;
  tool: string;
  input?: unknown;
  expires_at?: number | null;
  what?: "tool" | "plan";
}

export interface ApprovalSettled {
  approval: string;
  decision: "allowed" | "denied" | "expired" | "withdrawn";
  by?: string;
  note?: string;
  answer?: boolean;
}

export interface RunStalling {
  clock: string;
  silent_s: number;
  budget_s: number;
  diagnosis: string;
  seen: Seen;
}

export interface RunStopping {
  outcome: "completed" | "cancelled" | "timed_out" | "failed" | "lost";
  reason: string;
  detail: string;
  seen: Seen;
  interrupt?: boolean;
}

export interface RunEnded {
  outcome: Outcome;
  cleanup?: "none" | "sweep" | "term" | "kill";
  text?: string | null;
}

export interface Late {
  what: string;
  data?: unknown;
}

export interface ConversationFact {
  conversation: string;
}

export interface ContextLostFact {
  conversation: string;
}

export interface RuleAdded {
  rule: string;
  approval?: string;
  by?: string;
}

export interface ChildStarted {
  child: string;
  session: string;
}

export interface ChildEnded {
  child: string;
  session: string;
  outcome: "completed" | "cancelled" | "timed_out" | "failed" | "lost";
  reason: string;
}

export interface Facts {
  'session.created': SessionCreated;
  'message.accepted': MessageAccepted;
  'message.edited': MessageEdited;
  'queue.moved': QueueMoved;
  'message.handed_over': MessageHandedOver;
  'message.delivered': MessageDelivered;
  'message.steered': MessageSteered;
  'run.requeued': RunRequeued;
  'run.started': RunStarted;
  'attempt.started': AttemptStarted;
  'attempt.ready': AttemptReady;
  'attempt.failed': AttemptFailed;
  'attempt.escalated': AttemptEscalated;
  'attempt.ended': AttemptEnded;
  'process.ended': ProcessEnded;
  'output.text': OutputText;
  'output.thinking': OutputThinking;
  'tool.started': ToolStartedFact;
  'tool.progress': ToolProgressFact;
  'tool.ended': ToolEndedFact;
  'approval.requested': ApprovalRequested;
  'approval.settled': ApprovalSettled;
  'run.stalling': RunStalling;
  'run.stopping': RunStopping;
  'run.ended': RunEnded;
  'late': Late;
  'session.conversation': ConversationFact;
  'session.context_lost': ContextLostFact;
  'session.rule_added': RuleAdded;
  'child.started': ChildStarted;
  'child.ended': ChildEnded;
}

export type Kind = keyof Facts;

/** One fact of a session's log. */
export type Event = {
  [K in Kind]: {
    seq: number; session: string; run: string | null;
    kind: K; at: number; data: Facts[K];
  };
}[Kind];

export interface Events { type: "events"; session: string; events: Event[] }

export type Incoming = Subscribe | Unsubscribe | WatchSessions | UnwatchSessions | SendMessage | StopRun | Answer | Ping;
export type Outgoing = Events | Subscribed | Unsubscribed | Sessions | Reply | Refused | Pong | Goodbye;
