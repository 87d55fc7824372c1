// What is said aloud by a screen reader. The conversation itself is no live region: it would say every
// word that streams in, and everything again that is scrolled into sight.
//
// Decides where it is said. It must not know what is worth saying.

import { useEffect, useState } from "preact/hooks";
import { News } from "../data/news";
import type { Session } from "../data/session";

const LOOK_MS = 1000;

export function Announcer({ session }: { session: Session }) {
  const [told, setTold] = useState("");
  useEffect(() => {
    const news = new News();
    const timer = setInterval(() => {
      const said = news.look(session);
      if (said !== "") setTold(said);
    }, LOOK_MS);
    return () => clearInterval(timer);
  }, [session]);
  return <p class="aloud" aria-live="polite" aria-atomic="true">{told}</p>;
}
