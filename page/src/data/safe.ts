// Agents' text, made harmless to look at.
//
// Decides which signs are shown by a picture or by their number instead of being obeyed. It must not
// know where text comes from. Invariant: what it gives has no control sign but tab and line feed, and
// nothing that turns the direction of what stands around it.

const ODD = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u061c\u2028-\u202e\u2066-\u2069\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;
const ESCAPE = /\u001b(?:\[[0-?]{0,32}[ -/]{0,8}[@-~]|\][^\u0007\u001b]{0,512}(?:\u0007|\u001b\\)|[@-Z\\^_])/g;

/** Terminal sequences are left out, other signs that would do something are shown as signs. */
export function inert(text: string): string {
  return text.replaceAll("\r\n", "\n").replace(ESCAPE, "").replace(ODD, shown);
}

/** One line of it, for titles and lists. */
export function line(text: string, most = 200): string {
  const one = inert(text.slice(0, most * 2)).replace(/\s+/g, " ").trim();
  return one.length > most ? `${one.slice(0, most - 1)}…` : one;
}

function shown(sign: string): string {
  const code = sign.codePointAt(0) ?? 0;
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  if (code === 0x7f) return "␡";
  return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
}

/** A link that may be followed: to the web and to nowhere else. */
export function safeLink(href: string): string | null {
  try {
    const url = new URL(href);
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
  } catch {
    return null;
  }
}
