// The command palette: everything that can be done, by its name.
//
// Decides what is offered. It must not know how it is done. Invariant: whatever the page can do without
// typing a text is offered here.

import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { api, stop, unfinished } from "../app/keeper";
import { go, route, to } from "../app/route";
import { askToNotify, chooseTheme, markSeen } from "../app/settings";
import { line } from "../data/safe";
import type { SessionOut } from "../data/wire";
import { isHelpOpen } from "./help";
import { Modal } from "./parts";

export const isPaletteOpen = signal(false);

interface Command { name: string; hint: string; act: () => void }

export function Palette() {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const [found, setFound] = useState<SessionOut[]>([]);
  useEffect(() => {
    let wanted = true;
    void api.sessions({ search: text, limit: 8 }).then((page) => wanted && setFound(page.items), () => undefined);
    return () => { wanted = false; };
  }, [text]);
  const words = text.toLowerCase().split(/\s+/);
  const offered = [...commands(), ...found.map(asCommand)].filter(({ name, hint }, i, all) => {
    const whole = `${name} ${hint}`.toLowerCase();
    return words.every((word) => whole.includes(word)) && all.findIndex((one) => one.name === name) === i;
  }).slice(0, 14);
  const close = () => (isPaletteOpen.value = false);
  const act = (command: Command | undefined) => { close(); command?.act(); };
  const onKey = (event: KeyboardEvent) => {
    if (event.key === "Escape") close();
    else if (event.key === "ArrowDown") setAt(Math.min(offered.length - 1, at + 1));
    else if (event.key === "ArrowUp") setAt(Math.max(0, at - 1));
    else if (event.key === "Enter") act(offered[at]);
    else return;
    event.preventDefault();
  };
  return (
    <Modal class="palette" label="Commands" close={close}>
        <input autoFocus role="combobox" aria-expanded="true" aria-controls="offered" aria-activedescendant={`offer-${at}`} aria-label="Command"
          placeholder="What do you want to do?" value={text}
          onInput={(event) => { setText(event.currentTarget.value); setAt(0); }} onKeyDown={onKey} />
        <ul id="offered" role="listbox" aria-label="Commands">
          {offered.map((one, i) => (
            <li id={`offer-${i}`} role="option" aria-selected={i === at} onClick={() => act(one)} onPointerEnter={() => setAt(i)}>{one.name}<span class="dim">{one.hint}</span></li>
          ))}
        </ul>
    </Modal>
  );
}

function commands(): Command[] {
  const here = route.value;
  const running = here.view === "session" || here.view === "run"
    ? [...unfinished.value.values()].filter((run) => run.session === here.session) : [];
  return [
    ...running.map((run) => ({ name: `Stop: ${line(run.text, 50)}`, hint: run.state, act: () => void stop(run.id) })),
    { name: "New session", hint: "c", act: () => go(to.fresh) },
    { name: "Sessions", hint: "g s", act: () => go(to.home) },
    { name: "Inbox", hint: "g i", act: () => go(to.inbox) },
    { name: "Overview", hint: "g o", act: () => go(to.overview) },
    { name: "Keys", hint: "?", act: () => (isHelpOpen.value = true) },
    { name: "Mark all endings as seen", hint: "", act: markSeen },
    { name: "Light colours", hint: "theme", act: () => chooseTheme("light") },
    { name: "Dark colours", hint: "theme", act: () => chooseTheme("dark") },
    { name: "Colours of the system", hint: "theme", act: () => chooseTheme("system") },
    { name: "Notify me when an agent asks", hint: "desktop notifications", act: () => void askToNotify() },
  ];
}

function asCommand(session: SessionOut): Command {
  return { name: `Go to ${line(session.title || session.id, 60)}`, hint: session.agent, act: () => go(to.session(session.id)) };
}
