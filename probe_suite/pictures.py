"""Draws the curves of one record with matplotlib (the `report` extra). Not here: the page around
them.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from probe_suite.probe import Plot
from probe_suite.record import Record
from unistack_aot.base.measured import quantity

_COLOURS = ("#1f6f8b", "#d1495b", "#6a994e", "#7b5ea7", "#c58b2a", "#3d405b")
_UNITS = ("B", "B/s", "s", "Hz", "FLOP/s")


def draw(record: Record, plot: Plot | None, out: Path) -> Path | None:
    """Write one PNG with all series of `record`; None when there is nothing to draw."""
    if plot is None or not record.series:
        return None
    figure, axes = pyplot.subplots(figsize=(8.0, 4.2), dpi=110)
    for index, curve in enumerate(record.series):
        colour = _COLOURS[index % len(_COLOURS)]
        axes.plot(curve.x, curve.y, marker="o", markersize=3.5, color=colour, label=curve.name)
    first = record.series[0]
    if plot.log_x:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(LogLocator(base=2, numticks=12))
    if plot.log_y:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(_formatter(first.x_unit)))
    axes.yaxis.set_major_formatter(FuncFormatter(_formatter(first.y_unit)))
    if not plot.log_y:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(plot.x_label)
    axes.set_ylabel(plot.y_label)
    axes.grid(True, which="major", color="#e3e8ee")
    axes.spines[["top", "right"]].set_visible(False)
    if len(record.series) > 1:
        axes.legend(frameon=False, fontsize=9)
    figure.tight_layout()
    path = out / f"{record.probe}.png"
    figure.savefig(path)
    pyplot.close(figure)
    return path


def _formatter(unit: str):
    def text(value: float, _position: int) -> str:
        return quantity(value, unit) if value and unit in _UNITS else f"{value:g}"

    return text
