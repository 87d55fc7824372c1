"""Agents that mean the page no good, one that talks without end, and one that counts."""

import time

from turnkeeper import SyncTurn, agent

MARKUP = (
    "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>\n"
    "<iframe src='https://evil.example/'></iframe> <b onclick='window.hacked = 3'>bold</b>\n"
)
LINKS = (
    "[click](javascript:window.hacked=4) [data](data:text/html,x) [good](https://example.com/a)\n"
    "![picture](https://evil.example/p.png) <https://example.com/auto>\n"
)
SIGNS = "\x1b[31mred\x1b[0m \x1b]0;title\x07 bell\x07 null\x00 turn \u202earound\u202c end\n"


@agent
def hostile(turn: SyncTurn) -> None:
    """Markup, signs and tools that would do something anywhere but here."""
    turn.think(MARKUP)
    turn.say(MARKUP + "\n" + LINKS + "\n")
    turn.say(SIGNS + "\n")
    turn.say("```html\n" + MARKUP + "```\n\n")
    turn.say("| <i>a</i> | b |\n|---|---|\n| <img src=x onerror='window.hacked=5'> | c |\n\n")
    with turn.tool("<img src=x onerror='window.hacked=6'>", {"command": MARKUP}) as tool:
        tool.progress(SIGNS)
        tool.output = MARKUP
    turn.ask("<script>window.hacked=7</script>", {"path": MARKUP + SIGNS})


@agent
def endless_line(turn: SyncTurn) -> None:
    """One line of 5 MB, and a word after it."""
    turn.say("x" * 5_000_000)
    turn.say("\n\nafter it\n")


@agent
def counting(turn: SyncTurn) -> None:
    """Counts in paragraphs as far as it is told, slowly, in a process of its own."""
    for number in range(1, int(turn.text) + 1):
        turn.say(f"word {number}\n\n")
        time.sleep(0.05)
