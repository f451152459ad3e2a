"""A service as a process of its own: flags in, exit code out."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Sequence

import uvloop
from msgspec.structs import replace
from outrider.mesh.addresses import own_host
from outrider.mesh.config import Settings, load, parse_flags
from outrider.mesh.errors import ConfigError
from outrider.mesh.lifecycle import CannotStart, Lifecycle
from outrider.mesh.service import Service
from outrider.mesh.telemetry import get_logger
from outrider.mesh.urls import require_broker, without_passwords
from setproctitle import setproctitle

_EXIT_S = 3.0
_AGAIN_S = 0.5
_log = get_logger("process")


def main(service_type: type[Service], arguments: Sequence[str]) -> int:
    """Runs the service as ``arguments`` say; the exit code (see `outrider.mesh.service.run`)."""
    program = f"outrider {service_type.kind}"
    setproctitle(program)
    try:
        file, flags = parse_flags(program, service_type.settings, arguments)
        settings = load(service_type.settings, service_type.kind, file=file, env=os.environ, flags=flags)
        return _serve(service_type, settings)
    except (ConfigError, CannotStart) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return error.exit_code


def _serve(service_type: type[Service], settings: Settings) -> int:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code = 1
        try:
            code = runner.run(_run(service_type, settings))
        except CannotStart as error:
            code = error.exit_code
            raise
        except ConfigError as error:
            code = error.exit_code
            raise
        except Exception:
            _log.exception("crashed")
        finally:
            _exit_later(code)
    return code


async def _run(service_type: type[Service], settings: Settings) -> int:
    settings = await _placed(settings)
    lifecycle = Lifecycle(service_type(settings), settings)
    loop = asyncio.get_running_loop()

    def on_thread_death(details: threading.ExceptHookArgs) -> None:
        error = details.exc_value or SystemExit()
        _log.error("a thread died", thread=details.thread and details.thread.name, exc_info=error)
        loop.call_soon_threadsafe(lifecycle.fail, error)

    threading.excepthook = on_thread_death
    return await lifecycle.run()


async def _placed(settings: Settings) -> Settings:
    """``settings`` with the address to listen on. Raises `CannotStart` if no way to NATS is found in its time."""
    require_broker(settings.nats_url)
    gives_up = time.monotonic() + settings.nats_wait_s
    while True:
        try:
            return replace(settings, host=own_host(settings))
        except OSError as error:
            if time.monotonic() > gives_up:
                url, why = without_passwords(settings.nats_url), error.strerror
                raise CannotStart(f"there is no way to NATS at {url} ({why}): set nats_url, or host") from None
        await asyncio.sleep(_AGAIN_S)


def _exit_later(code: int) -> None:
    """Ends the process even if a thread that cannot be cancelled (a model being loaded) goes on."""
    timer = threading.Timer(_EXIT_S, os._exit, (code,))
    timer.daemon = True
    timer.start()
