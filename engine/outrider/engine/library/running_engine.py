"""An engine that runs in a thread of its own, for callers in any thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import wait
from functools import partial

from outrider.engine.decode.engine_thread import EngineThread
from outrider.engine.decode.outcome import Outcome
from outrider.engine.errors import EngineStopped, RequestError
from outrider.engine.logits.deep_threads import deep_stacks
from outrider.engine.logs import get_logger
from outrider.engine.requests.output import Output
from outrider.engine.requests.sequence import Request
from outrider.engine.scheduling.scheduler import NeverFits, QueueFull
from outrider.engine.speculation import Drafter
from outrider.engine.target import Target
from outrider.engine.worker import Inbox

Reader = Callable[[Output | BaseException], None]
"""Takes the outputs of a request, or the error that ends it, in the engine's thread."""

_CLOSED = "this LLM is closed"
_END_S = 30.0
_CHECK_S = 0.2

_log = get_logger("library")


class RunningEngine:
    """Runs requests together, as many as there are. Those that the engine's queue has no room for wait here."""

    def __init__(self, target: Target) -> None:
        self._engine, self._inbox, self._ranks = target.engine(), Inbox(), target.ranks
        self._lock = threading.Lock()
        self._readers: dict[str, Reader] = {}
        self._waiting: deque[Request] = deque()
        self._left: deque[str] = deque()
        self._stopped: str | None = None
        self._cause: BaseException | None = None
        self._thread = EngineThread(self._engine, self._inbox, self._deliver, self._fail)
        with deep_stacks():
            self._thread.start()
        if self._ranks is not None:
            self._ranks.watch(self._fail)

    def submit(self, request: Request, reader: Reader) -> None:
        """Queues a request, whose outputs go to the ``reader``. `EngineStopped` if the engine has ended."""
        with self._lock:
            self.check()
            self._readers[request.id] = reader
        self._inbox.post(partial(self._take, request))

    def check(self) -> None:
        """Raises `EngineStopped` if the engine has ended."""
        if self._stopped is not None:
            raise EngineStopped(self._stopped) from self._cause

    def swap(self, name: str, drafter: Drafter | None, version: str) -> None:
        """Has another version of a drafter guess from the next step on. `EngineStopped` if the engine has ended."""
        done = self._inbox.call(partial(self._engine.swap, name, drafter, version=version))
        while not wait([done], _CHECK_S).done:
            self.check()
        done.result()

    def leave(self, request_id: str) -> None:
        """Ends a request without a reader, after the next step.

        Takes no lock and wakes no thread, since finalizers call this: the engine runs as long as it has a request.
        """
        self._left.append(request_id)

    def stop(self) -> None:
        """Ends the engine and all its requests."""
        self._end_all(_CLOSED, None)
        self._thread.stop()
        if threading.current_thread() is not self._thread:
            self._thread.join(_END_S)
        if self._ranks is not None:
            self._ranks.stop()

    def _take(self, request: Request) -> bool:
        """Passes a request to the engine; False if it has to wait for room in the queue."""
        if request.id not in self._readers:
            return True
        try:
            self._engine.submit(request)
        except QueueFull:
            self._waiting.append(request)
            return False
        except NeverFits as error:
            self._tell(request.id, RequestError(str(error), param="prompt"))
        except Exception as error:
            self._tell(request.id, error)
        return True

    def _deliver(self, outcome: Outcome) -> None:
        for request, output in outcome.outputs:
            self._tell(request.id, output)
        while self._left:
            name = self._left.popleft()
            if self._readers.pop(name, None) is not None:
                self._engine.cancel(name)
        if any(output.finish is not None for _, output in outcome.outputs):
            self._take_waiting()

    def _take_waiting(self) -> None:
        while self._waiting:
            if not self._take(self._waiting.popleft()):
                self._waiting.rotate(1)
                return

    def _tell(self, request_id: str, news: Output | BaseException) -> None:
        reader = self._readers.get(request_id)
        if isinstance(news, BaseException) or news.finish is not None:
            self._readers.pop(request_id, None)
        if reader is not None:
            reader(news)

    def _fail(self, error: BaseException) -> None:
        _log.error("the engine ended", exc_info=error)
        self._end_all(f"the engine ended by an error: {type(error).__name__}: {error}", error)

    def _end_all(self, why: str, cause: BaseException | None) -> None:
        """Tells all readers why the engine ends, unless they know."""
        with self._lock:
            if self._stopped is not None:
                return
            self._stopped, self._cause = why, cause
            readers, self._readers = list(self._readers.values()), {}
        for reader in readers:
            error = EngineStopped(why)
            error.__cause__ = cause
            reader(error)
