"""One static page about a package: ONNX nodes, kernels, source lines, linked both ways."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path

from unistack_aot.artifact.manifest import Variant
from unistack_aot.artifact.reader import Package
from unistack_aot.base.errors import BadInput

STYLE = """\
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em; max-width: 110em }
table { border-collapse: collapse } td, th { padding: .15em .8em; text-align: left }
tr:target, pre span:target { background: #fff3b0 } tr:nth-child(even) { background: #f6f6f6 }
pre { font: 12px/1.4 ui-monospace, monospace; background: #f6f6f6; padding: 1em; overflow-x: auto }
a { color: #0550ae; text-decoration: none } h2 { margin-top: 2em }
"""
KERNEL = re.compile(r"\b(k\d+)\s*\(")


def write_page(package: Package, output: Path, dump: Path | None) -> None:
    """Write the page; `dump` is the folder with the stages, whose texts are shown as well."""
    if dump is not None and not (dump / "index.txt").is_file():
        raise BadInput(f"{dump} holds no stages", hint="compile with --dump DIR first")
    manifest = package.manifest
    parts = [
        "<!doctype html><meta charset='utf-8'>",
        f"<title>{escape(manifest.model)}</title><style>{STYLE}</style>",
        f"<h1>{escape(manifest.model)}</h1><p>{escape(manifest.producer)}</p>",
    ]
    for variant in manifest.variants:
        parts += _variant(variant)
    nodes = _nodes_of(manifest.variants[0]) if manifest.variants else {}
    if dump is not None:
        parts += _stages(dump, nodes)
    output.write_text("\n".join(parts), encoding="utf-8")


def _variant(variant: Variant) -> Iterator[str]:
    prefix = _anchor(variant.target)
    nodes = _nodes_of(variant)
    yield f"<h2>{escape(variant.target)}</h2><h3>Nodes</h3><table><tr><th>ONNX node<th>kernels"
    for node, kernels in nodes.items():
        links = " ".join(f"<a href='#{prefix}-{k}'>{escape(k)}</a>" for k in kernels)
        yield f"<tr id='{prefix}-node-{_anchor(node)}'><td>{escape(node)}<td>{links}"
    yield "</table><h3>Kernels</h3><table><tr><th>kernel<th>computes<th>parameters"
    for kernel in variant.kernels:
        links = ", ".join(
            f"<a href='#{prefix}-node-{_anchor(node)}'>{escape(node)}</a>"
            for node in kernel.origins
        )
        params = ", ".join(f"{p.kind} {p.name}" for p in kernel.params)
        source = f"<a href='#{prefix}-source-{kernel.symbol}'>{escape(kernel.symbol)}</a>"
        yield f"<tr id='{prefix}-{kernel.symbol}'><td>{source}<td>{links}<td>{escape(params)}"
    yield "</table>"


def _nodes_of(variant: Variant) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for kernel in variant.kernels:
        for node in kernel.origins:
            found.setdefault(node, []).append(kernel.symbol)
    return found


def _stages(dump: Path, nodes: dict[str, list[str]]) -> Iterator[str]:
    for file in sorted(dump.iterdir()):
        if file.suffix in (".aicf", ".cpp", ".cu", ".mcir"):
            yield f"<h2>{escape(file.name)}</h2><pre>"
            yield from _lines(file, nodes)
            yield "</pre>"


def _lines(file: Path, nodes: dict[str, list[str]]) -> Iterator[str]:
    """Source lines; the first line that names a kernel is where links to it lead."""
    target = re.sub(r"^\d\d-|-(entry|kernels)?[^-]*$", "", file.stem)
    seen: set[str] = set()
    for line in file.read_text(encoding="utf-8").splitlines():
        text = escape(line)
        found = KERNEL.search(line) if file.suffix in (".cpp", ".cu") else None
        if found is not None and found[1] not in seen and "entry" not in file.stem:
            seen.add(found[1])
            text = f"<span id='{_anchor(target)}-source-{found[1]}'>{text}</span>"
        if file.suffix == ".aicf" and "# from" in line:
            text = _linked(line, nodes)
        yield text


def _linked(line: str, nodes: dict[str, list[str]]) -> str:
    code, _, names = line.partition("# from ")
    listed = [name.strip().strip('"') for name in names.split(",")]
    kernels = {name: " ".join(nodes.get(name, ["no kernel of its own"])) for name in listed}
    shown = ", ".join(f"<b title='{escape(k)}'>{escape(n)}</b>" for n, k in kernels.items())
    return f"{escape(code)}# from {shown}"


def _anchor(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", name)
