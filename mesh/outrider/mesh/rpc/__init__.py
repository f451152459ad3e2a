"""gRPC between the services: a server that maps our errors, channels that notice a dead peer."""

from outrider.mesh.rpc.client import channel, close_channels
from outrider.mesh.rpc.handlers import remaining
from outrider.mesh.rpc.lane import ask
from outrider.mesh.rpc.server import Server

__all__ = ["Server", "ask", "channel", "close_channels", "remaining"]
