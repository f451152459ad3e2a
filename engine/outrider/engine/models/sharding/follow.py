"""The process of a rank other than 0.

    python -m outrider.engine.models.sharding.follow FD

Over a `multiprocessing` connection it gets its `RankTask`, answers with an empty text when it is there and once more
when it has loaded its share, or with why it cannot, and then runs what `LeadingForward` says. It ends when the other
end closes the connection, also if it waits for other ranks at that time.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from outrider.engine.errors import ModelError, RankLost
from outrider.engine.models.sharding.forward import Follower, ShardForward
from outrider.engine.models.sharding.ranks import RankTask
from outrider.engine.models.threads import use_threads


def main(fd: int) -> None:
    """Runs the rank."""
    for number in (signal.SIGINT, signal.SIGTERM):  # rank 0 decides when to end
        signal.signal(number, signal.SIG_IGN)
    line: Connection[Any, Any] = Connection(fd)
    task: RankTask = line.recv()
    said: SimpleQueue[tuple[str, Any]] = SimpleQueue()
    threading.Thread(target=_read, args=(line, said), daemon=True).start()
    use_threads(task.threads)
    line.send("")
    try:
        group = task.join()
        model = task.load(group)
    except (ModelError, RankLost) as error:
        return line.send(str(error))
    line.send("")
    assert isinstance(model.steps, ShardForward)
    follower = Follower(model.steps, model.new_pool, model.device)
    try:
        while True:
            follower.run(*said.get())
    except RankLost as error:
        sys.exit(str(error))


def _read(line: Connection[Any, Any], said: SimpleQueue[tuple[str, Any]]) -> None:
    while True:
        try:
            said.put(line.recv())
        except (EOFError, OSError):
            os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
