"""`unistack-aot explain PACKAGE`: what each kernel computes and why it is as it is.

Every line comes from what the package records: the manifest, `lock.json`, `provenance.json`. Not
here: reading those records (records.py).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from unistack_aot.artifact.manifest import Kernel, Launch, Variant
from unistack_aot.artifact.reader import Package, open_package
from unistack_aot.base.errors import BadInput
from unistack_aot.cli.face import Face, plural, size
from unistack_aot.cli.records import (
    Record,
    choice,
    decisions_of,
    fused,
    grouped,
    is_fusion,
    nodes_of,
    saved_bytes,
)
from unistack_aot.cli.rules import explain_rule
from unistack_aot.runtime.layout import value

EXAMPLE = "unistack-aot explain bert.pkg --kernel 12"
SHOWN = 100  # characters of ONNX names where all kernels are listed
LABEL = 20


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    parser.add_argument("file", type=Path, help="a package, or with --rule the .onnx model")
    parser.add_argument("--kernel", type=int, metavar="N", help="only this one, in full")
    parser.add_argument("--node", metavar="NAME", help="what became of a node of the ONNX model")
    parser.add_argument("--target", help="of which variant (default: the first; --node: all)")
    parser.add_argument(
        "--rule", metavar="NAME", help="where a rewrite fired, and why not elsewhere"
    )


def run(options: argparse.Namespace, face: Face) -> int:
    """Explain."""
    if options.rule:
        report = explain_rule(options.file, options.rule)
        for line in report.text.split("\n"):
            face.say(line)
        face.fact(rule=options.rule, fired=report.fired, refused=report.refused)
        return 0
    package = open_package(options.file)
    if options.node is not None:
        return _node(package, options.node, options.target, face)
    variant = _chosen(package, options.target)
    if options.kernel is not None and not 0 <= options.kernel < len(variant.kernels):
        raise BadInput(
            f"there is no kernel {options.kernel}",
            at=variant.target,
            hint=f"kernels are numbered 0..{len(variant.kernels) - 1}",
        )
    sizes = {dim.name: max(dim.typical, 1) for dim in package.manifest.dims}
    records = decisions_of(package, variant)
    wanted = range(len(variant.kernels)) if options.kernel is None else [options.kernel]
    at = ", ".join(f"{name} {number}" for name, number in sizes.items())
    face.say(f"{package.manifest.model} on {variant.target}{f', at {at}' if at else ''}")
    story = Story(variant, sizes, options.kernel is not None, _precision(package), face)
    facts = [story.kernel(n, records.get(variant.kernels[n].symbol, [])) for n in wanted]
    face.fact(model=package.manifest.model, target=variant.target, at=sizes, kernels=facts)
    return 0


def _chosen(package: Package, target: str | None) -> Variant:
    variants = package.manifest.variants
    if target is None and variants:
        return variants[0]
    for variant in variants:
        if variant.target == target or variant.target.split(":")[0] == target:
            return variant
    held = ", ".join(variant.target for variant in variants) or "none"
    raise BadInput(f"no variant for {target!r}", hint=f"the package holds {held}")


def _precision(package: Package) -> str:
    """What contractions may be computed in, as the package records it."""
    found = dict(option.split("=", 1) for option in package.manifest.options if "=" in option)
    return found.get("precision", "")


class Story:
    """What is said of the kernels of one variant, in short or in `full`."""

    def __init__(
        self, variant: Variant, sizes: Mapping[str, int], full: bool, precision: str, face: Face
    ) -> None:
        self.variant, self.sizes, self.full = variant, dict(sizes), full
        self.precision, self.face = precision, face

    def line(self, label: str, text: str) -> None:
        """One line about the kernel."""
        self.face.say(f"  {label:<{LABEL}} {text}")

    def kernel(self, number: int, records: list[Record]) -> dict[str, object]:
        """Say what is recorded of a kernel; the same as facts."""
        kernel = self.variant.kernels[number]
        launches = [(k, s) for k, s in enumerate(self.variant.launches) if s.kernel == number]
        nodes = grouped(kernel.origins) or "no node of its own"
        shown = nodes if self.full or len(nodes) <= SHOWN else f"{nodes[: SHOWN - 3]}..."
        self.face.say(f"kernel {number}  {kernel.symbol}   <- {shown}")
        steps = f", {value(kernel.steps, self.sizes)} steps each" if kernel.steps else ""
        self.line("launched", f"{plural(len(launches), 'time')} per run{steps}")
        if self.full:
            self._launches(kernel, launches)
        why = fused(records, self.sizes)
        for k, reason in enumerate(why):
            self.line("" if k else "one kernel because", reason)
        moved = value(kernel.far_bytes, self.sizes)
        saved = saved_bytes(records, self.sizes)
        unfused = f" (unfused {size(moved * len(launches) + saved)})" if saved else ""
        self.line("moves", f"{size(moved * len(launches))} far{unfused}")
        self._choices(records)
        if self.full and self.variant.target.split(":")[0] != "cpu":
            grid, block = " x ".join(kernel.grid), " x ".join(kernel.block)
            shared = f"{kernel.shared_bytes} bytes shared"
            self.line("grid", f"{grid} blocks of {block} threads, {shared}")
        return {
            "number": number,
            "symbol": kernel.symbol,
            "nodes": list(kernel.origins),
            "launches": [
                {"number": k, "nodes": list(s.origins), "buffers": self._operands(kernel, s)}
                for k, s in launches
            ],
            "far_bytes": moved * len(launches),
            "unfused_far_bytes": moved * len(launches) + saved,
            "decisions": records,
        }

    def _launches(self, kernel: Kernel, launches: list[tuple[int, Launch]]) -> None:
        """Each launch: what it computes, on which buffers."""
        for number, launch in launches:
            self.line(f"  launch {number}", grouped(launch.origins) or "no node of its own")
            self.line("", ", ".join(self._operands(kernel, launch)))

    def _operands(self, kernel: Kernel, launch: Launch) -> list[str]:
        buffers = [self.variant.buffers[number] for number in launch.buffers]
        return [
            f"{param.kind} {buffer.name}: {buffer.dtype}[{', '.join(buffer.shape)}]"
            for param, buffer in zip(kernel.pointers, buffers, strict=True)
        ]

    def _choices(self, records: list[Record]) -> None:
        """Choices other than fusion, equal ones once; then precision, if a choice depends on it."""
        chosen = [record for record in records if not is_fusion(record)]
        said: dict[tuple[str, str], None] = {}
        for record in chosen:
            said[str(record["what"]), choice(record, self.full)] = None
        last = [pair for pair in said if pair[0] == "predicted"]
        for label, text in [*(pair for pair in said if pair not in last), *last]:
            self.line("tiles" if label in ("tile", "blocks") else label, text)
        products = any(r["what"] in ("tile", "blocks", "attention") for r in chosen)
        if products and self.precision and self.full:
            self.line("precision", f"asked for: products may be computed in {self.precision}")


def _node(package: Package, name: str, target: str | None, face: Face) -> int:
    """Where a node of the model went, in each variant."""
    nodes = nodes_of(package)
    variants = package.manifest.variants if target is None else (_chosen(package, target),)
    inside = f"{name}/"
    launched = {o for v in package.manifest.variants for s in v.launches for o in s.origins}
    if name not in nodes and not any(o == name or o.startswith(inside) for o in launched):
        near = get_close_matches(name, sorted({*nodes, *launched}), 3)
        raise BadInput(
            f"the model has no node {name!r}",
            at=package.path,
            hint=f"did you mean {', '.join(near)}?" if near else "show PACKAGE --steps lists them",
        )
    known = nodes.get(name, {})
    face.say(f"node {name}  {known.get('op', '')}".rstrip())
    gone = str(known.get("gone", ""))
    facts: dict[str, list[dict[str, object]]] = {}
    for variant in variants:
        found = [
            (number, launch)
            for number, launch in enumerate(variant.launches)
            if any(o == name or o.startswith(inside) for o in launch.origins)
        ]
        facts[variant.target] = [
            {"launch": number, "kernel": launch.kernel, "nodes": list(launch.origins)}
            for number, launch in found
        ]
        if not found:
            reason = gone or "no kernel, and the package does not say why"
            face.say(f"  {variant.target:<{LABEL}} gone: {reason}")
        for number, launch in found:
            symbol = variant.kernels[launch.kernel].symbol
            others = grouped(o for o in launch.origins if o != name)
            together = f", with {others}" if others else ""
            where = f"kernel {launch.kernel} ({symbol}), launch {number}"
            face.say(f"  {variant.target:<{LABEL}} {where}{together}")
    face.fact(node=name, op=known.get("op", ""), gone=gone or None, launches=facts)
    return 0
