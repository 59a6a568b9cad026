"""One static HTML page and one picture per probe. Not here: any number's meaning
(docs/probing_lab.md).
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

from probe_suite.mapping import base_map
from probe_suite.pictures import draw, draw_roofline
from probe_suite.probe import Plot
from probe_suite.probes import PROBES
from probe_suite.record import Record
from unistack_aot.base.measured import quantity
from unistack_aot.hw.propmap import PropertyMap

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
       color: #1c2733; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .3rem; }
p.sub, td.note, .why { color: #5b6b7b; } img { max-width: 100%; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #e3e8ee; vertical-align:
top; } td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.bad { color: #a3291f; } code { font-size: .85em; }
"""


def write(
    records: Sequence[Record],
    title: str,
    made: PropertyMap | None,
    against: Sequence[str],
    out: Path,
) -> Path:
    """Write report.html and the pictures under `out`; return the page's path."""
    pictures = {record.probe: draw(record, _plot(record), out) for record in records}
    roofline = (
        [_picture(draw_roofline(made, out), "roofs of rate over FLOP per byte")] if made else []
    )
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{_text(title)}</h1>",
        *(f"<p class='bad'>contradiction: {_text(line)}</p>" for line in against),
        *([_subtitle(made), "<h2>Roofline</h2>", *roofline] if made else []),
        *(_section(record, pictures[record.probe]) for record in records),
        *([_table(made)] if made else []),
        "</body></html>\n",
    ]
    page = out / "report.html"
    page.write_text("\n".join(parts), encoding="utf-8")
    return page


def _subtitle(made: PropertyMap) -> str:
    words = f"architecture {made.arch}, {made.driver}, {made.date}"
    return f"<p class='sub'>map <code>{_text(made.id)}</code>, {_text(words)}</p>"


def _plot(record: Record) -> Plot | None:
    (probe,) = [each for each in PROBES if each.name == record.probe]
    return probe.plot


def _table(made: PropertyMap) -> str:
    base = base_map(made.device, made.arch).map
    head = (
        "<tr><th>property</th><th>value</th><th>spread</th><th>runs</th>"
        f"<th>against {_text(base.id)}</th><th>how</th></tr>"
    )
    rows: list[str] = []
    for name, entry in made.properties.items():
        general = base.get(name)
        ratio = f"{entry.value / general.value:.2f} x" if general and general.value else ""
        spread = f"{entry.spread:.1%}" if entry.spread is not None else ""
        how = f"{entry.mark}: {entry.source}. {entry.note}"
        cells = [
            f"<td><code>{_text(name)}</code></td>",
            f"<td class='number'>{_text(quantity(entry.value, entry.unit))}</td>",
            f"<td class='number'>{spread}</td><td class='number'>{entry.samples or ''}</td>",
            f"<td class='number'>{ratio}</td><td class='note'>{_text(how)}</td>",
        ]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return f"<h2>Property map</h2><table>{head}{''.join(rows)}</table>"


def _section(record: Record, picture: Path | None) -> str:
    lines = [f"<h2>{_text(record.probe)}</h2><p>{_text(record.question)}</p>"]
    if record.state != "done":
        lines.append(f"<p class='why'>{record.state}: {_text(record.why)}</p>")
    if picture is not None:
        lines.append(_picture(picture, record.question))
    if record.findings:
        lines.append(_findings(record))
    if record.seen:
        proofs = ", ".join(
            f"{seen.count} x <code>{_text(seen.pattern)}</code> in {_text(seen.kernel)}"
            for seen in record.seen
        )
        lines.append(f"<p class='why'>found in the machine code: {proofs}</p>")
    if record.counters:
        lines.append(_counted(record))
    if why := record.facts.get("counters"):
        lines.append(f"<p class='why'>counters: {_text(why)}</p>")
    return "\n".join(lines)


def _picture(file: Path, words: str) -> str:
    return f"<img src='{_text(file.name)}' alt='{_text(words)}'>"


def _findings(record: Record) -> str:
    rows = "".join(
        f"<tr><td><code>{_text(each.name)}</code></td>"
        f"<td class='number'>{_text(quantity(each.value, each.unit))}</td>"
        f"<td class='number'>{each.spread:.1%}</td><td class='number'>{each.samples}</td>"
        f"<td class='note'>{_text(each.note)}</td></tr>"
        for each in record.findings
    )
    head = "<tr><th>yields</th><th>value</th><th>spread</th><th>runs</th><th>how</th></tr>"
    return f"<table>{head}{rows}</table>"


def _counted(record: Record) -> str:
    rows = "".join(
        f"<tr><td>{_text(each.kernel)}</td><td>{_text(each.counter)}</td>"
        f"<td class='number'>{'' if each.value is None else f'{each.value:g}'}</td>"
        f"<td class='note'>{_text(each.note)}</td></tr>"
        for each in record.counters
    )
    head = "<tr><th>kernel</th><th>counter</th><th>value</th><th></th></tr>"
    return f"<p>Counted by Nsight Compute beside the timings:</p><table>{head}{rows}</table>"


def _text(words: str) -> str:
    return html.escape(words)
