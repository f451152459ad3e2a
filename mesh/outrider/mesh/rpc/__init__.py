"""Calls between the services, all of them gRPC: a server that maps our errors, and channels that notice a dead peer."""

from outrider.mesh.rpc.client import call, channel, close_channels, secure_channels, stub
from outrider.mesh.rpc.server import Server
from outrider.mesh.rpc.sockets import local_target, new_socket

__all__ = ["Server", "call", "channel", "close_channels", "local_target", "new_socket", "secure_channels", "stub"]
