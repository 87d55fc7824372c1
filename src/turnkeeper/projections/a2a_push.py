"""Push configurations: whom to tell of a task, and how they know that it is us.

Decides their shape and which headers a push carries. It must not know how it is sent or kept.
Invariant: what is secret in it is in the headers alone.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class PushConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Tell `url` of `task`. `told` is the last state that was told; `over`: nothing more will be.

    `version` is the one in which the client spoke, and is spoken to.
    """

    task: str
    id: str
    url: str
    token: str = ""
    scheme: str = ""
    credentials: str = ""
    version: Literal["0.3", "1.0"] = "1.0"
    told: str = ""
    over: bool = False

    @property
    def headers(self) -> dict[str, str]:
        media = "application/json" if self.version == "0.3" else "application/a2a+json"
        found = {"Content-Type": media, "A2A-Version": self.version}
        if self.token:
            found["X-A2A-Notification-Token"] = self.token
        if self.scheme and self.credentials:
            found["Authorization"] = f"{self.scheme} {self.credentials}"
        return found
