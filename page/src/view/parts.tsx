// Small parts that several views share.
//
// Decides how a state, a time or a long list looks. It must not know what they are about. Invariant:
// colour never says anything alone; a list has no more elements than a screen can show.

import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from "@tanstack/virtual-core";
import { Component, type ComponentChildren } from "preact";
import { useLayoutEffect, useReducer, useRef, useState } from "preact/hooks";
import { now } from "../app/keeper";
import { inert } from "../data/safe";
import { ago, detailOf, left, outcomeWord, phaseWord } from "./words";

export function Chip({ tone, children, title }: { tone: string; children: ComponentChildren; title?: string }) {
  return <span class={`chip ${tone}`} title={title ?? ""}><i aria-hidden="true" />{children}</span>;
}

export function OutcomeChip({ kind }: { kind: string }) {
  return <Chip tone={`out-${kind}`}>{outcomeWord(kind)}</Chip>;
}

export function PhaseChip({ phase, stalling }: { phase: string; stalling?: boolean }) {
  if (stalling) return <Chip tone="ph-stalling">stalling</Chip>;
  return <Chip tone={`ph-${phase}`}>{phaseWord(phase)}</Chip>;
}

export function Ago({ at }: { at: number }) {
  return <time dateTime={new Date(at * 1000).toISOString()} title={new Date(at * 1000).toLocaleString()}>{ago(at, now.value)}</time>;
}

/** Counts down to a moment, in whole seconds. */
export function Until({ at }: { at: number }) {
  const seconds = at - now.value;
  return <>{seconds > 0.5 ? left(seconds) : "a moment"}</>;
}

/** Draws anew only when `rev` is another one. */
export class Memo extends Component<{ rev: string | number; draw: () => ComponentChildren }> {
  override shouldComponentUpdate(next: { rev: string | number }): boolean {
    return next.rev !== this.props.rev;
  }
  override render() {
    return this.props.draw();
  }
}

export function Detail({ detail }: { detail: string }) {
  const { code, rest } = detailOf(detail);
  return <>{code ? <span class="code">{code} </span> : null}<span class="dim">{inert(rest)}</span></>;
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return <div class="empty"><h2>{title}</h2>{children}</div>;
}

/** Something above everything else: the rest cannot be reached meanwhile, and when it closes the focus
 * is where it was. */
export function Modal(props: { class: string; label: string; close: () => void; children: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    dialog.current?.showModal();
    return () => { if (before?.isConnected && document.activeElement === document.body) before.focus(); };
  }, []);
  return (
    <dialog ref={dialog} class={`modal ${props.class}`} aria-label={props.label} onClose={props.close}
      onClick={(event) => { if (event.target === dialog.current) props.close(); }}>
      {props.children}
    </dialog>
  );
}

interface ListProps<T> {
  items: T[];
  keyOf: (item: T) => string | number;
  estimate: number;
  draw: (item: T, index: number) => ComponentChildren;
  /** Whether it follows what is added at its end, as long as its end is in sight. */
  follow?: boolean;
  role: "list" | "log";
  label: string;
  class?: string;
  onEnd?: () => void;
}

const NEAR_PX = 60;

export function List<T>(props: ListProps<T>) {
  const { items, keyOf, estimate, draw, follow = false, role, label, onEnd } = props;
  const frame = useRef<HTMLDivElement>(null);
  const stuck = useRef(true);
  const [away, setAway] = useState(false);
  const [, redraw] = useReducer((n: number) => n + 1, 0);
  const [virtual] = useState(() => new Virtualizer<HTMLDivElement, HTMLDivElement>(options()));
  virtual.setOptions(options());
  function options() {
    return {
      count: items.length,
      getScrollElement: () => frame.current,
      estimateSize: () => estimate,
      getItemKey: (index: number) => keyOf(items[index]!),
      overscan: 6,
      observeElementRect,
      observeElementOffset,
      scrollToFn: elementScroll,
      onChange: () => redraw(undefined as never),
    };
  }
  useLayoutEffect(() => virtual._didMount(), []);
  useLayoutEffect(() => {
    virtual._willUpdate();
    const element = frame.current;
    if (follow && stuck.current && element !== null) element.scrollTop = element.scrollHeight;
  });
  const shown = virtual.getVirtualItems();
  const onScroll = () => {
    const element = frame.current;
    if (element === null) return;
    const left = element.scrollHeight - element.scrollTop - element.clientHeight;
    stuck.current = left < NEAR_PX;
    if (follow) setAway(!stuck.current);
    if (left < 600) onEnd?.();
  };
  return (
    <div class={`list-frame ${props.class ?? ""}`}>
      <div class="list" ref={frame} onScroll={onScroll} role={role} aria-live="off" aria-label={label} tabIndex={0}>
        <div class="list-whole" role="presentation" style={{ height: `${virtual.getTotalSize()}px` }}>
          {shown.map((one) => (
            <div key={one.key} class="list-one" data-index={one.index} role={role === "list" ? "listitem" : "presentation"}
              ref={(element) => { if (element !== null) virtual.measureElement(element); }}
              style={{ transform: `translateY(${one.start}px)` }}>
              {items[one.index] === undefined ? null : draw(items[one.index]!, one.index)}
            </div>
          ))}
        </div>
      </div>
      {follow && away ? (
        <button class="to-end" onClick={() => { stuck.current = true; setAway(false); frame.current?.scrollTo({ top: frame.current.scrollHeight }); }}>
          ↓ newest
        </button>
      ) : null}
    </div>
  );
}
