"""The options of the commands of this room; a command imports its work when it runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from outrider.cli.commands.arguments import ApiKey, Ca, Speculation, Url


def complete(
    prompt: Annotated[str, typer.Argument(help="The prompt; - reads it from standard input.")],
    url: Url = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens to generate.")] = 128,
    temperature: Annotated[float, typer.Option(min=0, help="0 is greedy.")] = 0.8,
    seed: Annotated[int | None, typer.Option(min=0, help="Fixes the answer at any temperature.")] = None,
    speculation: Speculation = True,
    chat: Annotated[bool, typer.Option("--chat", help="Send the prompt as a chat message.")] = False,
    api_key: ApiKey = None,
    ca: Ca = None,
) -> None:
    """Stream a completion; the tokens that drafters guessed right are green."""
    from outrider.cli.commands.asking.complete import run
    from outrider.cli.commands.asking.stream import CompletionRequest
    from outrider.mesh.access import access_to

    text = sys.stdin.read() if prompt == "-" else prompt
    request = CompletionRequest(text, max_tokens, temperature, seed, speculation, chat)
    raise typer.Exit(run(access_to(url, ca, api_key), request))


def chat(
    url: Url = None,
    system: Annotated[str, typer.Option(help="What the model is told first.")] = "",
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Most tokens of an answer; else all that fit.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0, help="0 is greedy; else as the model says.")] = None,
    api_key: ApiKey = None,
    ca: Ca = None,
) -> None:
    """Talk to the model; what comes through a pipe is one message.

    Ctrl-C ends an answer and keeps its text, Ctrl-D ends the chat, and /help lists its commands.
    """
    from outrider.cli.commands.asking.chat import run
    from outrider.mesh.access import access_to

    raise typer.Exit(run(access_to(url, ca, api_key), system, max_tokens, temperature))


def run_batch(
    file: Annotated[
        Path, typer.Argument(help="Requests in the format of OpenAI's batches, a line each.", dir_okay=False)
    ],
    out: Annotated[
        Path | None, typer.Option(help="Where the results go. [FILE with .results.jsonl]", dir_okay=False)
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests at a time.")] = 8,
    url: Url = None,
    api_key: ApiKey = None,
    ca: Ca = None,
) -> None:
    """Answer a file of requests; run again, it goes on with those that have no answer yet."""
    from outrider.cli.commands.asking.batch import run
    from outrider.mesh.access import access_to

    raise typer.Exit(run(access_to(url, ca, api_key), file, out or file.with_suffix(".results.jsonl"), concurrency))
