"""Small faults to plant in a module: each changes one expression or statement of one function.

Nothing is changed that no test should notice: messages, names in f-strings, docstrings, annotations, ``__repr__``,
logging. Defaults of parameters, decorators and what stands outside of functions are left alone, because a mutant is
planted into functions that are already imported, by their code.
"""

import ast
import gc
import importlib
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
ROOMS: Final = {
    "operators": ("processors",),
    "checkpoint": ("stores/durability", "adapters/spark/operator"),
    "encoding": ("stores/encoding", "stores/typed"),
}
"""What mutants are planted in, by the name under which results are counted."""
PROBE: Final = "_mutant_is_reached"
"""A built-in function that exists while it is recorded which tests reach which mutants."""
_COMPARISONS: Final[dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
}
_CALLS: Final = {"sorted": "list", "reversed": "list", "min": "max", "max": "min", "any": "all", "all": "any"}
_UNSEEN: Final = frozenset(("cast", "TypeVar", "warn", "debug", "info", "warning", "exception", "refused"))
"""Functions whose arguments no test should depend on."""


class Site(NamedTuple):
    """A place in a tree and what may be planted there.

    Attributes:
        kind: What is changed.
        function: The function's name with its classes', and its first line.
        block: The list of statements in which the place is, and the number of the statement in it.
        node: The expression or statement, as it is before.
        plant: Changes the tree, and returns the new node.
    """

    kind: str
    function: str
    block: tuple[list[ast.stmt], int]
    node: ast.AST
    plant: Callable[[], ast.AST]


class Mutant(NamedTuple):
    """One change of one file, which is found again by its number among all sites of the file."""

    room: str
    path: str
    line: int
    function: str
    kind: str
    number: int
    before: str
    after: str

    @property
    def module(self) -> str:
        """The name under which the file is imported."""
        return "millpond." + self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def drawn(seed: int, each: int) -> list[Mutant]:
    """Draw mutants: as many of each room, of kinds in turn, no two in one function.

    Args:
        seed: Draws others.
        each: How many a room gets.
    """
    chance = random.Random(seed)
    return [mutant for room in ROOMS for mutant in _drawn(room, chance, each)]


def _drawn(room: str, chance: random.Random, each: int) -> Iterator[Mutant]:
    paths = sorted(path for part in ROOMS[room] for path in (ROOT / part).rglob("*.py"))
    kinds: dict[str, list[tuple[Path, int, str]]] = {}
    for path in paths:
        for number, site in enumerate(sites(ast.parse(path.read_text()))):
            kinds.setdefault(site.kind, []).append((path, number, site.function))
    for places in kinds.values():
        chance.shuffle(places)
    seen: set[tuple[Path, str]] = set()
    count = 0
    while count < each and any(kinds.values()):
        for kind in sorted(kinds):
            while kinds[kind] and count < each:
                path, number, function = kinds[kind].pop()
                if (path, function) not in seen:
                    seen.add((path, function))
                    count += 1
                    yield _described(room, path, number)
                    break


def _described(room: str, path: Path, number: int) -> Mutant:
    site = sites(ast.parse(path.read_text()))[number]
    before = ast.unparse(site.node)
    after = ast.unparse(site.plant())
    relative = path.relative_to(ROOT).as_posix()
    line: int = getattr(site.node, "lineno", 0)
    return Mutant(room, relative, line, site.function, site.kind, number, before, after)


def found_again(mutant: Mutant) -> Mutant | None:
    """Return a mutant of an earlier commit as it is in the files of now; None if there is none such any more."""
    path = ROOT / mutant.path
    candidates = []
    for number, site in enumerate(sites(ast.parse(path.read_text())) if path.exists() else ()):
        if (site.kind, _named(site.function)) == (mutant.kind, _named(mutant.function)):
            now = _described(mutant.room, path, number)
            if (now.before, now.after) == (mutant.before, mutant.after):
                candidates.append(now)
    return min(candidates, key=lambda now: abs(now.number - mutant.number), default=None)


def _named(function: str) -> str:
    return function.partition(":")[0]


def changed(path: str, planted: Iterable[int], probes: Mapping[int, int]) -> ast.Module:
    """Return the tree of a file with mutants, and with probes that tell ``PROBE`` what is reached.

    Args:
        path: The file.
        planted: The numbers of the sites where something is planted, each in a function of its own.
        probes: What ``PROBE`` is told, by the number of the site.
    """
    tree = ast.parse((ROOT / path).read_text())
    all_sites = sites(tree)
    for number in planted:
        all_sites[number].plant()
    places = [(all_sites[number].block, told) for number, told in probes.items()]
    # From the end of each block to its beginning, so that the statements' numbers stay right.
    for (block, at), told in sorted(places, key=lambda place: -place[0][1]):
        probe = ast.parse(f"{PROBE}({told})").body[0]
        block.insert(at, ast.copy_location(probe, block[at]))
    return ast.fix_missing_locations(tree)


def functions_of(modules: Iterable[str]) -> dict[str, list[FunctionType]]:
    """Import modules, and return all functions that there are of each, by the module's name."""
    files = {str(importlib.import_module(module).__file__): module for module in modules}
    gc.unfreeze()  # what is frozen would not be found
    found: dict[str, list[FunctionType]] = {module: [] for module in files.values()}
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and function.__code__.co_filename in files:
            found[files[function.__code__.co_filename]].append(function)
    gc.freeze()
    return found


def take_effect(functions: Iterable[FunctionType], tree: ast.Module) -> None:
    """Give functions the code that they have in a tree of their module.

    One that would lose a variable of the function around it stays as it is.
    """
    for file in {function.__code__.co_filename for function in functions}:
        codes = {(code.co_qualname, code.co_firstlineno): code for code in _codes(compile(tree, file, "exec", 0, True))}
    for function in functions:
        was = function.__code__
        with suppress(ValueError):
            function.__code__ = codes.get((was.co_qualname, was.co_firstlineno), was)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def sites(tree: ast.Module) -> list[Site]:
    """Return all places of a tree, always in the same order."""
    return [site for name, function in _functions(tree.body, "") for site in _sites(name, function)]


def _functions(body: Sequence[ast.stmt], before: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield from _functions(statement.body, f"{before}{statement.name}.")
        elif isinstance(statement, ast.FunctionDef) and statement.name not in ("__repr__", "__str__"):
            yield f"{before}{statement.name}:{statement.lineno}", statement


def _sites(name: str, function: ast.FunctionDef) -> Iterator[Site]:
    types = {arg.arg: ast.dump(arg.annotation) for arg in function.args.args if arg.annotation is not None}
    for block, at in _statements(function.body):
        statement = block[at]
        if isinstance(statement, ast.Raise | ast.Assert):
            continue
        for kind, node, plant in [*_dropped(block, at), *_changed(statement, types)]:
            yield Site(kind, name, (block, at), node, plant)


def _statements(block: list[ast.stmt]) -> Iterator[tuple[list[ast.stmt], int]]:
    for at, statement in enumerate(block):
        yield block, at
        for part in [statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())]:
            for field in ("body", "orelse", "finalbody"):
                inner = getattr(part, field, None)
                if isinstance(inner, list):
                    yield from _statements(inner)


Change = tuple[str, ast.AST, Callable[[], ast.AST]]


def _dropped(block: list[ast.stmt], at: int) -> Iterator[Change]:
    statement = block[at]
    match statement:
        case ast.Expr(ast.Call() as call) if _name(call) not in _UNSEEN:
            kind = "dropped call"
        case ast.AugAssign() | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            kind = "dropped assignment"
        case ast.Continue() | ast.Break() | ast.Return(None):
            kind = "dropped jump"
        case _:
            return

    def plant() -> ast.AST:
        block[at] = ast.copy_location(ast.Pass(), statement)
        return block[at]

    yield kind, statement, plant


def _changed(node: ast.AST, types: dict[str, str]) -> Iterator[Change]:
    """Yield the changes of all expressions below a node, but not of the statements in it."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "args") and not isinstance(node, ast.Call):
            continue
        items = value if isinstance(value, list) else [value]
        for index, item in enumerate(items):
            if isinstance(item, ast.comprehension | ast.keyword | ast.withitem):
                yield from _changed(item, types)
            elif isinstance(item, ast.expr) and not isinstance(item, ast.JoinedStr):
                condition = field in ("test", "ifs")
                for kind, new in _replacements(item, types, condition, isinstance(node, ast.Return)):
                    yield kind, item, _putting(node, field, index if isinstance(value, list) else None, item, new)
                if not (isinstance(item, ast.Call) and _name(item) in _UNSEEN):
                    yield from _changed(item, types)


def _putting(node: ast.AST, field: str, index: int | None, old: ast.expr, new: ast.expr) -> Callable[[], ast.AST]:
    def plant() -> ast.AST:
        ast.copy_location(new, old)
        if index is None:
            setattr(node, field, new)
        else:
            getattr(node, field)[index] = new
        return new

    return plant


def _replacements(
    node: ast.expr, types: dict[str, str], condition: bool, returned: bool
) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Compare(left, [operator], [right]):
            for other in _COMPARISONS[type(operator)]:
                boundary = type(operator) in (ast.Lt, ast.LtE, ast.Gt, ast.GtE) and other is _near(operator)
                yield "boundary" if boundary else "comparison", ast.Compare(left, [other()], [right])
        case ast.BoolOp(operator, values):
            yield "and, or", ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield "sign", operand
        case ast.BinOp(left, operator, right) if type(operator) in _ARITHMETIC and not (_text(left) or _text(right)):
            yield "arithmetic", ast.BinOp(left, _ARITHMETIC[type(operator)](), right)
        case ast.Constant(bool() as value):
            yield "flag", ast.Constant(not value)
        case ast.Constant(int() as value):
            yield "constant", ast.Constant(value + 1)
            yield "constant", ast.Constant(value - 1)
        case ast.Call(ast.Name(name), [first, *_]) if name in ("sorted", "reversed"):
            yield "order", ast.Call(ast.Name("list", ast.Load()), [first], [])
        case ast.Call(ast.Name(name), arguments, keywords) if name in _CALLS:
            yield "other function", ast.Call(ast.Name(_CALLS[name], ast.Load()), arguments, keywords)
        case ast.Call(called, [ast.Name(one) as first, ast.Name(two) as second, *others], keywords) if (
            one in types and types[one] == types.get(two)
        ):
            yield "swapped arguments", ast.Call(called, [second, first, *others], keywords)
    if condition and isinstance(node, ast.Name | ast.Attribute | ast.Call):
        yield "negated condition", ast.UnaryOp(ast.Not(), node)
    if returned and not isinstance(node, ast.Constant):
        yield "returned nothing", ast.List([], ast.Load()) if isinstance(node, ast.ListComp) else ast.Constant(None)


def _near(operator: ast.cmpop) -> type[ast.cmpop]:
    return _COMPARISONS[type(operator)][0]


def _text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr | ast.List | ast.Tuple) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _name(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))
