"""What one code object imports and which global names it uses, from its instructions.

Instructions are read in order, without following jumps: enough for imports, which compilers emit
in one shape. Blocks under ``if TYPE_CHECKING`` are skipped. Knows CPython 3.11 to 3.14.
"""

import builtins
import dis
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class ImportedName:
    """``import module`` (``attributes`` empty) or ``from module import attributes``."""

    module: str
    level: int = 0
    attributes: tuple[str, ...] = ()
    line: int = 0
    called: bool = False  # by `importlib.import_module` or `__import__`


@dataclass(frozen=True, slots=True)
class Reference:
    """A global name and the attributes that are read from it in a row: ``np.linalg.norm``."""

    name: str
    path: tuple[str, ...]
    line: int = 0


@dataclass(frozen=True, slots=True)
class Unknown:
    """An import whose name is computed."""


Found: TypeAlias = ImportedName | Reference | Unknown

_TOOLS = {"importlib": importlib, "builtins": builtins}
_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FAST"})
_STORES = frozenset({"STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF"})
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_BETWEEN = frozenset({"EXTENDED_ARG", "CACHE", "PUSH_NULL", "PRECALL", "KW_NAMES", "NOP"})
_CALLS = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION_EX"})


def read_code(code: CodeType, resolve: Callable[[str], object]) -> Iterator[Found]:
    """Everything of interest in ``code`` itself; code objects nested in it are the caller's to read.

    ``resolve`` gives the value of a name that the code does not bind, or None.
    """
    return _Reader(_instructions(code), resolve).run()


@dataclass(slots=True)
class _Reader:
    instructions: list[dis.Instruction]
    resolve: Callable[[str], object]
    bound: dict[str, object] = field(default_factory=dict)  # local names of the import functions

    def run(self) -> Iterator[Found]:
        position = 0
        while position < len(self.instructions):
            instruction = self.instructions[position]
            if instruction.opname == "IMPORT_NAME":
                yield self._import(position)
            elif instruction.opname in _LOADS:
                name, path, position = self._chain(position)
                value = self._value(name, path)
                if path[-1:] == ("TYPE_CHECKING",) or (not path and name == "TYPE_CHECKING"):
                    position = self._past_branch(position)
                    continue
                if self.instructions[position].opname in _STORES and _is_import_tool(value):
                    self.bound[str(self.instructions[position].argval)] = value
                elif _is_import_function(value):
                    yield from self._call(position)
                if instruction.opname in {"LOAD_GLOBAL", "LOAD_NAME"}:
                    yield Reference(name, path, _line(instruction))
                continue
            position += 1

    def _import(self, position: int) -> ImportedName:
        """Operands of IMPORT_NAME are the two constants pushed just before it."""
        level, names = (self.instructions[position - back].argval for back in (2, 1))
        module = str(self.instructions[position].argval)
        attributes = tuple(names or ())
        tool = _TOOLS.get(module.partition(".")[0])
        if tool is not None and not level:
            self._bind(position, attributes, tool)
        line = _line(self.instructions[position])
        return ImportedName(module, int(level), attributes, line)

    def _bind(self, position: int, attributes: tuple[str, ...], tool: object) -> None:
        following = self.instructions[position + 1 :]
        if not attributes:
            if following and following[0].opname in _STORES:
                self.bound[str(following[0].argval)] = tool
            return
        for load, store in zip(following[0::2], following[1::2], strict=False):
            if load.opname != "IMPORT_FROM":
                return
            self.bound[str(store.argval)] = getattr(tool, str(load.argval), None)

    def _chain(self, position: int) -> tuple[str, tuple[str, ...], int]:
        """A name, the attributes read from it, and where the next instruction is."""
        name = str(self.instructions[position].argval)
        path = []
        position += 1
        while self.instructions[position].opname in _ATTRIBUTES:
            path.append(str(self.instructions[position].argval))
            position += 1
        return name, tuple(path), position

    def _value(self, name: str, path: tuple[str, ...]) -> object:
        """The import machinery's own objects, followed by value; of others nothing is touched."""
        value = self.bound[name] if name in self.bound else self.resolve(name)
        if not path:
            return value
        if len(path) == 1 and any(value is tool for tool in _TOOLS.values()):
            return getattr(value, path[0], None)
        return None

    def _call(self, position: int) -> Iterator[Found]:
        """``position`` is behind an import function: is it called, and with a constant first?"""
        first, second = self.instructions[position], self.instructions[position + 1]
        constant = first.argval if first.opname == "LOAD_CONST" else None
        is_argument = second.opname.startswith("LOAD_") or second.opname in _CALLS
        if isinstance(constant, str) and is_argument:
            level = len(constant) - len(constant.lstrip("."))
            yield ImportedName(constant[level:], level, (), _line(first), called=True)
        elif first.opname not in _STORES and first.opname != "RETURN_VALUE":
            yield Unknown()

    def _past_branch(self, position: int) -> int:
        """``position`` is behind TYPE_CHECKING, which is false when the code runs."""
        test = self.instructions[position]
        if test.opname == "TO_BOOL":
            position += 1
            test = self.instructions[position]
        if not ("JUMP" in test.opname and test.opname.endswith("IF_FALSE")):
            return position
        while (
            position < len(self.instructions) and self.instructions[position].offset < test.argval
        ):
            position += 1
        return position


def _instructions(code: CodeType) -> list[dis.Instruction]:
    """Without what stands between a callee and its arguments; pairs of loads as two."""
    plain = []
    for instruction in dis.get_instructions(code):
        if instruction.opname in _BETWEEN:
            continue
        opname = instruction.opname.replace("_CHECK", "").replace("_BORROW", "")
        if isinstance(instruction.argval, tuple) and opname.count("_FAST") == 2:
            first, second = opname.split("_FAST_", 1)
            for part, argval in zip((f"{first}_FAST", second), instruction.argval, strict=True):
                plain.append(instruction._replace(opname=part, argval=argval))
            continue
        plain.append(instruction._replace(opname=opname))
    return plain


def _line(instruction: dis.Instruction) -> int:
    return (instruction.positions and instruction.positions.lineno) or 0


def _is_import_tool(value: object) -> bool:
    return any(value is tool for tool in _TOOLS.values()) or _is_import_function(value)


def _is_import_function(value: object) -> bool:
    return value is importlib.import_module or value is builtins.__import__
