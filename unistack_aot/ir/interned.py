"""Interned immutable values: structural equality is identity, so shared subterms merge for free."""

from __future__ import annotations

from typing import Any, ClassVar, Self
from weakref import WeakValueDictionary


class Interned:
    """Base of immutable values that are equal exactly when they are the same object.

    A subclass lists its fields in `__slots__`; positional arguments fill them in order and must be hashable.
    """

    __slots__ = ("__weakref__",)
    _table: ClassVar[WeakValueDictionary[tuple[Any, ...], Any]] = WeakValueDictionary()

    def __new__(cls, *fields: Any) -> Self:
        key = (cls, *(_exact(field) for field in fields))
        found = Interned._table.get(key)
        if found is not None:
            return found
        self = object.__new__(cls)
        names = cls.__slots__
        if len(fields) != len(names):
            raise TypeError(f"{cls.__name__} takes {len(names)} fields, got {len(fields)}")
        for name, value in zip(names, fields, strict=True):
            object.__setattr__(self, name, value)
        Interned._table[key] = self
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __repr__(self) -> str:
        fields = ", ".join(repr(getattr(self, name)) for name in type(self).__slots__)
        return f"{type(self).__name__}({fields})"


def _exact(field: Any) -> Any:
    """Keep 0.0 and -0.0, 1 and 1.0 and True apart as table keys; NaN equals itself."""
    if isinstance(field, float):
        return (float, field.hex())
    if isinstance(field, bool):
        return (bool, field)
    return field
