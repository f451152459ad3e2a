"""The mesh's messages: core NATS, which never makes a publisher wait."""

from outrider.mesh.bus.client import Bus
from outrider.mesh.bus.subscription import Callback, Message, Subscription

__all__ = ["Bus", "Callback", "Message", "Subscription"]
