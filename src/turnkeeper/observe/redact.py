"""Takes secrets out of what people are shown: by their shape, by their name, and by their value.

Decides what a secret looks like. It must not know where the text is shown. Invariant: a value that
was given to it never passes, whole; time is linear in the text's length, whatever the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

HIDDEN = "[hidden]"
SHORTEST = 6
"""A shorter value is no secret, and would be found in every other word."""

_NAME = re.compile(
    r"TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|(?:API|ACCESS|PRIVATE|SIGNING)[_-]?KEY"
    r"|CREDENTIAL|COOKIE|BEARER|AUTHORIZATION|(?:^|[_-])(?:AUTH|PAT|KEY|PWD)(?:$|[_-])",
    re.IGNORECASE,
)

_WORD = r"[A-Za-z0-9._~+/=-]"
_SECRET = r"(?:token|secret|passw(?:or)?d|passphrase|(?:api|access|private|signing)[_-]?key)"
_SHAPES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE if loose else 0), shown)
    for pattern, shown, loose in (
        # the words after a header's name, or after a scheme
        (r"\b(authorization|proxy-authorization|cookie|set-cookie)(\"?\s*[:=]\s*\"?)[^\"\r\n]+",
         rf"\1\2{HIDDEN}", True),
        (rf"\b(bearer|basic)\s+{_WORD}{{6,}}", rf"\1 {HIDDEN}", True),
        # name = value, in a query, in JSON or in an environment; and a command's option
        (rf"({_SECRET}[\"']?\s{{0,9}}[:=]\s{{0,9}}[\"']?)[^\s\"'&,;]{{6,}}", rf"\1{HIDDEN}", True),
        (rf"((?<![\w-])--?[\w-]{{0,40}}{_SECRET}[\w-]{{0,20}}\s{{1,9}}[\"']?)[^\s\"'-][^\s\"']{{5,}}",
         rf"\1{HIDDEN}", True),
        # user and password in an address
        (r"(\b[a-z][a-z0-9+.-]{0,20}://)[^\s/@:]{1,256}:[^\s/@]{1,256}@", rf"\1{HIDDEN}@", True),
        # tokens that are known by how they begin
        (r"\b(?:sk|rk|pk)-[A-Za-z0-9_-]{12,}", HIDDEN, False),
        (r"\b(?:gh[opsur]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}|glpat-[\w-]{16,})",
         HIDDEN, False),
        (r"\bxox[a-z]-[A-Za-z0-9-]{10,}", HIDDEN, False),
        (r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b", HIDDEN, False),
        (r"\bAIza[A-Za-z0-9_-]{30,}", HIDDEN, False),
        (r"\btkp_[A-Za-z0-9_.-]{16,}", HIDDEN, False),
        (r"\bhf_[A-Za-z0-9]{20,}", HIDDEN, False),
        (r"\bya29\.[A-Za-z0-9_-]{20,}", HIDDEN, False),
        (r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*", HIDDEN, False),
        (r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]*(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?",
         HIDDEN, False),
    )
)  # fmt: skip

_HINT = re.compile(
    r"auth|cookie|bearer|basic|token|secret|passw|passphrase|key|://|[srp]k-|gh[opsur]_|github_pat_"
    r"|glpat-|xox|AKIA|ASIA|AIza|hf_|tkp_|ya29|eyJ",
    re.IGNORECASE,
)
"""Text without any of these has none of the shapes: most lines are done with one look."""


def looks_secret(name: str) -> bool:
    """Whether a variable or a setting of that name has a value that is not to be shown."""
    return _NAME.search(name) is not None


def secrets_in(settings: object, secret: bool = False) -> list[str]:
    """The values in these settings, however deep, that stand below a name that looks secret."""
    match settings:
        case str():
            return [settings] if secret else []
        case Mapping():
            inner = ((value, looks_secret(str(name))) for name, value in settings.items())
            return [found for value, below in inner for found in secrets_in(value, secret or below)]
        case list() | tuple():
            return [found for value in settings for found in secrets_in(value, secret)]
        case _:
            return []


class Redactor:
    """Takes out what looks like a secret, and these values wherever they are."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: re.Pattern[str] | None = None
        self._known: set[str] = set()
        self.hide(values)

    def hide(self, values: Iterable[str]) -> None:
        """These as well, from now on."""
        self._known |= {value for value in values if len(value) >= SHORTEST}
        longest_first = sorted(self._known, key=len, reverse=True)
        self._values = re.compile("|".join(map(re.escape, longest_first))) if self._known else None

    def __call__(self, text: str) -> str:
        if self._values is not None:
            text = self._values.sub(HIDDEN, text)
        if _HINT.search(text) is None:
            return text
        for shape, shown in _SHAPES:
            text = shape.sub(shown, text)
        return text
