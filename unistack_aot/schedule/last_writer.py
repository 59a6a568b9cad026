"""Ordered overwriting stores at places that depend on data, side by side: the last update of each place writes it.

Not here: updates that combine (many_narrow.py), iterations that never meet (independent.py).
"""

from __future__ import annotations

from dataclasses import replace

from unistack_aot.base.dtypes import i64
from unistack_aot.base.symbolic import Dim, symbol, symbols
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.ir.formula import equal
from unistack_aot.ir.scalar import Load, Scalar, index_value, literal
from unistack_aot.mcir.nodes import Access, Kernel, Loop, Param, Role, Stmt, Store, When
from unistack_aot.mcir.transform import all_loads, walk
from unistack_aot.schedule.operator import Operator

FEWEST = 256  # updates below this are done in order sooner than in three launches


def find_updates(kernel: Kernel) -> tuple[list[Loop], Store] | No:
    """The ordered loops and the store of a kernel of overwriting updates, or why it is none."""
    chain: list[Loop] = []
    body = kernel.body
    while len(body) == 1 and isinstance(body[0], Loop) and body[0].role is Role.SEQ:
        chain.append(body[0])
        body = body[0].body
    stores = [stmt for stmt in walk(body) if isinstance(stmt, Store)]
    plain = all(
        isinstance(stmt, Store) or (isinstance(stmt, When) and not stmt.otherwise)
        for stmt in walk(body)
    )
    if not chain or not plain or len(stores) != 1 or stores[0].combine != "set":
        return No("it is not ordered loops around one overwriting store")
    (store,) = stores
    if not any(isinstance(entry, Scalar) for entry in store.index):
        return No("its places do not depend on data")
    if any(load.buffer == store.buffer for load in all_loads(kernel.body)):
        return No("it reads what it writes")
    names = {loop.var for loop in chain}
    if any(symbols(loop.extent) & names for loop in chain):
        return No("a loop's extent depends on another loop")
    count = 1
    for loop in chain:
        count *= loop.extent if isinstance(loop.extent, int) else FEWEST
    return (chain, store) if count >= FEWEST else No(f"{count} updates")


def can_mark(kernel: Kernel, workspace: str) -> Yes | No:
    """Whether the kernel is ordered loops around one overwriting store, with updates worth three launches."""
    found = find_updates(kernel)
    return found if isinstance(found, No) else YES


def marked(kernel: Kernel, workspace: str) -> tuple[Kernel, Kernel, Kernel]:
    """Three kernels without order that leave what ordered overwriting updates leave: the last of each place writes.

    before:
        kernel scatter(places: i64[300] far, x: f32[300] far) -> inout y: f32[8] far {
          for i in 300 role=seq {
            y[at places[i]] = x[i]
          }
        }
    after:
        kernel k0() -> last: i64[8] far {
          for place0 in 8 {
            last[place0] = -1
          }
        }

        kernel k1(places: i64[300] far) -> inout last: i64[8] far {
          for i in 300 {
            last[at places[i]] max= i
          }
        }

        kernel k2(places: i64[300] far, x: f32[300] far, last: i64[8] far) -> inout y: f32[8] far {
          for i in 300 {
            when last[at places[i]] == i {
              y[at places[i]] = x[i]
            }
          }
        }
    """
    found = find_updates(kernel)
    assert not isinstance(found, No)
    chain, store = found
    shape = kernel.param(store.buffer).shape
    number: Dim = 0
    for loop in chain:
        number = number * loop.extent + symbol(loop.var)
    axes = tuple(symbol(f"place{k}") for k in range(len(shape)))
    cleared: tuple[Stmt, ...] = (Store(workspace, axes, literal(-1, i64)),)
    for axis, extent in zip(reversed(axes), reversed(shape), strict=True):
        cleared = (Loop(str(axis), extent, cleared),)
    mark = Store(workspace, store.index, index_value(number), "max")
    latest = equal(Load(workspace, store.index, i64), index_value(number))
    held = Param(workspace, i64, shape)
    inputs = tuple(p for p in kernel.params if p.access is Access.IN)
    read = {load.buffer for load in all_loads(kernel.body)}
    marking = _around(chain, _with_store(chain[-1].body, mark))
    needed = {load.buffer for load in all_loads(marking)}
    return (
        Kernel((replace(held, access=Access.OUT),), cleared),
        Kernel(
            (*(p for p in inputs if p.name in needed), replace(held, access=Access.INOUT)), marking
        ),
        Kernel(
            (*(p for p in inputs if p.name in read), held, *kernel.outputs),
            _around(chain, _with_store(chain[-1].body, When(latest, (store,)))),
        ),
    )


def _around(chain: list[Loop], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The loops of a chain as independent ones around a body."""
    for loop in reversed(chain):
        body = (Loop(loop.var, loop.extent, body),)
    return body


def _with_store(body: tuple[Stmt, ...], instead: Stmt) -> tuple[Stmt, ...]:
    """A body with something else in the place of its store."""
    (stmt,) = body
    if isinstance(stmt, When):
        return (replace(stmt, body=_with_store(stmt.body, instead)),)
    return (instead,)


LAST_WRITER = Operator(
    "last-writer", can_mark, marked, lambda kernels: LAST_WRITER(kernels[0], "last")
)
