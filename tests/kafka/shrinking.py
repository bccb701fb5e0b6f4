"""Makes a case smaller as long as it shows the same: fewer records first, then fewer operators, then plainer ones.

Rule of this module: it knows the form of a case, and nothing of how cases are run.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

Case: TypeAlias = dict[str, Any]

TRIES: Final = 600
"""How many smaller cases are tried at most."""

_REFERENCES: Final = ("input", "this", "other")


def shrink(case: Case, shows: Callable[[Case], bool], tries: int = TRIES) -> Case:
    """Return the smallest case that is found for which ``shows`` is still true, as it is for ``case``."""
    left = tries
    found = True
    while found:
        found = False
        for smaller in _smaller(case):
            if left == 0:
                return case
            left -= 1
            if shows(smaller):
                case, found = smaller, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    yield from _with_fewer_records(case)
    yield from _with_fewer_operators(case)
    yield from _with_plainer_operators(case)
    yield from _with_plainer_records(case)


def _with_fewer_records(case: Case) -> Iterator[Case]:
    records = case["input"]
    size = len(records) // 2
    while size:
        for start in range(0, len(records), size):
            yield case | {"input": records[:start] + records[start + size :]}
        size //= 2


def _with_fewer_operators(case: Case) -> Iterator[Case]:
    """Yield cases without one operator and all that follow from it, or with its source in its place."""
    operators = case["topology"]
    for place in reversed(range(len(operators))):
        yield case | {"topology": _without(operators, place)}
        made, source = operators[place].get("id"), _source(operators[place])
        if made is not None and source is not None:
            rest = operators[:place] + operators[place + 1 :]
            yield case | {"topology": [_renamed(operator, made, source) for operator in rest]}


def _source(operator: Case) -> str | None:
    """Return the operator that it is mainly made of."""
    parents = operator.get("parents", (None,))
    source: str | None = operator.get("input", operator.get("this", parents[0]))
    return source


def _without(operators: list[Case], place: int) -> list[Case]:
    gone = _names(operators[place])
    kept = operators[:place]
    for operator in operators[place + 1 :]:
        if gone & _uses(operator):
            gone |= _names(operator)
        else:
            kept.append(operator)
    return kept


def _names(operator: Case) -> set[str]:
    names = [operator["id"]] if "id" in operator else []
    names += [operator["name"]] if operator["op"] in ("store", "addGlobalStore") else []
    return {*names, *operator.get("ids", ())}


def _uses(operator: Case) -> set[str]:
    uses = [operator[field] for field in _REFERENCES if field in operator]
    uses += operator.get("parents", ())
    uses += [part["input"] for part in operator.get("inputs", ())]
    uses += [operator["processor"]["store"]] if "store" in operator.get("processor", {}) else []
    return set(uses)


def _renamed(operator: Case, before: str, after: str) -> Case:
    changed: Case = {name: after for name in _REFERENCES if operator.get(name) == before}
    if "parents" in operator:
        changed["parents"] = list(dict.fromkeys(after if name == before else name for name in operator["parents"]))
    if "inputs" in operator:
        changed["inputs"] = [_renamed(part, before, after) for part in operator["inputs"]]
    return operator | changed


def _with_plainer_operators(case: Case) -> Iterator[Case]:
    operators = case["topology"]
    for place, operator in enumerate(operators):
        for name in ("materialized", "emit", "max_records"):
            if name in operator:
                plainer = {field: given for field, given in operator.items() if field != name}
                yield case | {"topology": [*operators[:place], plainer, *operators[place + 1 :]]}
    if case.get("config"):
        yield case | {"config": {}}


def _with_plainer_records(case: Case) -> Iterator[Case]:
    records = case["input"]
    if any("headers" in record for record in records):
        plainer = [{name: given for name, given in record.items() if name != "headers"} for record in records]
        yield case | {"input": plainer}
    first = min((record["ts"] for record in records if "ts" in record), default=0)
    if first > 0:
        yield case | {
            "input": [record | ({"ts": record["ts"] - first} if "ts" in record else {}) for record in records]
        }
