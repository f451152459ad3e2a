"""Messages over NATS: core NATS, which never makes a publisher wait, and stored messages and values (JetStream)."""

from outrider.mesh.bus.client import Bus
from outrider.mesh.bus.journal import Journal, JournalConfig
from outrider.mesh.bus.kv import Bucket, Entry
from outrider.mesh.bus.micro import Endpoint, MicroService, Query
from outrider.mesh.bus.subscription import Callback, Message, Subscription

__all__ = [
    "Bucket",
    "Bus",
    "Callback",
    "Endpoint",
    "Entry",
    "Journal",
    "JournalConfig",
    "Message",
    "MicroService",
    "Query",
    "Subscription",
]
