"""How every chart looks: colours, type, titles. Leaves out what is drawn (`charts`).

Colours are those of Okabe and Ito (2008), which colour-blind readers can tell apart; no mark differs by colour alone.
`INK`, `MUTED`, `GRID` and `PAPER` are used for nothing but text, rules and ground, so a page can exchange them in the
dark.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import altair as alt
import numpy as np
import vl_convert

from sweep.report.charts import png, svg
from sweep.writing import write_whole

Chart: TypeAlias = alt.Chart | alt.LayerChart | alt.FacetChart

INK, MUTED, GRID, PAPER = "#1b2733", "#5b6875", "#dfe4e9", "#fffffd"
BLUE, GREY, RED, MISSING = "#0072b2", "#aeb9c4", "#d55e00", "#eceff2"
ON_DARK, ON_LIGHT = "#ffffff", "#10181f"  # numbers in a tile
SERIES = ("#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a6a00", "#6a3d9a")  # red is for claims
SCHEDULER_COLORS = {"static": "#7a6a00", "continuous": "#0072b2"}  # in every chart that tells them apart
TILES = "yellowgreenblue"
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
WIDTH, HEIGHT = 620, 340
PICTURES = (".svg", ".png")

_SHADES = ((92, 62, 170), (38, 110, 184), (20, 145, 140), (94, 168, 62), (200, 176, 30))  # seen on white and on black
_VL_VERSION = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
_OPTIONS: dict[str, Any] = {"vl_version": _VL_VERSION, "allowed_base_urls": []}


def styled(chart: Chart, title: str, subtitle: Sequence[str], **size: float | alt.Step) -> Chart:
    """The chart with its title, fonts, ink and size; quiet axes, no frame."""
    small = [part for line in subtitle for part in wrapped(line, 100)]
    axis = {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "titlePadding": 10}
    ink = {"labelColor": MUTED, "titleColor": INK, "domainColor": MUTED, "tickColor": MUTED, "gridColor": GRID}
    legend = {"labelColor": MUTED, "titleColor": INK, "titleFontWeight": "normal"}
    heading = {"anchor": "start", "frame": "group", "fontSize": 18, "color": INK, "offset": 16}
    under = {"subtitleFontSize": 12.5, "subtitleColor": MUTED, "subtitlePadding": 6}
    words = alt.TitleParams(wrapped(title, 66), subtitle=small)
    whole: Chart = (
        chart.properties(title=words, padding=14, **size)
        .configure(background=PAPER, font=FONT, aria=False)
        .configure_view(stroke=None)
        .configure_axis(**axis, **ink)
        .configure_axisX(grid=False)
        .configure_legend(**legend)
        .configure_title(**heading, **under)
    )
    return whole


def save(chart: Chart, folder: Path, name: str) -> str:
    """The chart as SVG text; also written to the folder as `name`.svg and `name`.png, without any network."""
    spec = json.dumps(_drawable(chart.to_dict()))
    picture = _svg(spec, name)
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / f"{name}.svg", picture.encode())
    write_whole(folder / f"{name}.png", _png(spec))
    return picture


def save_as(chart: Chart, path: Path) -> None:
    """Writes the chart to one file, whose ending is one of PICTURES, without any network."""
    spec = json.dumps(_drawable(chart.to_dict()))
    write_whole(path, _png(spec) if path.suffix.lower() == ".png" else _svg(spec, "picture").encode())


def _svg(spec: str, name: str) -> str:
    return svg.smaller(svg.with_own_ids(str(vl_convert.vegalite_to_svg(spec, **_OPTIONS)), name))


def _png(spec: str) -> bytes:
    return png.smaller(vl_convert.vegalite_to_png(spec, scale=2, **_OPTIONS))


def _drawable(spec: Any) -> Any:
    """The spec with control characters spelt out: a picture with one is no XML, and the converter would abort."""
    if isinstance(spec, dict):
        return {_drawable(key): _drawable(value) for key, value in spec.items()}
    if isinstance(spec, list):
        return [_drawable(value) for value in spec]
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in spec) if isinstance(spec, str) else spec


def series_colors(n: int) -> list[str]:
    """A colour for each of n lines: distinct ones while there are enough, else shades in order."""
    if n <= len(SERIES):
        return list(SERIES[:n])
    places, anchors = np.linspace(0, len(_SHADES) - 1, n), np.arange(len(_SHADES))
    channels = [np.interp(places, anchors, channel).round().astype(int) for channel in zip(*_SHADES, strict=True)]
    return [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in zip(*channels, strict=True)]


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines of about this many characters, broken between words, since Vega breaks none."""
    rows = [""]
    for word in re.split(r"(?<!=) (?!=|%|[KMGT]i?B\b|s\b|steps\b)", text):  # "cv = 2" and "64 GiB" stay together
        if rows[-1] and len(rows[-1]) + len(word) + 1 > width:
            rows.append("")
        rows[-1] = f"{rows[-1]} {word}".strip()
    return rows
