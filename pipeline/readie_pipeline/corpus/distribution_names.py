"""Under which names an index may have what code imports."""

from collections.abc import Sequence

from packaging.utils import canonicalize_name

from readie_wire.distributions import FAMOUS

# Parts of namespaces that come from a distribution of another name.
_ELSEWHERE = {
    "google.api_core": "google-api-core",
    "google.oauth2": "google-auth",
    "google.protobuf": "protobuf",
    "google.rpc": "googleapis-common-protos",
    "google.type": "googleapis-common-protos",
}
# Packages that many distributions fill. Their own names say nothing about who has `google.x`.
_NAMESPACES = frozenset(
    {"azure", "backports", "google", "jaraco", "ruamel", "sphinxcontrib", "zope"}
)
_NAMESPACE_DEPTH = 3  # `google.cloud.storage`, `azure.ai.ml`


def importable_unit(module: str) -> str:
    """The part of a dotted name that one distribution provides whole: as a rule its first name."""
    parts = module.split(".")
    if parts[0] not in _NAMESPACES:
        return parts[0]
    return ".".join(parts[: 2 if ".".join(parts[:2]) in _ELSEWHERE else _NAMESPACE_DEPTH])


def distributions_for(unit: str) -> Sequence[str]:
    """Canonical names under which an index may have an `importable_unit`, likeliest first.

    A bare namespace has none: it comes with whatever fills it.
    """
    parts = unit.split(".")
    if unit in _ELSEWHERE:
        return [_ELSEWHERE[unit]]
    if parts[0] not in _NAMESPACES:
        return [canonicalize_name(FAMOUS.get(unit, unit))]
    return [canonicalize_name("-".join(parts[:size])) for size in range(len(parts), 1, -1)]
