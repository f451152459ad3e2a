"""The mesh's messages: core NATS, which never makes a publisher wait; and what is stored, journals and values."""

from outrider.mesh.bus.client import Bus
from outrider.mesh.bus.journal import Journal, Kept
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
    "Kept",
    "Message",
    "MicroService",
    "Query",
    "Subscription",
]
