"""The client for a Turnkeeper on the network: `Client` (async) and `SyncClient` (blocking).

It speaks the network API and shares nothing with the server but the shapes of `turnkeeper.api`.
"""

from turnkeeper.client.client import Client
from turnkeeper.client.options import Options
from turnkeeper.client.run import RemoteRun
from turnkeeper.client.sender import OutboxView, Outgoing
from turnkeeper.client.shapes import AnyEvent, Health, Page, Pages, RawEvent
from turnkeeper.client.sync import SyncClient, SyncOutbox, SyncOutgoing, SyncPages, SyncRun
from turnkeeper.client.trouble import ClientClosed
from turnkeeper.client.watching import Events

__all__ = [
    "AnyEvent", "Client", "ClientClosed", "Events", "Health", "Options", "OutboxView",
    "Outgoing", "Page", "Pages", "RawEvent", "RemoteRun", "SyncClient", "SyncOutbox",
    "SyncOutgoing", "SyncPages", "SyncRun",
]  # fmt: skip
