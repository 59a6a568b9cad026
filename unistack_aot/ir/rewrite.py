"""The rewriting driver: rules over interned terms, bottom-up, to a fixed point. Not here: rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from unistack_aot.base.errors import IRError
from unistack_aot.base.verdict import No
from unistack_aot.ir.pattern import Of, Pattern, Term, match

T = TypeVar("T", bound=Term)

REMEMBERED = 200  # refusals kept per rule: enough to explain one, bounded on any model
PATIENCE = 200  # steps per term of a pass before the rules are held not to terminate


@dataclass(frozen=True)
class Rule(Generic[T]):
    """A local rewrite: where `pattern` matches, `replace(**names)` gives a term or `No(reason)`.

    With `counts`, `replace` is also given `uses(term)`, the number of a term's users, so that it
    can leave terms alone that would have to be computed twice.
    `needs` names the properties that make it true. `fires` and `holds` are examples in text form:
    terms on which the rule must fire, and terms which it must leave alone.
    """

    name: str
    pattern: Of
    replace: Callable[..., T | No]
    needs: tuple[str, ...] = ()
    fires: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    counts: bool = False


@dataclass(frozen=True)
class JointRule(Generic[T]):
    """A rewrite of several terms at once: `find(users)` gives what replaces what.

    A replacement must not use a term that it replaces.
    """

    name: str
    find: Callable[[Users[T]], Mapping[T, T]]
    needs: tuple[str, ...] = ()
    fires: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()


AnyRule = Rule[T] | JointRule[T]


@dataclass(frozen=True)
class Users(Generic[T]):
    """A snapshot of a graph: terms in order, and who uses each."""

    order: tuple[T, ...]
    users: Mapping[T, tuple[T, ...]]
    results: frozenset[T]

    def of(self, term: T) -> tuple[T, ...]:
        """The distinct terms that take `term` as an argument."""
        return self.users.get(term, ())

    def only(self, term: T) -> T | None:
        """The one user of `term`; None if there are more, or if it is a result."""
        found = self.of(term)
        return found[0] if len(found) == 1 and term not in self.results else None


@dataclass
class Log:
    """What rules did: firings by rule and in order, and for refusals the term and the reason."""

    fired: Counter[str] = field(default_factory=Counter[str])
    firings: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    refused: dict[str, list[tuple[Any, str]]] = field(
        default_factory=dict[str, list[tuple[Any, str]]]
    )

    def fire(self, rule: str, term: Any) -> None:
        """Remember that `rule` replaced `term`."""
        self.fired[rule] += 1
        self.firings.append((rule, term))

    def refuse(self, rule: str, term: Any, reason: str) -> None:
        """Remember why `rule` left `term` alone; each pair once."""
        seen = self.refused.setdefault(rule, [])
        if len(seen) < REMEMBERED and (term, reason) not in seen:
            seen.append((term, reason))


@dataclass(frozen=True)
class Language(Generic[T]):
    """What the driver must know of terms: how to build one, and whom to tell of changes.

    `inherit(fresh, old)` hears of replacements by rules, `rebuilt` of terms over replaced arguments.
    `fired(rule, old, fresh)` sees each replacement before it is used, `passed(roots)` each pass.
    """

    build: Callable[[Any, tuple[T, ...]], T]
    inherit: Callable[[T, T], None]
    rebuilt: Callable[[T, T], None]
    fired: Callable[[str, T, T], None] = lambda rule, old, fresh: None
    passed: Callable[[tuple[T, ...]], None] = lambda roots: None


@dataclass
class RuleIndex(Generic[T]):
    """Rules by the class of the operation at their root."""

    rules: tuple[Rule[T], ...]
    by_class: dict[type, tuple[Rule[T], ...]] = field(default_factory=dict[type, Any])

    def of(self, op: Any) -> tuple[Rule[T], ...]:
        """The rules that may match a term with this operation, in order."""
        kind = type(op)
        found = self.by_class.get(kind)
        if found is None:
            found = tuple(r for r in self.rules if issubclass(kind, r.pattern.ops))
            self.by_class[kind] = found
        return found


def postorder(roots: Iterable[T]) -> Iterator[T]:
    """Every distinct term once, arguments first, without recursion."""
    seen: set[T] = set()
    stack: list[tuple[T, bool]] = [(root, False) for root in reversed(list(roots))]
    while stack:
        term, ready = stack.pop()
        if ready:
            yield term
        elif term not in seen:
            seen.add(term)
            stack.append((term, True))
            stack.extend((arg, False) for arg in reversed(term.args) if arg not in seen)


def users_of(roots: Sequence[T]) -> Users[T]:
    """The snapshot of the graph below `roots`."""
    order = tuple(postorder(roots))
    users: dict[T, list[T]] = {}
    for term in order:
        for arg in dict.fromkeys(term.args):
            users.setdefault(arg, []).append(term)
    return Users(order, {k: tuple(v) for k, v in users.items()}, frozenset(roots))


def rewrite(
    roots: Sequence[T], rules: Sequence[AnyRule[T]], language: Language[T], log: Log
) -> tuple[T, ...]:
    """The roots after applying `rules` until none fires; results keep their types."""
    index = RuleIndex[T](tuple(r for r in rules if isinstance(r, Rule)))
    joint = [r for r in rules if isinstance(r, JointRule)]
    current = tuple(roots)
    while True:
        before, snapshot = log.fired.total(), users_of(current)
        replaced = _joint(joint, snapshot, language, log)
        current = _Pass(index, language, log, snapshot).run(current, replaced)
        language.passed(current)
        if log.fired.total() == before:
            return current


def _joint(
    rules: Sequence[JointRule[T]], users: Users[T], language: Language[T], log: Log
) -> dict[T, T]:
    """Replacements by joint rules; terms that one rule replaces are not offered to another."""
    replaced: dict[T, T] = {}
    for rule in rules:
        for old, new in rule.find(users).items():
            if old in replaced:
                continue
            if new.type != old.type:
                log.refuse(rule.name, old, f"the replacement is {new.type}, not {old.type}")
                continue
            language.fired(rule.name, old, new)
            replaced[old] = new
            log.fire(rule.name, old)
    return replaced


class _Pass(Generic[T]):
    """One bottom-up pass: `done` maps terms to normal forms, `forward` to what replaces them."""

    def __init__(
        self, index: RuleIndex[T], language: Language[T], log: Log, snapshot: Users[T]
    ) -> None:
        self.index, self.language, self.log = index, language, log
        self.uses = Counter(arg for term in snapshot.order for arg in term.args)
        self.uses.update(snapshot.results)
        self.done: dict[T, T] = {}
        self.forward: dict[T, T] = {}
        self.budget = PATIENCE * (len(snapshot.order) + 10)

    def run(self, roots: Sequence[T], replaced: Mapping[T, T]) -> tuple[T, ...]:
        """The normal forms of the roots."""
        for old, new in replaced.items():
            self.language.inherit(new, old)
        self.forward.update(replaced)
        stack = list(reversed(roots))
        while stack:
            self._step(stack)
            self.budget -= 1
            if not self.budget:
                common = ", ".join(name for name, _ in self.log.fired.most_common(3))
                raise IRError(f"rules do not come to an end; the busiest are {common}")
        return tuple(self.done[root] for root in roots)

    def _step(self, stack: list[T]) -> None:
        term = stack[-1]
        if term in self.done:
            stack.pop()
            return
        target = self.forward.get(term)
        if target is not None:
            if target in self.done:
                self.done[term] = self.done[target]
            else:
                stack.append(target)
            return
        waiting = [arg for arg in term.args if arg not in self.done]
        if waiting:
            stack.extend(reversed(waiting))
            return
        args = tuple(self.done[arg] for arg in term.args)
        fresh = self._fired(term) if args == term.args else self.language.build(term.op, args)
        if fresh is None:
            self.done[term] = term
            return
        if args != term.args:
            self.language.rebuilt(fresh, term)
        self.uses[fresh] += max(1, self.uses[term])
        self.forward[term] = fresh

    def _fired(self, term: T) -> T | None:
        """What the first rule that fires makes of a term whose arguments are normal."""
        for rule in self.index.of(term.op):
            for names in match(rule.pattern, term, self._count):
                extra = {"uses": self._count} if rule.counts else {}
                found = rule.replace(**names, **extra)
                if isinstance(found, No):
                    self.log.refuse(rule.name, term, found.reason)
                elif found.type != term.type:
                    reason = f"the replacement is {found.type}, not {term.type}"
                    self.log.refuse(rule.name, term, reason)
                elif found is not term:
                    self.language.fired(rule.name, term, found)
                    self.log.fire(rule.name, term)
                    self.language.inherit(found, term)
                    return found
        return None

    def _count(self, term: T) -> int:
        return self.uses.get(term, 1)


def variables(pattern: Pattern) -> frozenset[str]:
    """The names a pattern binds."""
    own = frozenset({pattern.name} - {""})
    if isinstance(pattern, Of) and pattern.args is not None:
        return own.union(*(variables(arg) for arg in pattern.args))
    return own
