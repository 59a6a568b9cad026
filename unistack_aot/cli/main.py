"""The entry point: which verb, its arguments, and errors in three lines.

A verb's module is imported when it is asked for, so that `run` works where the compiler is absent.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from unistack_aot import __version__
from unistack_aot.base.errors import BadInput, IRError, UnistackError
from unistack_aot.cli.face import Face

BAD = 2
INTERRUPTED = 130
BARE = "compile"
VERBS = {
    "compile": "compile a model into a package (the bare form: a file name comes first)",
    "check": "compare a package with its model, output by output",
    "run": "run a package on arrays, or time it",
    "show": "list what a package holds",
    "explain": "say what each kernel computes, and why it is as it is",
    "doctor": "say what in a model is not supported, and which tools are here",
    "probe": "measure this machine",
}
USAGE = """\
usage: unistack-aot MODEL.onnx -o FILE.pkg [options]      compile
       unistack-aot VERB ...

verbs:
{verbs}

examples:
  unistack-aot model.onnx -o model.pkg --dim batch=1..8
  unistack-aot check model.onnx model.pkg
  unistack-aot run model.pkg --input x=x.npy

unistack-aot VERB --help says more.
Exit codes: 0 good, 1 a check failed, 2 bad input or missing tool.\
"""


class Parser(argparse.ArgumentParser):
    """Raises BadInput where argparse would print its usage and exit."""

    def error(self, message: str) -> NoReturn:
        """A mistake in the arguments."""
        raise BadInput(message, hint=f"{self.prog} --help")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code: 0 good, 1 a check failed, 2 bad input or a missing tool."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        print(USAGE.format(verbs="\n".join(f"  {v:<8} {text}" for v, text in VERBS.items())))
        return 0 if words else BAD
    if words[0] in ("-V", "--version"):
        print(f"unistack-aot {__version__}")
        return 0
    verb = words.pop(0) if words[0] in VERBS else BARE
    debug = "--debug" in words
    try:
        return _run(verb, words)
    except UnistackError as error:
        return _refused(error, verb, debug)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # whoever read the output has gone; nothing may be flushed into the pipe any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        where = error.filename or error.filename2
        words_of_it = error.strerror or str(error)
        return _refused(BadInput(f"{words_of_it}", at=where), verb, debug)
    except MemoryError as error:
        reason = f" ({error})" if str(error) else ""
        memory = UnistackError(
            f"there is not enough memory{reason}", hint="make the sizes smaller, or free memory"
        )
        return _refused(memory, verb, debug)
    except Exception as fault:
        return _fault(fault, debug)


def _run(verb: str, words: Sequence[str]) -> int:
    module = import_module(f"unistack_aot.cli.{verb}")
    parser = Parser(
        prog="unistack-aot" if verb == BARE else f"unistack-aot {verb}",
        description=VERBS[verb].capitalize() + ".",
        epilog=f"example: {module.EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.arguments(parser)
    looks = parser.add_argument_group("output")
    looks.add_argument("--json", action="store_true", help="print one JSON document instead")
    looks.add_argument("-q", "--quiet", action="store_true", help="print errors only")
    looks.add_argument("--debug", action="store_true", help="show where an error was raised")
    options = parser.parse_args(words)
    face = Face(options.json, options.quiet)
    code = int(module.run(options, face))
    face.finish()
    return code


def _refused(error: UnistackError, verb: str, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    if isinstance(error, IRError):
        return _fault(error, debug)
    print(f"error: {error}", file=sys.stderr)
    if verb == BARE:
        print("nothing was written", file=sys.stderr)
    return error.exit_code


def _fault(fault: Exception, debug: bool) -> int:
    if debug:
        traceback.print_exception(fault)
    frames = traceback.extract_tb(fault.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "unknown"
    if isinstance(fault, UnistackError):
        what, place = fault.what, fault.at or place
    else:
        what = f"{type(fault).__name__}: {fault}"
    error = UnistackError(
        f"a fault of unistack-aot itself: {(what.splitlines() or [''])[0]}",
        at=place,
        hint="please report it with the model, or its `doctor` output; --debug shows more",
    )
    print(f"error: {error}", file=sys.stderr)
    return BAD
