"""The `outrider` command. A command imports its work when it runs, so that help is quick."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from outrider.cli.commands.arguments import ApiKey, Ca, Config, Draft, Model, Secure, Sets, require
from outrider.cli.commands.asking import entries as asking
from outrider.cli.commands.audit import audit_app
from outrider.cli.commands.bus import bus_app
from outrider.cli.commands.certs import certs_app
from outrider.cli.commands.drafters import drafter_app
from outrider.cli.commands.machine import entries as machine
from outrider.cli.commands.measuring import planning
from outrider.cli.commands.measuring.load import load_app
from outrider.cli.commands.models import models_app
from outrider.cli.commands.prompts import prompts_app
from outrider.cli.commands.tenants import keys_app, tenants_app
from outrider.cli.headings import Grouped
from typer import _completion_shared

_FIRST_STEPS = """\
Outrider serves language models with speculative decoding.

  outrider up                          serve the small model that ships here
  outrider up --model NAME             a folder, a GGUF file, or one of the Hub
  outrider chat                        in a second terminal: talk to it
  outrider complete 'def parse_args('  complete a text; right guesses are green
  outrider doctor                      say what this machine has and lacks

`outrider -h` lists all commands, and `outrider COMMAND -h` what one takes."""

_FIRST_TAB = """
[[ $zsh_eval_context[-1] == loadautofunc ]] && %(complete_func)s "$@"
"""
"""zsh loads an installed script at the first Tab, which typer's then leaves unanswered."""
_completion_shared._completion_scripts["zsh"] += _FIRST_TAB

app = typer.Typer(
    cls=Grouped,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
config_app = typer.Typer(help="Settings: their values, where values come from, whether they are right.")
app.add_typer(config_app, name="config", no_args_is_help=True)
app.add_typer(tenants_app, name="tenants")
app.add_typer(keys_app, name="keys")
app.add_typer(prompts_app, name="prompts")
app.add_typer(models_app, name="models")
app.add_typer(drafter_app, name="drafter")
app.add_typer(certs_app, name="certs", no_args_is_help=True)
app.add_typer(bus_app, name="bus")
app.add_typer(audit_app, name="audit")
app.command()(machine.up)
app.command()(machine.ps)
app.command()(machine.logs)
app.command()(machine.stop)
app.command()(machine.doctor)
app.command()(asking.complete)
app.command()(asking.chat)
app.command("run-batch")(asking.run_batch)
app.command()(planning.profile)
app.command()(planning.plan)
app.add_typer(load_app, name="load", no_args_is_help=True)


@app.command()
def bench(
    url: Annotated[str | None, typer.Option(help="A running mesh; else one is started.")] = None,
    concurrency: Annotated[str, typer.Option(help="Concurrent requests; each number is a load.")] = "1,8",
    rate: Annotated[float | None, typer.Option(min=0.001, help="Also an open load: random arrivals a second.")] = None,
    requests: Annotated[int | None, typer.Option(min=1, help="Requests a pass. [4 a client, at least 8]")] = None,
    max_tokens: Annotated[int, typer.Option(min=2, help="Tokens a request.")] = 128,
    temperature: Annotated[float, typer.Option(min=0, help="0 is greedy.")] = 0.0,
    speculation: Annotated[str, typer.Option(help="Modes: on, off, or drafters joined by +.")] = "on,off",
    repeats: Annotated[int, typer.Option(min=1, help="Passes of each load and mode.")] = 3,
    prompts: Annotated[Path | None, typer.Option(help="File of JSON Lines; else code held out of training.")] = None,
    workload: Annotated[
        str | None, typer.Option(help="Chat requests of this kind: edit, code, chat, extract, rag or mixed.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Directory of the report.")] = Path("out/bench"),
    seed: Annotated[int, typer.Option(help="Seed of prompts, arrivals and sampling.")] = 0,
    api_key: ApiKey = None,
    ca: Ca = None,
    model: Model = None,
    draft: Draft = None,
    config: Config = None,
    sets: Sets = None,
    secure: Secure = False,
) -> None:
    """Load a mesh and report tokens/s, latencies and acceptance, speculation on and off in one run."""
    from outrider.cli.commands.measuring.bench import BenchOptions, run
    from outrider.cli.processes.options import UpOptions

    mesh = UpOptions(port=0, model=model, draft=draft, config=config, sets=sets or [], secure=secure)
    options = BenchOptions(
        url=url,
        concurrency=concurrency,
        rate=rate,
        requests=requests,
        max_tokens=max_tokens,
        temperature=temperature,
        speculation=speculation,
        repeats=repeats,
        prompts=prompts,
        workload=workload,
        out=out,
        seed=seed,
        api_key=api_key,
        ca=ca,
    )
    _exit(run(options, mesh))


@app.command("trace-steps")
def trace_steps(
    prompt: Annotated[str, typer.Argument(help="The prompt; - reads it from standard input.")],
    url: Annotated[str | None, typer.Option(help="A running mesh; else one is started.")] = None,
    events: Annotated[
        list[Path] | None,
        typer.Option(help="File named by the setting timeline of the running services; may be repeated."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The picture: .png, .svg or .pdf.")] = Path("out/steps.svg"),
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens to generate.")] = 64,
    temperature: Annotated[float, typer.Option(min=0, help="0 is greedy.")] = 0.0,
    seed: Annotated[int | None, typer.Option(min=0, help="Fixes the answer at any temperature.")] = None,
    drafters: Annotated[str, typer.Option(help="Drafters that may guess, with commas; all if absent.")] = "",
    chat: Annotated[bool, typer.Option("--chat", help="Send the prompt as a chat message.")] = False,
    before: Annotated[int, typer.Option(min=0, help="Times that the same prompt is sent before.")] = 0,
    api_key: ApiKey = None,
    ca: Ca = None,
    model: Model = None,
    draft: Draft = None,
    proposers: Annotated[int | None, typer.Option(min=0, help="As in `outrider up`.")] = None,
    config: Config = None,
    sets: Sets = None,
    secure: Secure = False,
) -> None:
    """Draw the time line of one request: target steps, draft passes and the messages between them."""
    require("matplotlib", "trace-steps", "plot")
    from outrider.cli.commands.asking.stream import CompletionRequest
    from outrider.cli.commands.time_line.trace_steps import TraceOptions, run
    from outrider.cli.processes.options import UpOptions

    text = sys.stdin.read() if prompt == "-" else prompt
    names = tuple(name.strip() for name in drafters.split(",") if name.strip())
    request = CompletionRequest(text, max_tokens, temperature, seed, True, chat, names)
    mesh = UpOptions(
        port=0, model=model, draft=draft, proposers=proposers, config=config, sets=sets or [], secure=secure
    )
    _exit(run(TraceOptions(url, events or [], request, before, out, api_key, ca), mesh))


@app.command()
def trace(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Files that `trace_exporter = file:PATH` wrote.")
    ],
    wanted: Annotated[
        str, typer.Option("--id", metavar="ID", help="A trace's or a request's id, or its beginning; else the latest.")
    ] = "",
) -> None:
    """Print one trace as a tree: what each process did for a request, and when, down to the step."""
    from outrider.cli.commands.trace import run

    _exit(run(files, wanted))


@config_app.command("show")
def config_show(
    config: Config = None,
    service: Annotated[str | None, typer.Option(help="One service only.")] = None,
    sets: Sets = None,
) -> None:
    """Print every setting, its value and where the value comes from."""
    from outrider.cli.settings import show

    _exit(show(config, service, sets or []))


@config_app.command("check")
def config_check(
    config: Config = None,
    service: Annotated[str | None, typer.Option(help="One service only.")] = None,
    sets: Sets = None,
) -> None:
    """Say whether the settings are right; exit code 2 if they are not."""
    from outrider.cli.settings import check

    _exit(check(config, service, sets or []))


@app.command()
def credentials(
    secrets: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of all secrets.", file_okay=False)],
    into: Annotated[Path, typer.Option(help="Where each service gets a folder with its own.", file_okay=False)],
    every: Annotated[
        float | None, typer.Option(min=0.1, metavar="S", help="Go on, and hand out again every S seconds.")
    ] = None,
    kubernetes: Annotated[
        str | None, typer.Option(metavar="PREFIX", help="In a pod: also write the Secrets PREFIX-<folder>.")
    ] = None,
) -> None:
    """Make users and certificates of a mesh, renew certificates that are due, and hand each service its own."""
    from outrider.cli.commands.credentials import run

    _exit(run(secrets, into, every, kubernetes))


@app.command(hidden=True)
def version() -> None:
    """Print the version."""
    from importlib import metadata

    typer.echo(f"outrider {metadata.version('outrider')}")


def _print_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback(invoke_without_command=True)
def first_steps(
    context: typer.Context,
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Speculative decoding as a mesh of small services."""
    if context.invoked_subcommand is None:
        typer.echo(_FIRST_STEPS)


def main() -> None:
    """Entry point of the `outrider` script: an error that has an exit code is one sentence."""
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors="replace")  # a terminal's encoding may lack signs, and letters of answers
    try:
        app()
    except Exception as error:
        if (code := getattr(error, "exit_code", None)) is None:
            raise
        print(f"outrider: {error}", file=sys.stderr)
        sys.exit(code)


def _exit(code: int) -> NoReturn:
    raise typer.Exit(code)
