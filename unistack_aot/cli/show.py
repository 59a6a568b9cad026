"""`unistack-aot show PACKAGE`: what a package holds. Needs the runtime only."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from unistack_aot.artifact import manifest as m
from unistack_aot.artifact.reader import Package, open_package
from unistack_aot.cli.face import Face, plural, size
from unistack_aot.cli.memory import UNBOUNDED, certificates
from unistack_aot.cli.page import write_page

EXAMPLE = "unistack-aot show bert.pkg --steps"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    parser.add_argument("package", type=Path, help="the package")
    parser.add_argument("--steps", action="store_true", help="list every step and its buffers")
    parser.add_argument("--buffers", action="store_true", help="list every buffer and its lifetime")
    parser.add_argument("--verify", action="store_true", help="check every member's hash")
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write one page that links nodes and kernels"
    )
    parser.add_argument(
        "--dump", type=Path, metavar="DIR", help="with --html: the stages that --dump wrote"
    )


def run(options: argparse.Namespace, face: Face) -> int:
    """Show."""
    package = open_package(options.package, options.verify)
    manifest = package.manifest
    face.say(f"{manifest.model}  by {manifest.producer}, format {manifest.version}")
    _signature(manifest, face)
    face.say("members")
    face.table(
        [(member.name, size(member.nbytes), member.sha256[:16]) for member in manifest.members],
        right="lr",
    )
    for variant in manifest.variants:
        _variant(manifest, variant, options, face)
    if manifest.golden:
        face.say(f"{plural(len(manifest.golden), 'recorded run')} for the self-test")
    if options.verify:
        face.say("every hash is right")
    if options.html:
        write_page(package, options.html, options.dump)
        face.say(f"wrote {options.html}")
    face.fact(**_facts(package))
    return 0


def _facts(package: Package) -> dict[str, object]:
    manifest = package.manifest
    return {
        "model": manifest.model,
        "producer": manifest.producer,
        "version": manifest.version,
        "options": list(manifest.options),
        "inputs": [asdict(tensor) for tensor in manifest.inputs],
        "outputs": [asdict(tensor) for tensor in manifest.outputs],
        "dims": [asdict(dim) for dim in manifest.dims],
        "members": [asdict(member) for member in manifest.members],
        "variants": [
            {
                "target": variant.target,
                "needs": list(variant.needs),
                "kernels": len(variant.kernels),
                "launches": len(variant.launches),
                "certificates": [asdict(found) for _, found in certificates(manifest, variant)],
            }
            for variant in manifest.variants
        ],
    }


def _signature(manifest: m.Manifest, face: Face) -> None:
    rows = [("in", t.name, _kind(t.dtype, t.shape)) for t in manifest.inputs]
    rows += [("out", t.name, _kind(t.dtype, t.shape)) for t in manifest.outputs]
    for dim in manifest.dims:
        high = "any" if dim.high >= UNBOUNDED else str(dim.high)
        rows.append(("dim", dim.name, f"{dim.low}..{high}, typically {dim.typical}"))
    rows += [("option", *option.split("=", 1)) for option in manifest.options]
    face.table(rows)


def _kind(dtype: str, shape: tuple[str, ...]) -> str:
    return f"{dtype}[{', '.join(shape)}]"


def _variant(
    manifest: m.Manifest, variant: m.Variant, options: argparse.Namespace, face: Face
) -> None:
    needs = f", needs {' '.join(variant.needs)}" if variant.needs else ""
    face.say(
        f"{variant.target}: {plural(len(variant.kernels), 'kernel')}, "
        f"{len(variant.launches)} launches, {plural(len(variant.buffers), 'buffer')}{needs}"
    )
    for where, found in certificates(manifest, variant):
        place = f" at {where}" if where else ""
        face.say(f"  arena {size(found.peak)}{place} (lower bound {size(found.lower_bound)})")
    if options.buffers:
        face.table(list(_buffer_rows(variant)), right="rlllr")
    if options.steps:
        for line in step_lines(variant):
            face.say(f"  {line}")


def _buffer_rows(variant: m.Variant) -> Iterator[tuple[object, ...]]:
    yield ("", "buffer", "kind", "type", "bytes", "steps")
    for number, buffer in enumerate(variant.buffers):
        place = (
            f"in {variant.buffers[buffer.alias_of].name} + {buffer.offset}"
            if buffer.alias_of is not None
            else f"{buffer.first}..{buffer.last}"
        )
        kind = f"{buffer.kind} {buffer.key[:16]}".strip()
        yield number, buffer.name, kind, _kind(buffer.dtype, buffer.shape), buffer.nbytes, place


def step_lines(variant: m.Variant) -> list[str]:
    """Every step in order, regions indented: what it writes, what it reads, whose node it is."""
    lines: list[str] = []
    numbers = iter(range(len(variant.launches)))
    _steps(variant, variant.steps, "", numbers, lines)
    return lines


def _steps(
    variant: m.Variant,
    steps: tuple[m.Step, ...],
    indent: str,
    numbers: Iterator[int],
    lines: list[str],
) -> None:
    names = [buffer.name for buffer in variant.buffers]
    for step in steps:
        match step:
            case m.Launch():
                kernel = variant.kernels[step.kernel]
                pairs = list(zip(kernel.pointers, step.buffers, strict=True))
                reads = ", ".join(names[b] for p, b in pairs if p.kind != "out")
                writes = ", ".join(names[b] for p, b in pairs if p.kind != "in")
                nodes = ", ".join(kernel.origins)
                lines.append(
                    f"{indent}{next(numbers):>4} {kernel.symbol}({reads}) -> {writes}  # {nodes}"
                )
            case m.Copy():
                lines.append(f"{indent}     copy {names[step.source]} -> {names[step.target]}")
            case m.Fill():
                lines.append(f"{indent}     zero {names[step.buffer]}")
            case m.Refuse():
                lines.append(f"{indent}     refuse: {step.reason}")
            case m.If():
                lines.append(f"{indent}     if {names[step.condition]}")
                _steps(variant, step.then, indent + "  ", numbers, lines)
                lines.append(f"{indent}     else")
                _steps(variant, step.otherwise, indent + "  ", numbers, lines)
            case m.Loop():
                lines.append(f"{indent}     loop")
                _steps(variant, step.body, indent + "  ", numbers, lines)
