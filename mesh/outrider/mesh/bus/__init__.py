"""The mesh's messages: core NATS, which never makes a publisher wait, and journals of what it carried."""

from outrider.mesh.bus.client import Bus
from outrider.mesh.bus.journal import Journal, Kept
from outrider.mesh.bus.subscription import Callback, Message, Subscription

__all__ = ["Bus", "Callback", "Journal", "Kept", "Message", "Subscription"]
