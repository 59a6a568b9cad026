"""`unistack-aot explain PACKAGE`: what each kernel computes and why it is as it is."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from unistack_aot.artifact.manifest import Kernel, Launch, Variant
from unistack_aot.artifact.reader import Package, open_package
from unistack_aot.base.errors import BadInput
from unistack_aot.cli.face import Face, plural, size
from unistack_aot.cli.rules import explain_rule
from unistack_aot.runtime.layout import value

EXAMPLE = "unistack-aot explain bert.pkg --kernel 12"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    parser.add_argument("file", type=Path, help="a package, or with --rule the .onnx model")
    parser.add_argument("--kernel", type=int, metavar="N", help="only this one, in full")
    parser.add_argument("--target", help="of which variant (default: the first)")
    parser.add_argument(
        "--rule", metavar="NAME", help="where a rewrite fired, and why not elsewhere"
    )


def run(options: argparse.Namespace, face: Face) -> int:
    """Explain."""
    if options.rule:
        for line in explain_rule(options.file, options.rule).split("\n"):
            face.say(line)
        face.fact(rule=options.rule)
        return 0
    package = open_package(options.file)
    variant = _chosen(package, options.target)
    if options.kernel is not None and not 0 <= options.kernel < len(variant.kernels):
        raise BadInput(
            f"there is no kernel {options.kernel}",
            at=variant.target,
            hint=f"kernels are numbered 0..{len(variant.kernels) - 1}",
        )
    sizes = {dim.name: max(dim.typical, 1) for dim in package.manifest.dims}
    records = _decisions(package, variant)
    wanted = range(len(variant.kernels)) if options.kernel is None else [options.kernel]
    at = ", ".join(f"{name} {number}" for name, number in sizes.items())
    face.say(f"{package.manifest.model} on {variant.target}{f', at {at}' if at else ''}")
    facts = [
        _explain(number, variant, sizes, records, options.kernel is not None, face)
        for number in wanted
    ]
    face.fact(target=variant.target, kernels=facts)
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


def _decisions(package: Package, variant: Variant) -> dict[str, list[dict[str, Any]]]:
    """Decision records of the lock file by kernel symbol."""
    if "lock.json" not in {member.name for member in package.manifest.members}:
        return {}
    lock = package.document("lock.json")
    found: dict[str, list[dict[str, Any]]] = {}
    for record in lock.get("decisions", {}).get(variant.target, []):
        found.setdefault(str(record.get("kernel", "")), []).append(record)
    return found


def _explain(
    number: int,
    variant: Variant,
    sizes: dict[str, int],
    records: dict[str, list[dict[str, Any]]],
    full: bool,
    face: Face,
) -> dict[str, object]:
    kernel = variant.kernels[number]
    launches = [step for step in variant.launches if step.kernel == number]
    far = sum(_traffic(variant, kernel, launch, sizes) for launch in launches)
    nodes = ", ".join(kernel.origins) or "no node of its own"
    face.say(f"kernel {number}  {kernel.symbol}   <- {nodes if full else _shortened(nodes)}")
    face.say(f"  launched    {plural(len(launches), 'time')} per run")
    face.say(f"  touches     {size(far)} of far memory (sizes of its operands, all launches)")
    if full:
        for launch in launches[:4]:
            face.say(f"  operands    {_operands(variant, kernel, launch)}")
        grid = [" x ".join(kernel.grid), " x ".join(kernel.block)]
        if variant.target.split(":")[0] != "cpu":
            face.say(
                f"  grid        {grid[0]} blocks of {grid[1]} threads, "
                f"{kernel.shared_bytes} bytes shared"
            )
        if kernel.text:
            face.say(f"  computes    {kernel.text}")
    decisions = records.get(kernel.symbol, [])
    face.table(
        [
            (f"{record['what']:<10}", record["chosen"], _because(record, full))
            for record in decisions
        ]
    )
    return {
        "number": number,
        "symbol": kernel.symbol,
        "nodes": list(kernel.origins),
        "launches": len(launches),
        "operand_bytes": far,
        "decisions": decisions,
    }


def _because(record: dict[str, Any], full: bool) -> str:
    """Why, and in full what else was tried."""
    tried = ", ".join(record["tried"]) if full else ""
    return f"{record['because']}; tried {tried}" if tried else str(record["because"])


def _shortened(nodes: str) -> str:
    return nodes if len(nodes) <= 100 else f"{nodes[:97]}..."


def _traffic(variant: Variant, kernel: Kernel, launch: Launch, sizes: dict[str, int]) -> int:
    return sum(
        value(variant.buffers[number].nbytes, sizes)
        for _, number in zip(kernel.pointers, launch.buffers, strict=True)
    )


def _operands(variant: Variant, kernel: Kernel, launch: Launch) -> str:
    parts: list[str] = []
    for param, number in zip(kernel.pointers, launch.buffers, strict=True):
        buffer = variant.buffers[number]
        parts.append(f"{param.kind} {buffer.name}: {buffer.dtype}[{', '.join(buffer.shape)}]")
    return ", ".join(parts)
