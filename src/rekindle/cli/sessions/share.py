"""`rekindle share`: write a session as one redacted page, and an index of such pages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle.cli.insights.usage import fill_costs
from rekindle.cli.output import (
    JsonOption,
    OwnerOption,
    escape_control_chars,
    format_count,
    print_json,
    print_line,
    print_notice,
)
from rekindle.cli.session_choice import complete_session, fill_names
from rekindle.cli.store_access import open_for_reading

from .transfer import create_session_redactor, open_output, print_removed

if TYPE_CHECKING:
    from rekindle.transcripts.export.redact import SessionRedactor


_NameArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[SESSION]",
        help="Session id, id prefix, or title.",
        autocompletion=complete_session,
        show_default=False,
    ),
]
_OutputOption = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="File to write, or - for stdout. Default: a name from the title, in this folder.",
    ),
]
_IndexOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Write an index of the shared pages in this folder; a new page goes there too.",
    ),
]


def share_session(
    name: _NameArgument = None,
    output: _OutputOption = None,
    markdown: Annotated[
        bool,
        typer.Option("--markdown", help="Write Markdown instead of HTML; the default for FILE.md."),
    ] = False,
    images: Annotated[
        bool, typer.Option("--images", help="Include images, which are not redacted.")
    ] = False,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    index: _IndexOption = None,
    owner: OwnerOption = None,
    json: JsonOption = False,
) -> None:
    """Write a session as one page that you can show to others.

    Secrets and personal data are removed; what was removed is listed, by kind and count. The page is
    one HTML file that loads nothing and runs no scripts. Read it before you share it.

    \b
    Examples:
      rekindle share 'My Project' --open
      rekindle share 20260105_1403 -o review.html
      rekindle share 'My Project' --markdown -o - | less
      rekindle share 'My Project' --index public/
      rekindle share --index public/
    """
    if name is None and index is None:
        raise typer.BadParameter("name a session, or a folder with --index")
    if index is not None and not index.expanduser().is_dir():
        raise typer.BadParameter(f"folder not found: {index}")
    report: dict[str, object] = {}
    page: Path | None = None
    if name is not None:
        markdown = markdown or (output or "").lower().endswith((".md", ".markdown"))
        redactor = create_session_redactor(keeps_images=images)
        page = _share(name, owner, output, index, markdown, redactor, report)
        removed = redactor.count_removed()
        report["removed"] = removed
        print_removed(removed)
    if index is not None:
        report |= _write_index(index)
    if json and output != "-":
        print_json(report)
    elif output != "-":
        print_line(str(report.get("file") or report["index"]))
    if open_page:
        _open_in_browser(page or Path(str(report["index"])))


def _share(
    name: str,
    owner: str | None,
    output: str | None,
    folder: Path | None,
    markdown: bool,
    redactor: SessionRedactor,
    report: dict[str, object],
) -> Path | None:
    """Write the page of a session; return its path, or None if it went to stdout."""
    from rekindle.transcripts.share import share_session as render_shared

    with open_for_reading() as store:
        session = store.resolve(name, owner=owner)
        (priced,) = fill_costs(store, [session])
        (named,) = fill_names(store, [priced]) if priced.preview else (priced,)
        shared = render_shared(store, named, redactor, markdown=markdown)
        path = _choose_path(shared.file_name, output, folder)
        with open_output(path) as out:
            out.writelines(
                escape_control_chars(piece).encode("utf-8", "backslashreplace")
                for piece in shared.pieces
            )
    report |= {
        "session": session.id,
        "file": None if path is None else str(path),
        "bytes": None if path is None else path.stat().st_size,
        "agents": shared.agents,
    }
    return path


def _choose_path(file_name: str, output: str | None, folder: Path | None) -> Path | None:
    if output == "-":
        return None
    if output is not None:
        path = Path(output).expanduser()
        if not path.is_dir():
            return path
        folder = path
    return (folder or Path()).expanduser() / file_name


def _write_index(folder: Path) -> dict[str, object]:
    from rekindle.transcripts.export.index import read_summaries, render_index

    folder = folder.expanduser()
    pages = read_summaries(folder)
    path = folder / "index.html"
    with open_output(path) as out:
        title = folder.resolve().name or "Sessions"
        out.writelines(
            escape_control_chars(piece).encode("utf-8", "backslashreplace")
            for piece in render_index(title, pages)
        )
    print_notice(f"Index of {format_count(len(pages), 'page')}: {path}")
    return {"index": str(path), "pages": len(pages)}


def _open_in_browser(path: Path) -> None:
    import webbrowser

    if not webbrowser.open(path.resolve().as_uri()):
        print_notice(f"No browser found. Open {path} yourself.")
