"""`kilocard render`: a cluster file written out for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kilocard import __version__
from kilocard.cli.output import notes
from kilocard.cli.rendered import Folder
from kilocard.cli.wiring import read_cluster
from kilocard.core.errors import UsageError
from kilocard.deploy.target import LISTEN, Files, RenderOptions
from kilocard.deploy.targets import TARGETS, target


def render(
    what: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="What to write: " + "; ".join(f"`{name}`: {one.about}" for name, one in TARGETS.items()) + ".",
            show_default=False,
        ),
    ],
    cluster: Annotated[Path, typer.Argument(help="The cluster file.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="Folder to write into. Left out: everything to stdout.", show_default=False)
    ] = None,
    listen: Annotated[str, typer.Option(help="Proxies: where they listen.")] = LISTEN,
    gateway: Annotated[
        list[str] | None,
        typer.Option(help="Proxies: a gateway behind them, host:port; repeat it. Left out: gateway.listen."),
    ] = None,
    admin: Annotated[
        list[str] | None,
        typer.Option(help="Prometheus: a gateway's admin address, host:port; repeat it. Left out: gateway.admin."),
    ] = None,
    direct: Annotated[
        bool, typer.Option("--direct", help="Proxies: straight to the replicas of the only model, without a gateway.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 where --out is not what would be written.")
    ] = False,
) -> None:
    """Write the cluster file out for other programs: Kubernetes, Helm, proxies, Prometheus and more.

    The same file always gives the same bytes: keep them in git and let `--check` watch over them. In a folder that was
    written before, files that are no longer part of it are removed; other files are left alone.
    """
    if check and out is None:
        raise UsageError("--check needs --out: the folder to check")
    options = RenderOptions(
        version=__version__, listen=listen, gateways=tuple(gateway or ()), admins=tuple(admin or ()), direct=direct
    )
    files = target(what).render(read_cluster(cluster), options)
    if out is None:
        print(as_stream(files), end="")
        return
    folder = Folder(out)
    if not check:
        folder.write(files)
        notes.print(f"{len(files)} files in {out}")
        return
    news = folder.news(files)
    for path, what_is in news.items():
        notes.print(f"{path}: {what_is}")
    if news:
        notes.print("Out of date: run the same command without --check")
        raise typer.Exit(1)


def as_stream(files: Files) -> str:
    """All files as one text: a single one as it is, several each under a comment with its path."""
    if len(files) == 1:
        return next(iter(files.values()))
    return "".join(f"---\n# {path}\n{text}" for path, text in files.items())
