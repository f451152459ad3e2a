"""Messages over NATS: core NATS, which never makes a publisher wait, and stored messages and values (JetStream)."""

from outrider.mesh.bus.client import Bus
from outrider.mesh.bus.issuer import ACCOUNT, ISSUER, Issuer, find_issuer
from outrider.mesh.bus.login import SEED_SUFFIX, Login, find_login, inbox
from outrider.mesh.bus.micro import Endpoint, MicroService, Query
from outrider.mesh.bus.stored.journal import Journal, JournalConfig
from outrider.mesh.bus.stored.kv import Bucket, Entry
from outrider.mesh.bus.subscription import Callback, Message, Subscription

__all__ = [
    "ACCOUNT",
    "ISSUER",
    "SEED_SUFFIX",
    "Bucket",
    "Bus",
    "Callback",
    "Endpoint",
    "Entry",
    "Issuer",
    "Journal",
    "JournalConfig",
    "Login",
    "Message",
    "MicroService",
    "Query",
    "Subscription",
    "find_issuer",
    "find_login",
    "inbox",
]
