"""What a bucket holds of published generations: keys, and the documents under them.

| key                                             | what                                            |
|-------------------------------------------------|-------------------------------------------------|
| ``objects/sha256/{2 letters}/{sha256}.zst``     | one file, compressed, by the hash of its bytes  |
| ``generations/{flavor}/{generation}/manifest.json`` | a `PackingList` in a `Sealed` envelope      |
| ``flavors/{flavor}/{rootfs}/current.json``      | a `Pointer`: what workers of that kind serve    |
| ``rootfs/{rootfs}/manifest.json``               | kept free: the files of an image to restore on  |
| ``publishing/{publication}.json``               | an `Intent`: objects that must not be collected |
| ``collecting/marks.json``                       | `Marks`: what nothing refers to any more        |

Objects come first, the pointer comes last, so nobody ever sees half a generation. ``{rootfs}`` is
the digest of the root filesystem that a generation was captured on, or `ANY_ROOTFS`.
"""

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from readie_wire.briefly import brief
from readie_wire.catalogue import FLAVORS
from readie_wire.fields import Fields, parse_json
from readie_wire.keys import InvalidIdError, check_id
from readie_wire.versions import PUBLICATION_VERSION

READABLE_PUBLICATIONS = frozenset({PUBLICATION_VERSION})

ANY_ROOTFS = "any"  # a generation without images: its processes are made where they are served
OBJECTS = "objects/sha256/"
GENERATIONS = "generations/"
POINTERS = "flavors/"
ROOTFS = "rootfs/"  # lists of root filesystems, whose files are objects like all others
INTENTS = "publishing/"
MARKS = "collecting/marks.json"

MANIFEST_NAME = "manifest.json"
CATALOGUE_NAME = "catalogue.json"
CHECKPOINTS_FOLDER = "checkpoints"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_TIME = re.compile(r"[0-9]{8}T[0-9]{6}")
# Signed together with the list, so that the signature of something else can never stand for it.
_SIGNED_AS = b"readie packing list 1\n"


class PublicationError(ValueError):
    """A document of a bucket cannot be used; the message names the place and the problem."""


def object_key(sha256: str) -> str:
    return f"{OBJECTS}{sha256[:2]}/{sha256}.zst"


def manifest_key(flavor: str, generation: str) -> str:
    return f"{GENERATIONS}{flavor}/{generation}/{MANIFEST_NAME}"


def pointer_key(flavor: str, rootfs: str) -> str:
    return f"{POINTERS}{flavor}/{rootfs}/current.json"


def intent_key(publication: str) -> str:
    return f"{INTENTS}{publication}.json"


def new_publication_id() -> str:
    return f"pub-{secrets.token_hex(16)}"


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A file of a generation, as it is on a worker's disk: ``checkpoints/checkpoint_1/pages.img``."""

    name: str
    size: int
    sha256: str

    @property
    def key(self) -> str:
        return object_key(self.sha256)

    @property
    def checkpoint(self) -> str | None:
        """The checkpoint that it belongs to, None for a file of the generation."""
        parts = self.name.split("/")
        return parts[1] if len(parts) > 1 else None


@dataclass(frozen=True, slots=True)
class PackingList:
    """Every file of one generation. What it says is checked when it is read, names included."""

    flavor: str
    generation: str
    rootfs: str
    runtime: str
    files: Sequence[PublishedFile]
    version: int = PUBLICATION_VERSION

    @property
    def size(self) -> int:
        """Bytes on a worker's disk."""
        return sum(file.size for file in self.files)

    @property
    def checkpoint_sizes(self) -> Mapping[str, int]:
        """The same of each checkpoint, by id."""
        sizes: dict[str, int] = {}
        for file in self.files:
            if file.checkpoint is not None:
                sizes[file.checkpoint] = sizes.get(file.checkpoint, 0) + file.size
        return sizes

    @property
    def keys(self) -> frozenset[str]:
        """The objects that it needs."""
        return frozenset(file.key for file in self.files)

    def file(self, name: str) -> PublishedFile:
        """Raises `PublicationError`."""
        for file in self.files:
            if file.name == name:
                return file
        raise PublicationError(f"generation {self.generation} has no {name}")

    def dump(self) -> bytes:
        return _dump(self)

    @classmethod
    def load(cls, data: bytes) -> Self:
        """Raises `PublicationError`: a single name that is not right refuses the generation."""
        read = _fields(data, "packing list")
        files = tuple(
            PublishedFile(
                check_name(entry.text("name")), entry.whole("size"), _digest(entry, "sha256")
            )
            for entry in read.parts("files")
        )
        # Names that differ in case alone are one file on some systems.
        if len({file.name.casefold() for file in files}) != len(files):
            raise PublicationError("packing list: a name is there twice")
        listed = cls(
            flavor=_flavor(read),
            generation=_id(read, "generation"),
            rootfs=_id(read, "rootfs"),
            runtime=read.text("runtime"),
            files=files,
        )
        for name in (MANIFEST_NAME, CATALOGUE_NAME):
            listed.file(name)
        return listed


@dataclass(frozen=True, slots=True)
class Sealed:
    """A packing list as text, with what vouches for it: public key → signature, in base64."""

    text: str
    signatures: Mapping[str, str] = field(default_factory=dict)

    @property
    def signed(self) -> bytes:
        """The bytes that are signed."""
        return _SIGNED_AS + self.text.encode()

    def dump(self) -> bytes:
        return _dump(self)

    @classmethod
    def load(cls, data: bytes) -> Self:
        """Raises `PublicationError`."""
        read = Fields(parse_json(data, "manifest", PublicationError), "manifest", PublicationError)
        signatures = read.object("signatures")
        if not all(isinstance(signature, str) for signature in signatures.values()):
            raise PublicationError("manifest.signatures must hold strings")
        return cls(read.text("text"), signatures)


@dataclass(frozen=True, slots=True)
class Target:
    """A generation, and the hash of its sealed packing list."""

    generation: str
    manifest_sha256: str


@dataclass(frozen=True, slots=True)
class Pointer:
    """What workers of one kind serve now. ``publication`` tells whose put it was.

    ``published`` is ``yyyymmddThhmmss`` in UTC; ``previous`` what a rollback brings back.
    """

    flavor: str
    rootfs: str
    target: Target
    publication: str
    published: str
    previous: Target | None = None
    version: int = PUBLICATION_VERSION

    @property
    def key(self) -> str:
        return pointer_key(self.flavor, self.rootfs)

    @property
    def targets(self) -> Sequence[Target]:
        return [self.target] if self.previous is None else [self.target, self.previous]

    def dump(self) -> bytes:
        return _dump(self)

    @classmethod
    def load(cls, data: bytes) -> Self:
        """Raises `PublicationError`."""
        read = _fields(data, "pointer")
        previous = read.object("previous") if read.value.get("previous") is not None else None
        return cls(
            flavor=_flavor(read),
            rootfs=_id(read, "rootfs"),
            target=_target(read.part("target")),
            publication=_id(read, "publication"),
            published=_time(read, "published"),
            previous=None if previous is None else _target(read.part("previous")),
        )


@dataclass(frozen=True, slots=True)
class Intent:
    """A publication under way: the objects and manifests that it is about to refer to."""

    publication: str
    generation: str
    keys: Sequence[str]
    version: int = PUBLICATION_VERSION

    def dump(self) -> bytes:
        return _dump(self)

    @classmethod
    def load(cls, data: bytes) -> Self:
        """Raises `PublicationError`."""
        read = _fields(data, "intent")
        return cls(_id(read, "publication"), _id(read, "generation"), read.texts("keys"))


@dataclass(frozen=True, slots=True)
class Marks:
    """Keys that nothing referred to, with the time (seconds since 1970) that was first seen.

    ``deleting`` are those being removed right now; publishers keep off them.
    """

    unused: Mapping[str, float] = field(default_factory=dict)
    deleting: Sequence[str] = ()
    version: int = PUBLICATION_VERSION

    def dump(self) -> bytes:
        return _dump(self)

    @classmethod
    def load(cls, data: bytes) -> Self:
        """Raises `PublicationError`."""
        read = _fields(data, "marks")
        times = read.part("unused")
        return cls({key: times.number(key) for key in times.value}, read.texts("deleting"))


def check_name(name: str) -> str:
    """Return ``name`` when it is one that a generation's file may have. Raises `PublicationError`.

    That is a plain name, or a plain name in a folder ``checkpoints/{id}``; nothing else is ever
    written to a worker's disk.
    """
    parts = name.split("/")
    try:
        for part in parts:
            check_id(part, "part")
    except InvalidIdError as error:
        raise PublicationError(
            f"{brief(name)} is not the name of a published file: {error}"
        ) from error
    if len(parts) != 1 and not (len(parts) == 3 and parts[0] == CHECKPOINTS_FOLDER):
        raise PublicationError(
            f"{brief(name)} is not the name of a published file: it is neither at the top nor in "
            f"{CHECKPOINTS_FOLDER}/<id>/"
        )
    return name


def _target(read: Fields) -> Target:
    return Target(_id(read, "generation"), _digest(read, "manifest_sha256"))


def _flavor(read: Fields) -> str:
    found = read.text("flavor")
    if found not in FLAVORS:
        raise PublicationError(f"{read.place}.flavor is {brief(found)}; it is one of {FLAVORS}")
    return found


def _id(read: Fields, key: str) -> str:
    try:
        return check_id(read.text(key), f"{read.place}.{key}")
    except InvalidIdError as error:
        raise PublicationError(str(error)) from error


def _digest(read: Fields, key: str) -> str:
    found = read.text(key)
    if not _DIGEST.fullmatch(found):
        raise PublicationError(f"{read.place}.{key} must be 64 hex digits, not {brief(found)}")
    return found


def _time(read: Fields, key: str) -> str:
    found = read.text(key)
    if not _TIME.fullmatch(found):
        raise PublicationError(f"{read.place}.{key} must be yyyymmddThhmmss, not {brief(found)}")
    return found


def _fields(data: bytes, place: str) -> Fields:
    read = Fields(parse_json(data, place, PublicationError), place, PublicationError)
    read.check_version(READABLE_PUBLICATIONS)
    return read


def _dump(document: Any) -> bytes:
    """The same document is always the same bytes, so that publishing again changes nothing."""
    return json.dumps(asdict(document), sort_keys=True, ensure_ascii=True).encode() + b"\n"
