"""The page as one HTML file: summary, tables, figures and the explorer."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template, select_autoescape
from markupsafe import Markup

from adasparse._files import write_atomically
from adasparse.analysis.explorer.payload import PAYLOAD_VERSION

PageMode = Literal["report", "notebook", "live"]

_FOLDER = Path(__file__).parent / "assets"
#: The files of the script, in the order in which they build on each other.
_SCRIPTS = (
    "data.js",
    "dom.js",
    "color.js",
    "state.js",
    "heat.js",
    "lines.js",
    "panel.js",
    "overview.js",
    "table.js",
    "keys.js",
    "live.js",
    "main.js",
)
_ONLY_IN = {"table.js": "report", "live.js": "live"}


@dataclass(frozen=True, kw_only=True)
class ReportFigure:
    """A figure of the report.

    Args:
        title: Title, in a few words.
        caption: Explanation of what is shown.
        image: The content of an SVG or PNG file.
        links: Addresses of files beside the report by what they are called, such as
            ``{"CSV": "figures/alpha.csv"}``.
    """

    title: str
    caption: str = ""
    image: bytes
    links: Mapping[str, str] = field(default_factory=dict)

    def data_uri(self) -> str:
        """Return the image as an address that needs no file."""
        if self.image.startswith(b"\x89PNG"):
            kind = "image/png"
        elif b"<svg" in self.image:
            kind = "image/svg+xml"
        else:
            raise ValueError(
                f"A figure must be the content of an SVG or PNG file; {self.title!r} begins with "
                f"{self.image[:16]!r}."
            )
        return f"data:{kind};base64,{base64.b64encode(self.image).decode()}"


@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """A table of the report beside that of all measures.

    Args:
        title: Title.
        columns: Names of the columns.
        rows: Text or numbers, as many as there are columns.
        caption: Explanation of what is shown.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str = ""


def write_report(
    payload: Mapping[str, Any],
    path: str | Path,
    *,
    figures: Sequence[ReportFigure] = (),
    tables: Sequence[ReportTable] = (),
) -> Path:
    """Write the report as one file that asks the network for nothing.

    Args:
        payload: Data as ``adasparse.analysis.explorer.payload`` describes it.
        path: Path of the file, which is replaced when the new one is complete.
        figures: Figures, in order.
        tables: Tables, in order.

    Returns:
        ``path``.
    """
    path = Path(path)
    page = render_page(payload, figures=figures, tables=tables)
    write_atomically(path, page, make_folders=True)
    return path


def render_page(
    payload: Mapping[str, Any],
    *,
    mode: PageMode = "report",
    figures: Sequence[ReportFigure] = (),
    tables: Sequence[ReportTable] = (),
) -> str:
    """Return the page as text.

    Args:
        payload: Data as ``adasparse.analysis.explorer.payload`` describes it.
        mode: ``"report"`` is everything, ``"notebook"`` the explorer alone, ``"live"`` the explorer
            of a model that a server runs.
        figures: Figures, in order.
        tables: Tables, in order.
    """
    if payload.get("version") != PAYLOAD_VERSION:
        raise ValueError(
            f"The page reads payloads of version {PAYLOAD_VERSION}; got {payload.get('version')!r}."
        )
    style, script = _read("style.css"), _script(mode)
    return _template().render(
        mode=mode,
        title=payload["title"],
        policy=content_policy(mode),
        style=Markup(style),
        script=Markup(script),
        payload=Markup(_embedded(payload)),
        runs=[_about(run) for run in payload["runs"]],
        figures=[
            {
                "title": figure.title,
                "caption": figure.caption,
                "source": figure.data_uri(),
                "links": list(figure.links.items()),
            }
            for figure in figures
        ],
        tables=tables,
        version=version("adasparse"),
    )


def content_policy(mode: PageMode) -> str:
    """Return the Content-Security-Policy of a page: its own script and style, and nothing else."""
    rules = {
        "default-src": "'none'",
        "script-src": _hash_of(_script(mode)),
        "style-src": _hash_of(_read("style.css")),
        "img-src": "data:",
        "connect-src": "'self'" if mode == "live" else "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _hash_of(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template("template.html")


@cache
def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


@cache
def _script(mode: PageMode) -> str:
    parts = [_read(name) for name in _SCRIPTS if _ONLY_IN.get(name, mode) == mode]
    return '(() => {\n"use strict";\n' + "\n".join(parts) + "\n})();"


def _embedded(payload: Mapping[str, Any]) -> str:
    """Return JSON in which nothing can end the element it stands in."""
    text = json.dumps(payload, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _about(run: Mapping[str, Any]) -> dict[str, Any]:
    heads = sum(group["layers"] * group["heads"] for group in run["groups"])
    measured = run.get("sentences_measured", len(run["sentences"]))
    about = f"{run['attention']} attention, {heads} heads, measured on {measured:,} sentences"
    return {"name": run["name"], "about": about, "summary": run["summary"]}
