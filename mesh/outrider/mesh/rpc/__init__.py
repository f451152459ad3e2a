"""Calls between the services, by gRPC and by lanes: a server that maps our errors, and ways that notice a dead peer."""

from outrider.mesh.rpc.calling import ask, close_channels
from outrider.mesh.rpc.client import channel
from outrider.mesh.rpc.server import Server
from outrider.mesh.rpc.sockets import local_target, new_socket

__all__ = ["Server", "ask", "channel", "close_channels", "local_target", "new_socket"]
