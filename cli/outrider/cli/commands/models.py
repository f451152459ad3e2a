"""The commands `outrider models`: models of the Hugging Face Hub on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

models_app = typer.Typer(help="Models of the Hugging Face Hub on this machine.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="org/repository[:file]\\[@revision]")]
Model = Annotated[
    str | None,
    typer.Argument(metavar="[NAME]", help="A name of the Hub, a directory or a GGUF file; else all in the cache."),
]


@models_app.command("pull")
def models_pull(name: Name) -> None:
    """Bring a model here, or what is missing of it, and print where it is."""
    with _sentences():
        from outrider.cli.processes.downloads import shown
        from outrider.engine.store import locate, pin

        with shown() as watch:
            pinned = pin(name, watch)
        typer.echo(f"{pinned}\n{locate(pinned)}")


@models_app.command("list")
def models_list() -> None:
    """List the models in the Hub's cache: name, revision, size, format and place."""
    with _sentences():
        from outrider.engine.store.cached import cached_models

        for model in cached_models():
            size = f"{model.size / 1e6:,.1f} MB"
            revision = f"{model.name.revision} {model.commit[:12]}" if not model.name.pinned else model.commit[:12]
            typer.echo(f"{model.name.served:<48} {revision:<20} {size:>14}  {model.format:<12} {model.place}")


@models_app.command("verify")
def models_verify(
    name: Model = None,
    renew: Annotated[bool, typer.Option("--renew", help="Accept the files as they are, and note them anew.")] = False,
) -> None:
    """Compare the SHA-256 of all files with those of the first load; exit code 1 if a file was changed."""
    with _sentences():
        from outrider.engine.store import integrity

        for place in _places(name):
            if renew:
                integrity.renew(place)
                typer.echo(f"{place}: noted as it is")
            else:
                typer.echo(f"{place}: " + ("as noted" if integrity.verify(place) else "noted, for the first time"))


@models_app.command("remove")
def models_remove(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove a model from the Hub's cache: all its revisions and files unless the name has one."""
    with _sentences():
        from outrider.engine.store.cached import meant, remove

        models = meant(name)
        for model in models:
            typer.echo(f"{model.name}  {model.size / 1e6:,.1f} MB  {model.place}")
        if not yes:
            typer.confirm("Remove?", abort=True)
        typer.echo(f"{remove(models) / 1e6:,.1f} MB freed")


def _places(name: str | None) -> list[Path]:
    from outrider.engine.store import POCKET, is_path, locate
    from outrider.engine.store.cached import cached_models, meant

    if name is None:
        return [model.place for model in cached_models() if model.format != "no weights"]
    if name == POCKET or is_path(name):
        return [locate(name)]
    return [model.place for model in meant(name)]


@contextmanager
def _sentences() -> Iterator[None]:
    """Ends a block that fails with exit code 1 and the sentence of its `ModelError`."""
    from outrider.engine.store import ModelError

    try:
        yield
    except ModelError as error:
        sentence = str(error)
    except ModuleNotFoundError as error:
        sentence = f"models of the Hub need {error.name}: pip install 'outrider[all]'"
    else:
        return
    typer.echo(f"outrider: {sentence}", err=True)
    raise typer.Exit(1)
