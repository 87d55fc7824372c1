// Agents' text as Markdown, made of elements and never of markup.
//
// Decides which Markdown is shown how. It must not know sessions. Invariant: whatever the text says,
// nothing but the elements below comes of it: markup in it is text, pictures are links, and links lead
// to the web only, without telling where they were followed.

import { lexer, type Token, type Tokens } from "marked";
import type { ComponentChildren } from "preact";
import { inert, safeLink } from "../data/safe";

/** A fence that an earlier block opened goes on here: all of it is code. */
export function Markdown({ text, inside }: { text: string; inside: string }) {
  const shown = inert(text);
  if (inside !== "") {
    return <div class="md"><Code text={shown.replace(/\n {0,3}(`{3,}|~{3,})\s*$/, "")} lang={langOf(inside)} /></div>;
  }
  return <div class="md" dir="auto">{blocks(read(shown))}</div>;
}

function read(text: string): Token[] {
  try {
    return lexer(text, { gfm: true, breaks: true });
  } catch {
    return [{ type: "text", raw: text, text } as Tokens.Text];
  }
}

function langOf(fence: string): string {
  return fence.replace(/^ {0,3}[`~]+/, "").trim().split(/\s/)[0] ?? "";
}

function Code({ text, lang }: { text: string; lang: string }) {
  return <pre dir="ltr" tabIndex={0} aria-label={lang ? `Code, ${lang}` : "Code"}>{lang ? <span class="lang">{lang}</span> : null}<code>{text}</code></pre>;
}

function blocks(tokens: Token[]): ComponentChildren {
  return tokens.map(block);
}

function block(token: Token): ComponentChildren {
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "heading": {
      const Tag = `h${Math.min(6, (token as Tokens.Heading).depth + 2)}` as "h3";
      return <Tag>{inline((token as Tokens.Heading).tokens)}</Tag>;
    }
    case "paragraph":
      return <p>{inline((token as Tokens.Paragraph).tokens)}</p>;
    case "text": {
      const text = token as Tokens.Text;
      return <>{text.tokens ? inline(text.tokens) : text.text}</>;
    }
    case "code":
      return <Code text={(token as Tokens.Code).text} lang={(token as Tokens.Code).lang ?? ""} />;
    case "blockquote":
      return <blockquote>{blocks((token as Tokens.Blockquote).tokens)}</blockquote>;
    case "hr":
      return <hr />;
    case "list":
      return list(token as Tokens.List);
    case "table":
      return table(token as Tokens.Table);
    default:
      return <p>{token.raw}</p>;
  }
}

function list(token: Tokens.List): ComponentChildren {
  const items = token.items.map((item) => (
    <li class={item.task ? "task" : ""}>
      {item.task ? <input type="checkbox" disabled checked={item.checked ?? false} aria-label={item.checked ? "done" : "to do"} /> : null}
      {blocks(item.tokens)}
    </li>
  ));
  return token.ordered ? <ol start={Number(token.start) || 1}>{items}</ol> : <ul>{items}</ul>;
}

function table(token: Tokens.Table): ComponentChildren {
  return (
    <div class="table" tabIndex={0} role="region" aria-label="Table"><table>
      <thead><tr>{token.header.map((cell) => <th>{inline(cell.tokens)}</th>)}</tr></thead>
      <tbody>{token.rows.map((row) => <tr>{row.map((cell) => <td>{inline(cell.tokens)}</td>)}</tr>)}</tbody>
    </table></div>
  );
}

function inline(tokens: Token[] | undefined): ComponentChildren {
  return (tokens ?? []).map((token) => {
    switch (token.type) {
      case "strong":
        return <strong>{inline((token as Tokens.Strong).tokens)}</strong>;
      case "em":
        return <em>{inline((token as Tokens.Em).tokens)}</em>;
      case "del":
        return <del>{inline((token as Tokens.Del).tokens)}</del>;
      case "codespan":
        return <code>{(token as Tokens.Codespan).text}</code>;
      case "br":
        return <br />;
      case "link":
        return link((token as Tokens.Link).href, inline((token as Tokens.Link).tokens), token.raw);
      case "image":
        return link((token as Tokens.Image).href, `picture: ${(token as Tokens.Image).text}`, token.raw);
      case "escape":
        return (token as Tokens.Escape).text;
      case "text":
        return (token as Tokens.Text).tokens ? inline((token as Tokens.Text).tokens) : unescape((token as Tokens.Text).text);
      default:
        return token.raw;
    }
  });
}

function unescape(text: string): string {
  return text.replace(/&(amp|lt|gt|quot|#39);/g, (_, name: string) => ({ amp: "&", lt: "<", gt: ">", quot: '"', "#39": "'" })[name] ?? "");
}

function link(href: string, children: ComponentChildren, raw: string): ComponentChildren {
  const where = safeLink(href);
  if (where === null) return raw;
  return <a href={where} target="_blank" rel="noopener noreferrer nofollow" title={where}>{children}</a>;
}
