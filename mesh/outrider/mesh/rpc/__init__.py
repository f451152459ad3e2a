"""gRPC between the services: a server that maps our errors, channels that notice a dead peer."""

from outrider.mesh.rpc.client import channel, close_channels
from outrider.mesh.rpc.handlers import remaining
from outrider.mesh.rpc.lane import ask
from outrider.mesh.rpc.server import Server
from outrider.mesh.rpc.sockets import local_target, new_socket

__all__ = ["Server", "ask", "channel", "close_channels", "local_target", "new_socket", "remaining"]
