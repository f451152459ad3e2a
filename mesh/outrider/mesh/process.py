"""A service as a process of its own: flags in, exit code out."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Sequence

import uvloop
from outrider.mesh.config import Settings, load, parse_flags
from outrider.mesh.errors import ConfigError
from outrider.mesh.lifecycle import CannotStart, Lifecycle
from outrider.mesh.service import Service
from outrider.mesh.telemetry import get_logger
from setproctitle import setproctitle

_EXIT_S = 3.0
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
    lifecycle = Lifecycle(service_type(settings), settings)
    loop = asyncio.get_running_loop()

    def on_thread_death(details: threading.ExceptHookArgs) -> None:
        error = details.exc_value or SystemExit()
        _log.error("a thread died", thread=details.thread and details.thread.name, exc_info=error)
        loop.call_soon_threadsafe(lifecycle.fail, error)

    threading.excepthook = on_thread_death
    return await lifecycle.run()


def _exit_later(code: int) -> None:
    """Ends the process even if a thread that cannot be cancelled (a model being loaded) goes on."""
    timer = threading.Timer(_EXIT_S, os._exit, (code,))
    timer.daemon = True
    timer.start()
