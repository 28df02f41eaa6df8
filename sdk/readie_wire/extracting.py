"""Which modules a piece of Python source imports, read from its text and never by running it.

The text may be hostile, so everything is bounded: its length before it is parsed, the syntax tree
by the number of nodes looked at, and no recursion of ours. Time is bounded with them.
"""

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

MAX_SOURCE_CHARACTERS = 1 << 20  # parsing takes about a second a million characters
MAX_NODES = 400_000  # several times what a program of the maximum length usually has
MAX_NAMES = 2_000  # an envelope carries no more


class How(StrEnum):
    """By what a module was seen."""

    IMPORT = "import"
    FROM = "from"  # from x import y
    CALL = "import_module"  # that, or __import__, called with a constant
    GLOBAL = "global"  # a global, default or closure that the function uses leads there
    VALUE = "value"  # an argument, or what it holds


@dataclass(frozen=True, slots=True)
class Sighting:
    """Where a module was seen first: in ``function``, or outside of any; ``line`` 0 where unknown.

    ``file`` is that of a module of the caller's own, empty for the code that is called.
    """

    name: str
    how: How
    function: str = ""
    line: int = 0
    file: str = ""


@dataclass(frozen=True, slots=True)
class Extraction:
    """What was found, in the order of the text, without the standard library.

    ``imports`` are modules for certain; ``candidates`` are the ``"x.y"`` of ``from x import y``,
    where only an installed ``x`` could tell whether ``y`` is a module. ``relative`` are the same
    with their leading dots, for a caller who knows the package. ``dynamic`` counts imports whose
    name is computed. ``problem`` says why the list may be incomplete, or is empty. ``seen`` tells where
    each name was found first.
    """

    imports: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    relative: tuple[str, ...] = ()
    dynamic: int = 0
    problem: str = ""
    seen: tuple[Sighting, ...] = ()

    @property
    def needs(self) -> tuple[str, ...]:
        """Every name to price: one that is no catalogue item counts as its nearest parent."""
        return tuple(dict.fromkeys((*self.imports, *self.candidates)))


def extract_imports(source: str) -> Extraction:
    """Find the imports of ``source``, those inside functions included.

    Left out: ``if TYPE_CHECKING`` blocks. Included: constants given to ``importlib.import_module``
    and ``__import__`` under any alias. Never raises; see ``problem``.
    """
    if "import" not in source:
        return Extraction()
    if len(source) > MAX_SOURCE_CHARACTERS:
        return Extraction(
            problem=f"the source has {len(source)} characters, the limit is {MAX_SOURCE_CHARACTERS}"
        )
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        return Extraction(problem=f"line {error.lineno}: {error.msg}")
    except ValueError as error:  # a NUL character
        return Extraction(problem=str(error))
    except (RecursionError, MemoryError):
        return Extraction(problem="the source is nested too deeply to be parsed")
    return _Search().run(tree)


def is_standard_library(name: str) -> bool:
    """Whether ``name`` (dotted) belongs to this interpreter's standard library."""
    return name.partition(".")[0] in sys.stdlib_module_names


@dataclass(slots=True)
class _Search:
    """One pass over a tree. Aliases are kept for the whole text: scopes would buy no accuracy."""

    imports: dict[str, Sighting] = field(default_factory=dict)
    candidates: dict[str, Sighting] = field(default_factory=dict)
    relative: dict[str, None] = field(default_factory=dict)
    dynamic: int = 0
    importlib_names: set[str] = field(default_factory=set)
    import_functions: set[str] = field(default_factory=lambda: {"__import__"})

    def run(self, tree: ast.Module) -> Extraction:
        problem = ""
        for count, (node, function) in enumerate(_in_order(tree)):
            if count >= MAX_NODES or len(self.imports) + len(self.candidates) >= MAX_NAMES:
                problem = "the source is too large to be read whole"
                break
            self._visit(node, function)
        return Extraction(
            tuple(self.imports),
            tuple(self.candidates),
            tuple(self.relative),
            self.dynamic,
            problem,
            tuple({**self.candidates, **self.imports}.values()),
        )

    def _visit(self, node: ast.AST, function: str) -> None:
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    self._add(self.imports, alias.name, How.IMPORT, function, node)
                    if alias.name == "importlib" or (
                        alias.name.startswith("importlib.") and alias.asname is None
                    ):
                        self.importlib_names.add(alias.asname or "importlib")
            case ast.ImportFrom(level=0, module=str(module), names=aliases):
                self._add(self.imports, module, How.FROM, function, node)
                for alias in aliases:
                    self._from(module, alias, function, node)
            case ast.ImportFrom(level=level, module=module, names=aliases):
                prefix = "." * level + (module or "")
                self.relative[prefix] = None
                joined = prefix if prefix.endswith(".") else prefix + "."
                self.relative.update(dict.fromkeys(joined + alias.name for alias in aliases))
            case ast.Call(func=called, args=arguments) if self._imports_by_name(called):
                self._call(arguments, function, node)

    def _from(self, module: str, alias: ast.alias, function: str, node: ast.ImportFrom) -> None:
        if module == "importlib" and alias.name == "import_module":
            self.import_functions.add(alias.asname or alias.name)
        if alias.name != "*":
            self._add(self.candidates, f"{module}.{alias.name}", How.FROM, function, node)

    def _imports_by_name(self, function: ast.expr) -> bool:
        match function:
            case ast.Name(id=name):
                return name in self.import_functions
            case ast.Attribute(value=ast.Name(id=owner), attr="import_module"):
                return owner in self.importlib_names
            case ast.Attribute(value=ast.Name(id="builtins"), attr="__import__"):
                return True
        return False

    def _call(self, arguments: list[ast.expr], function: str, node: ast.Call) -> None:
        match arguments:
            case [ast.Constant(value=str(name)), *_] if not name.startswith("."):
                self._add(self.imports, name, How.CALL, function, node)
            case [ast.Constant(value=str(name)), *_]:
                self.relative[name] = None
            case _:
                self.dynamic += 1

    def _add(
        self,
        names: dict[str, Sighting],
        name: str,
        how: How,
        function: str,
        node: ast.stmt | ast.expr,
    ) -> None:
        if name and name not in names and not is_standard_library(name):
            names[name] = Sighting(name, how, function, node.lineno)


def _in_order(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Every node but those under TYPE_CHECKING, parents first, without recursion.

    With each comes the qualified name of the function or class that it is in.
    """
    waiting: list[tuple[ast.AST, str]] = [(tree, "")]
    while waiting:
        node, function = waiting.pop()
        yield node, function
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            function = f"{function}.{node.name}" if function else node.name
        if isinstance(node, ast.If):
            children: Iterable[ast.AST] = _live_branches(node)
        else:
            children = ast.iter_child_nodes(node)
        waiting.extend((child, function) for child in reversed(list(children)))


def _live_branches(node: ast.If) -> list[ast.AST]:
    match node.test:
        case ast.UnaryOp(op=ast.Not(), operand=operand) if _is_type_checking(operand):
            return [*node.body]
        case test if _is_type_checking(test):
            return [*node.orelse]
    return [node.test, *node.body, *node.orelse]


def _is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )
