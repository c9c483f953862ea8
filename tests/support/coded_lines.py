"""Where the product makes the lines that have a code: each place with its code, and the texts that it can give."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice, product
from pathlib import Path
from typing import Final

from moorage.common.codes import Catalogue

PLUGIN: Final = Path(__file__).parents[2] / "plugin"
ELLIPSIS: Final = "…"
CODE: Final = re.compile(r"M-[A-Z]+-[1-9][0-9]*")
IN_TEXT: Final = re.compile(rf" \[({CODE.pattern})\]")
# All of these have a code. Other errors have one where people read them by themselves and can do something about them.
REQUIRED: Final = frozenset({"UserError", "UsageError", "Taken", "Finding"})
MOST: Final = 64
_C_STRING: Final = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_C_FILLED_IN: Final = re.compile(r"%[sdm]")

Texts = frozenset[str]
Names = Mapping[str, Texts]
Function = ast.FunctionDef | ast.AsyncFunctionDef
UNKNOWN: Final[Texts] = frozenset({ELLIPSIS})
NOWHERE: Final = 1 << 30


@dataclass(frozen=True)
class Site:
    """A call that makes a line. `given` is what it says after `code=`; None if nothing."""

    path: Path
    function: str
    call: ast.Call
    name: str
    given: ast.expr | None
    whats: Texts
    remedies: Texts

    @property
    def place(self) -> str:
        return f"{self.path.name}:{self.call.lineno}"

    @property
    def code(self) -> str:
        """The literal; empty where there is none."""
        constants = (
            (node.value for node in ast.walk(self.given) if isinstance(node, ast.Constant)) if self.given else ()
        )
        return next((str(value) for value in constants if value), "")

    @property
    def hands_on(self) -> bool:
        """It takes the code of another line, or of its caller."""
        match self.given:
            case ast.Attribute(attr="code") | ast.Name(id="code"):
                return True
            case _:
                return False


@dataclass
class Module:
    path: Path
    tree: ast.Module
    constants: dict[str, Texts] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Module:
        module = cls(path, ast.parse(path.read_text()))
        module.constants = _assigned(module.tree.body, {})
        return module


@dataclass(frozen=True)
class Maker:
    """A function of the product that makes a line out of what it is given, and its code too."""

    function: Function
    site: Site


def sites(plugin: Path = PLUGIN) -> list[Site]:
    """All calls of errors and findings, and of the functions that make them with their caller's code."""
    modules = [Module.read(path) for path in sorted(plugin.rglob("*.py"))]
    constants = _common(modules)
    found: list[Site] = []
    for module in modules:
        names = {**constants, **module.constants}
        direct = list(_calls(module, names))
        makers = {maker.function.name: maker for maker in _makers(module, direct)}
        found += [*direct, *_made(module, names, makers)]
    return found


def in_texts(plugin: Path = PLUGIN) -> Iterator[tuple[str, str]]:
    """The codes that stand in texts themselves, each with what is before it: the shim's lines, and notes."""
    c = (text for path in plugin.rglob("*.c") for text in of_c(path.read_text()))
    python = (text for path in plugin.rglob("*.py") for text in _literals(ast.parse(path.read_text())))
    for text in sorted({*c, *python}):
        for found in IN_TEXT.finditer(text):
            yield found[1], text[: found.start()]


def of_c(source: str) -> Iterator[str]:
    for text in _C_STRING.findall(source):
        yield _C_FILLED_IN.sub(ELLIPSIS, text)


def _literals(tree: ast.AST) -> Iterator[str]:
    """All literal texts, whole ones only."""
    inside = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.JoinedStr) and node not in inside:
            yield from texts(node, {})


def fits(line: str, site: Site) -> bool:
    """Whether a line of the catalogue stands for all that is said there, without the remedy or with it."""
    wholes = {f"{what}: {remedy}" for what in site.whats for remedy in site.remedies}
    return any(said and all(matches(line, one) for one in said) for said in (site.whats, wholes))


def matches(line: str, text: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, line.split(ELLIPSIS))), text) is not None


def explained(code: str, cause: str, remedy: str = "") -> bool:
    """Whether the catalogue has the line, without its remedy or with it; something may stand before it."""
    found = {entry.code: entry.line for entry in Catalogue.load()}
    return code in found and any(matches(ELLIPSIS + found[code], one) for one in (cause, f"{cause}: {remedy}"))


def _common(modules: Iterable[Module]) -> dict[str, Texts]:
    """Constants that have the same text wherever they are; one table is enough for all modules."""
    found: dict[str, Texts] = {}
    for module in modules:
        for name, texts in module.constants.items():
            found[name] = texts if found.get(name, texts) == texts else UNKNOWN
    return found


def _calls(module: Module, names: Names) -> Iterator[Site]:
    for function, known, call in _walk(module.tree, names):
        name = _name(call.func)
        if name not in REQUIRED and not _chosen(call, name):
            continue
        words = call.args[1:] if name == "Finding" else call.args
        given = _keyword(call)
        what, *more = (texts(word, known) for word in words[:2])
        remedy = more[0] if more else frozenset[str]()
        yield Site(module.path, function.name if function else "", call, name, given, what, remedy)


def _chosen(call: ast.Call, name: str) -> bool:
    """Whether a call that needs no code has one: of another error, or of an error's base."""
    literal = isinstance(_keyword(call), ast.Constant)
    return literal if name == "__init__" else name[:1].isupper() and _keyword(call) is not None


def _makers(module: Module, found: Iterable[Site]) -> Iterator[Maker]:
    functions = {node.name: node for node in ast.walk(module.tree) if isinstance(node, Function)}
    for site in found:
        if isinstance(site.given, ast.Name) and (function := functions.get(site.function)):
            yield Maker(function, site)


def _made(module: Module, names: Names, makers: Mapping[str, Maker]) -> Iterator[Site]:
    for function, known, call in _walk(module.tree, names):
        if (maker := makers.get(_name(call.func))) is None:
            continue
        inside = {**names} | {name: texts(word, known) for name, word in _arguments(maker.function, call)}
        inside = inside | _assigned(maker.function.body, inside, maker.site.call.lineno)
        words = maker.site.call.args[1:] if maker.site.name == "Finding" else maker.site.call.args
        what, *more = (texts(word, inside) for word in words[:2])
        remedy = more[0] if more else frozenset[str]()
        owner = function.name if function else ""
        yield replace(
            maker.site, function=owner, call=call, name=maker.function.name, given=_given(maker.function, call),
            whats=what, remedies=remedy,
        )  # fmt: skip


def _given(function: Function, call: ast.Call) -> ast.expr | None:
    return dict(_arguments(function, call)).get("code")


def _arguments(function: Function, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    parameters = [one.arg for one in function.args.args if one.arg not in ("self", "cls")]
    yield from zip(parameters, call.args, strict=False)
    yield from ((one.arg, one.value) for one in call.keywords if one.arg)


def _walk(tree: ast.Module, names: Names) -> Iterator[tuple[Function | None, Names, ast.Call]]:
    """Each call, with the innermost function around it and the texts of the names there."""
    owners: dict[ast.Call, Function] = {}
    for function in (node for node in ast.walk(tree) if isinstance(node, Function)):
        owners |= {node: function for node in ast.walk(function) if isinstance(node, ast.Call)}
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        if (owner := owners.get(call)) is None:
            yield None, names, call
        else:
            parameters = {one.arg: UNKNOWN for one in (*owner.args.args, *owner.args.kwonlyargs)}
            known = {**names, **parameters}
            yield owner, known | _assigned(owner.body, known, call.lineno), call


def _assigned(body: Iterable[ast.stmt], known: Names, before: int = NOWHERE) -> dict[str, Texts]:
    """The texts of the names that are set in there, as they are before a line: the nearest one counts."""
    found: dict[str, Texts] = {}
    nodes = (
        one
        for statement in body
        for one in ast.walk(statement)
        if isinstance(one, ast.Assign | ast.AnnAssign | ast.For)
    )
    for node in sorted(nodes, key=lambda one: one.lineno):
        if node.lineno >= before:
            break
        for target, value in _pairs(node):
            names = [one.id for one in ast.walk(target) if isinstance(one, ast.Name)]
            said = texts(value, {**known, **found}) if value and isinstance(target, ast.Name) else UNKNOWN
            found |= dict.fromkeys(names, said)
    return found


def _pairs(node: ast.Assign | ast.AnnAssign | ast.For) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            yield from zip(targets, values, strict=False)
        case ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=value):
            yield target, value
        case ast.For(target=target):
            yield target, None


def texts(node: ast.expr, known: Names) -> Texts:
    """All that an expression may say; an ellipsis for what only running it shows."""
    match node:
        case ast.Constant(value=str(text)):
            return frozenset({text})
        case ast.JoinedStr(values=parts):
            return _joined(texts(part, known) for part in parts)
        case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
            return texts(value, known)
        case ast.IfExp(body=one, orelse=other) | ast.BoolOp(op=ast.Or(), values=[one, other]):
            return texts(one, known) | texts(other, known)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _joined([texts(left, known), texts(right, known)])
        case ast.Name(id=name):
            return known.get(name, UNKNOWN)
        case _:
            return UNKNOWN


def _joined(parts: Iterable[Texts]) -> Texts:
    found = {"".join(one) for one in islice(product(*map(sorted, parts)), MOST)}
    return frozenset(re.sub(f"{ELLIPSIS}( ?{ELLIPSIS})*", ELLIPSIS, " ".join(one.split())) for one in found)


def _name(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _keyword(call: ast.Call) -> ast.expr | None:
    return next((one.value for one in call.keywords if one.arg == "code"), None)


@cache
def product_sites() -> list[Site]:
    return sites()
