"""Draws the curves of records and the roofline of a map with matplotlib (the `report` extra).

Not here: the page around them.
"""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from probe_suite.probe import Plot
from probe_suite.record import Record
from unistack_aot.base.measured import quantity
from unistack_aot.hw.consistency import ORDER
from unistack_aot.hw.propmap import PropertyMap

_COLOURS = ("#1f6f8b", "#d1495b", "#6a994e", "#7b5ea7", "#c58b2a", "#3d405b")
_FITTED = "#4a5560"
_UNITS = ("B", "B/s", "s", "Hz", "FLOP/s")


def draw(record: Record, plot: Plot | None, out: Path) -> Path | None:
    """Write one PNG with all series of `record`; None when there is nothing to draw."""
    if plot is None or not record.series:
        return None
    if all(len(curve.x) == 1 for curve in record.series):
        return _bars(record, plot, out)
    figure, axes = pyplot.subplots(figsize=(8.0, 4.2), dpi=110)
    first = record.series[0]
    _scales(axes, plot, first.x_unit, first.y_unit)
    for index, curve in enumerate(each for each in record.series if not each.fitted):
        colour = _COLOURS[index % len(_COLOURS)]
        axes.plot(curve.x, curve.y, marker="o", markersize=3.5, color=colour, label=curve.name)
    for curve in (each for each in record.series if each.fitted):
        axes.plot(curve.x, curve.y, color=_FITTED, linewidth=1.2, linestyle="--", label=curve.name)
    if not plot.log_y:
        axes.set_ylim(bottom=0)
    if len(record.series) > 1:
        axes.legend(frameon=False, fontsize=9)
    return _saved(figure, out / f"{record.probe}.png")


def _bars(record: Record, plot: Plot, out: Path) -> Path:
    """One bar for each series: with a single x there is no curve."""
    figure, axes = pyplot.subplots(figsize=(8.0, 0.9 + 0.6 * len(record.series)), dpi=110)
    curves = record.series[::-1]
    names = [f"{curve.name}, {plot.x_label} {curve.x[0]:g}" for curve in curves]
    values = [curve.y[0] for curve in curves]
    bars = axes.barh(names, values, height=0.6, color=_COLOURS[0])
    axes.bar_label(bars, [quantity(v, curves[0].y_unit) for v in values], padding=4, fontsize=9)
    if plot.log_y:
        axes.set_xscale("log")
        axes.set_xlim(min(values) / 3, max(values) * 6)
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(_formatter(curves[0].y_unit)))
    axes.set_xlabel(plot.y_label)
    axes.spines[["top", "right"]].set_visible(False)
    return _saved(figure, out / f"{record.probe}.png")


def draw_roofline(made: PropertyMap, out: Path) -> Path:
    """Write the machine's roofs: multiply-add and matrix rates over the slopes of its memories."""
    figure, axes = pyplot.subplots(figsize=(8.0, 4.6), dpi=110)
    rates = {n: p.value for n, p in made.properties.items() if p.unit == "FLOP/s"}
    whole = {name: rate for name, rate in rates.items() if not re.search(r"\.one$|\.x86-", name)}
    levels = ORDER[made.kind]
    slopes = {level: made.get(f"{level}.bandwidth") for level in levels}
    _scales(axes, Plot("FLOP per byte", "rate", log_x=True, log_y=True), "1", "FLOP/s")
    x = [2.0 ** (power / 8) for power in range(-32, 97)]
    top = max(whole.values())
    for index, (level, bandwidth) in enumerate(slopes.items()):
        if bandwidth is None:
            continue
        label = f"{level} {quantity(bandwidth.value, 'B/s')}"
        y = [min(top, bandwidth.value * intensity) for intensity in x]
        axes.plot(x, y, color=_COLOURS[index], label=label)
    for rate in sorted(set(whole.values())):
        axes.axhline(rate, color=_FITTED, linewidth=0.8, linestyle=":")
        names = ", ".join(name for name, other in whole.items() if other == rate)
        words = f"{names} {quantity(rate, 'FLOP/s')}"
        axes.text(x[-1], rate, words, ha="right", va="bottom", fontsize=8, color=_FITTED)
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    return _saved(figure, out / "roofline.png")


def _scales(axes: Axes, plot: Plot, x_unit: str, y_unit: str) -> None:
    if plot.log_x:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(LogLocator(base=2, numticks=12))
    if plot.log_y:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(_formatter(x_unit)))
    axes.yaxis.set_major_formatter(FuncFormatter(_formatter(y_unit)))
    axes.set_xlabel(plot.x_label)
    axes.set_ylabel(plot.y_label)
    axes.grid(True, which="major", color="#e3e8ee")
    axes.spines[["top", "right"]].set_visible(False)


def _saved(figure: Figure, path: Path) -> Path:
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
    return path


def _formatter(unit: str):
    def text(value: float, _position: int) -> str:
        return quantity(value, unit) if value and unit in _UNITS else f"{value:g}"

    return text
