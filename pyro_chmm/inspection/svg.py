"""Pictures that become part of a page: SVG in the page's own colors, light and dark."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pyro_chmm.inspection import plots

_INK, _FAINT = "#010203", "#040506"  # stand for the page's text color, and for that of grids
_VARIABLES = {
    _INK: "currentColor",
    _FAINT: "var(--faint)",
    plots.BLUE: "var(--blue)",
    plots.ORANGE: "var(--orange)",
    plots.GREEN: "var(--green)",
    plots.PINK: "var(--pink)",
    plots.SKY: "var(--sky)",
    plots.AMBER: "var(--amber)",
    plots.GRAY: "var(--gray)",
}
_STYLE: dict[Any, Any] = {
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.titlecolor", "xtick.labelcolor", "ytick.labelcolor"), _INK),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color", "grid.color"), _FAINT),
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "svg.fonttype": "path",  # the page's font may be wider than the one that the picture was laid out with
}


def inline_svg(
    name: str, title: str, draw: Callable[[Any], Any], panels: int, size: tuple[float, float], columns: int = 4
) -> Markup:
    """A picture as an ``<svg>`` element.

    :param name: of letters; ids in the element start with it, so that they differ from those of other pictures.
    :param title: for those who do not see it.
    :param draw: draws on the axes that it is given.
    :param size: of a panel, inches.
    """
    columns = min(panels, columns)
    rows = -(-panels // columns)
    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
        axes: list[Axes] = list(figure.subplots(rows, columns, squeeze=False).flat)
        for unused in axes[panels:]:
            figure.delaxes(unused)
        draw(axes[0] if panels == 1 else axes[:panels])
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    for color, variable in _VARIABLES.items():
        svg = svg.replace(color, variable)
    width = size[0] * columns
    style = f"width: {width:g}in; min-width: {0.72 * width:.2f}in"  # smaller, its text would not be legible
    opening = Markup('<svg role="img" aria-label="{}" style="{}" ').format(title, style)
    return Markup(opening + Markup(re.sub(r'^<svg (?:(?:width|height)="[^"]*" ?)*', "", svg)))  # matplotlib escapes
