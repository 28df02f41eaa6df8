"""A generation as the API tells of it: what is in the bucket, joined with what live workers have."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from readie_gateway.bucket_view import BucketView, PublishedGeneration
from readie_gateway.fleet import Fleet
from readie_gateway.loading import LoadedCatalogue
from readie_wire.publication import PackingList, Pointer
from readie_wire.records import GenerationFacts, WorkerRecord


def pointer_documents(view: BucketView) -> Sequence[Mapping[str, Any]]:
    return [
        {
            "flavor": one.flavor,
            "rootfs": one.rootfs,
            "current": one.target.generation,
            "previous": one.previous.generation if one.previous else None,
            "published": one.published,
            "publication": one.publication,
        }
        for one in view.pointers
    ]


def known_generations(fleet: Fleet, view: BucketView | None) -> Sequence[dict[str, Any]]:
    """Those that live workers serve, and those that pointers name; the newest first."""
    found: dict[str, dict[str, Any]] = {}
    for worker in fleet.workers:
        for facts in worker.generations:
            if facts.generation not in found:
                found[facts.generation] = summary(facts, worker.flavor, fleet, view)
    for pointer in view.pointers if view else ():
        for target in pointer.targets:
            published = view.known(target.generation) if view else None
            if published is not None and target.generation not in found:
                facts = facts_of(published)
                found[target.generation] = summary(facts, pointer.flavor, fleet, view)
    return [found[generation] for generation in sorted(found, reverse=True)]


def facts_of(published: PublishedGeneration) -> GenerationFacts:
    """As a worker that restores all of it would advertise it."""
    manifest = published.manifest
    return GenerationFacts(
        generation=published.listed.generation,
        catalogue_sha256=manifest.catalogue_sha256,
        checkpoints=tuple(entry.id for entry in manifest.checkpoints),
        python=manifest.python,
        runtime=manifest.runtime,
        startup_cold_s=manifest.startup_s.cold,
        startup_restore_s=manifest.startup_s.restore,
        startup_per_mb_s=manifest.startup_s.per_mb,
        import_factor=manifest.startup_s.import_factor,
        import_environment={entry.id: entry.import_environment for entry in manifest.checkpoints},
    )


def summary(
    facts: GenerationFacts, flavor: str, fleet: Fleet, view: BucketView | None
) -> dict[str, Any]:
    published = view.known(facts.generation) if view else None
    role, pointer = _role(facts.generation, view)
    priced = [one.generation for one in fleet.priced(flavor)]
    return {
        **facts.to_json(),
        "flavor": flavor,
        "rootfs": published.listed.rootfs if published else None,
        "size": published.listed.size if published else None,
        "captured": len(published.manifest.checkpoints) if published else None,
        "role": role,
        "published": pointer.published if pointer and role == "current" else None,
        "workers": [worker.boot for worker, _ in serving(facts.generation, fleet)],
        "arriving": list(_arriving(facts.generation, fleet)),
        "priced": facts.generation in priced,
        "current": facts.generation in priced[:1],
    }


def serving(generation: str, fleet: Fleet) -> Iterator[tuple[WorkerRecord, GenerationFacts]]:
    for worker in fleet.workers:
        for facts in worker.generations:
            if facts.generation == generation:
                yield worker, facts


def _arriving(generation: str, fleet: Fleet) -> Iterator[Mapping[str, Any]]:
    """On which workers it is under way, and how far."""
    for worker in fleet.workers:
        sync = worker.holding.sync
        if sync is not None and sync.arriving == generation:
            yield {"worker": worker.boot, "bytes": sync.arrived_bytes, "of": sync.arriving_bytes}


def worker_documents(generation: str, fleet: Fleet) -> Sequence[Mapping[str, Any]]:
    """What each worker has of the generation, checkpoint by checkpoint, and what it refuses."""
    return [
        {"boot": worker.boot, "host": worker.host, **asdict(held)}
        for worker in fleet.workers
        for held in worker.holding.generations
        if held.generation == generation
    ]


def checkpoint_documents(
    published: PublishedGeneration | None, loaded: LoadedCatalogue | None, ids: Sequence[str]
) -> Sequence[Mapping[str, Any]]:
    """From the manifest in the bucket, else from the loaded catalogue, else the ids alone.

    ``digest`` is equal where all files but the record of the capture are.
    """
    if published is not None:
        sizes = published.listed.checkpoint_sizes
        digests = _digests(published.listed)
        return [
            _checkpoint(one.id, one.imports, one.size_mb, sizes.get(one.id), digests.get(one.id))
            for one in published.manifest.checkpoints
        ]
    if loaded is not None:
        listed = loaded.priced.catalogue.checkpoints
        return [_checkpoint(one.id, one.canonical, one.size_mb) for one in listed]
    return [_checkpoint(one, None, None) for one in ids]


def _checkpoint(
    checkpoint: str,
    imports: Sequence[str] | None,
    size_mb: float | None,
    size: int | None = None,
    digest: str | None = None,
) -> Mapping[str, Any]:
    told = None if imports is None else list(imports)
    return {"id": checkpoint, "imports": told, "size_mb": size_mb, "size": size, "digest": digest}


def _digests(listed: PackingList) -> Mapping[str, str]:
    hashes: dict[str, list[str]] = {}
    for file in listed.files:
        if file.checkpoint is not None and not file.name.endswith("/meta.json"):
            hashes.setdefault(file.checkpoint, []).append(f"{file.name} {file.sha256}")
    return {
        name: hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()
        for name, lines in hashes.items()
    }


def _role(generation: str, view: BucketView | None) -> tuple[str | None, Pointer | None]:
    """``current`` or ``previous``, and for whom; neither for what no pointer names."""
    for pointer in view.pointers if view else ():
        if pointer.target.generation == generation:
            return "current", pointer
    for pointer in view.pointers if view else ():
        if pointer.previous is not None and pointer.previous.generation == generation:
            return "previous", pointer
    return None, None
