// The frame around every view: where one can go, how the connection is, and the keys.
//
// Decides which view is shown. It must not know what is in it. Invariant: whatever is wrong with the
// connection is said in words, at once, and nothing on the screen pretends to be live.

import { useEffect, useState } from "preact/hooks";
import { letters, link, linkState, needsToken, now, outbox, questions, useToken } from "../app/keeper";
import { go, route, to, type Route } from "../app/route";
import { chooseTheme, theme, unseen } from "../app/settings";
import { answerByKey } from "./approval";
import { Fresh } from "./fresh";
import { COMMANDS_KEY, Help, isHelpOpen } from "./help";
import { Inbox } from "./inbox";
import { Overview } from "./overview";
import { isPaletteOpen, Palette } from "./palette";
import { Empty } from "./parts";
import { RunView } from "./run";
import { SessionView } from "./session";
import { Sessions } from "./sessions";

export function Shell() {
  useEffect(() => {
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  if (needsToken.value) return <AskToken />;
  const here = route.value;
  return (
    <div class={`shell at-${here.view}`}>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.querySelector<HTMLElement>("main")?.focus(); }}>To the content</a>
      <Nav here={here} />
      <Connection />
      <Sessions />
      <main tabIndex={-1}>{view(here)}</main>
      {isPaletteOpen.value ? <Palette /> : null}
      {isHelpOpen.value ? <Help /> : null}
    </div>
  );
}

function view(here: Route) {
  switch (here.view) {
    case "home":
      return <Empty title="Choose a session"><p>Or <a href={to.fresh}>begin a new one</a>. <kbd>{COMMANDS_KEY}</kbd> finds everything, <kbd>?</kbd> shows the keys.</p></Empty>;
    case "new":
      return <Fresh />;
    case "inbox":
      return <Inbox />;
    case "overview":
      return <Overview />;
    case "session":
      return <SessionView key={here.session} id={here.session} />;
    case "run":
      return <RunView key={here.run} session={here.session} run={here.run} />;
  }
}

const SIGNS = { system: "◐", light: "☀", dark: "☾" } as const;
const AFTER = { system: "light", light: "dark", dark: "system" } as const;

function Nav({ here }: { here: Route }) {
  const waiting = questions.value.length + unseen().length;
  const at = here.view === "inbox" || here.view === "overview" ? here.view : "sessions";
  return (
    <nav aria-label="Main">
      <a class="brand" href={to.home} aria-label="Turnkeeper">Turn<b>keeper</b></a>
      <a href={to.home} aria-current={at === "sessions" ? "page" : undefined}>Sessions</a>
      <a href={to.inbox} aria-current={at === "inbox" ? "page" : undefined}>Inbox{waiting ? <span class="count" aria-label={`${waiting} wait for you`}>{waiting}</span> : null}</a>
      <a href={to.overview} aria-current={at === "overview" ? "page" : undefined}>Overview</a>
      <span class="space" />
      <button class="quiet" onClick={() => (isPaletteOpen.value = true)} title={COMMANDS_KEY}><span class="wide">Commands <kbd>{COMMANDS_KEY}</kbd></span><span class="narrow" aria-hidden="true">⋯</span></button>
      <button class="quiet" onClick={() => chooseTheme(AFTER[theme.value])} aria-label={`Colours: ${theme.value}`} title={`Colours: ${theme.value}`}>{SIGNS[theme.value]}</button>
    </nav>
  );
}

/** The first connection is not worth a word, nor a jump of everything below it, unless it takes longer. */
const PATIENCE_MS = 1500;

function Connection() {
  void letters.value;
  const state = linkState.value;
  void now.value;
  const begins = state === "connecting" && performance.now() < PATIENCE_MS;
  if (state === "open" || begins) return <div class="connection" role="status" />;
  const waiting = outbox.letters.length;
  const left = Math.max(0, Math.ceil((link.retryAt - performance.now()) / 1000));
  return (
    <div class="connection lost" role="status">
      {state === "connecting" ? "Connecting …" : `Reconnecting${left ? ` in ${left} s` : ""} … What you see is as it was.`}
      {waiting ? ` ${waiting === 1 ? "1 message waits" : `${waiting} messages wait`} to be sent.` : ""}
      <button class="quiet" onClick={() => link.hurry()}>Now</button>
    </div>
  );
}

function AskToken() {
  const [token, setToken] = useState("");
  return (
    <main class="ask-token" tabIndex={-1}>
      <form onSubmit={(event) => { event.preventDefault(); if (token.trim()) useToken(token); }}>
        <h1>Turn<b>keeper</b></h1>
        <p>This server wants a token. <code>turnkeeper demo</code> prints an address that has one; that of <code>turnkeeper serve</code> is in the file <code>token</code> of its data directory.</p>
        <label class="field">Token <input type="password" autoComplete="off" value={token} onInput={(event) => setToken(event.currentTarget.value)} /></label>
        <button class="good" type="submit">Enter</button>
      </form>
    </main>
  );
}

/** As it is now: that something was closed is told a moment later, and the next key may be quicker. */
function isBehindModal(): boolean {
  const modal = document.querySelector<HTMLDialogElement>("dialog.modal");
  return modal?.open ?? (isPaletteOpen.value || isHelpOpen.value);
}

let before = "";

function onKey(event: KeyboardEvent): void {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    isPaletteOpen.value = !isPaletteOpen.value;
    return;
  }
  const target = event.target as HTMLElement | null;
  if (isBehindModal() || target?.closest("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  const chord = before === "g" ? `g ${event.key}` : event.key;
  before = event.key;
  const where = { "g s": to.home, "g i": to.inbox, "g o": to.overview, c: to.fresh }[chord];
  if (where !== undefined) go(where);
  else if (chord === "?") isHelpOpen.value = true;
  else if (chord === "r") document.querySelector<HTMLElement>("#say")?.focus();
  else if (chord === "/") document.querySelector<HTMLElement>('input[type="search"]')?.focus();
  else if (!answerByKey(event)) return;
  event.preventDefault();
}
