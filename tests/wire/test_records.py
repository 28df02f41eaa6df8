import json
from typing import Any

import pytest

from readie_wire.envelope import MAX_IMPORTS, CallHeader, CallKind, InvalidEnvelopeError
from readie_wire.holdings import (
    GenerationState,
    HeldCheckpoint,
    HeldGeneration,
    Holding,
    Refusal,
    RefusalKind,
    SyncState,
    Tier,
)
from readie_wire.lifecycle import State
from readie_wire.outcome import (
    Encoding,
    ErrorInfo,
    ErrorKind,
    Outcome,
    Receipt,
    StartKind,
)
from readie_wire.records import CallRecord, Choice, GenerationFacts, WorkerRecord
from readie_wire.versions import UnsupportedVersionError


def as_redis(fields: dict[str, str | bytes]) -> dict[bytes, bytes]:
    return {
        name.encode(): value if isinstance(value, bytes) else value.encode()
        for name, value in fields.items()
    }


def test_a_call_header_survives_json() -> None:
    header = CallHeader(
        CallKind.PICKLE,
        *("mod.f", "3.11", ("numpy",), {"numpy": "2.0"}, {"timeout": 3}, "readie/0.1"),
        modules=("helper",),
    )
    assert CallHeader.from_json(json.loads(json.dumps(header.to_json()))) == header


def test_a_header_of_a_newer_caller_is_read_without_its_new_fields() -> None:
    value = {**CallHeader(CallKind.SOURCE, "f").to_json(), "invented_later": 1}
    assert CallHeader.from_json(value).kind is CallKind.SOURCE


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"kind": "java"}, "kind"),
        ({"kind": 3}, "kind"),
        ({"imports": "numpy"}, "imports"),
        ({"imports": [1]}, "imports"),
        ({"imports": ["x"] * (MAX_IMPORTS + 1)}, "imports"),
        ({"modules": [None]}, "modules"),
        ({"options": []}, "options"),
        ({"distributions": {"numpy": 2}}, "distributions"),
        ({"python": 3.11}, "python"),
    ],
)
def test_a_wrong_header_field_is_named(change: dict[str, Any], field: str) -> None:
    value = {**CallHeader(CallKind.PICKLE, "f").to_json(), **change}
    with pytest.raises(InvalidEnvelopeError) as raised:
        CallHeader.from_json(value)
    assert raised.value.field == field


@pytest.mark.parametrize("version", [None, 0, 2, "1", True])
def test_a_header_of_another_version_is_refused_by_name(version: object) -> None:
    value = {**CallHeader(CallKind.PICKLE, "f").to_json(), "v": version}
    with pytest.raises(UnsupportedVersionError, match="the call header has version"):
        CallHeader.from_json(value)


def test_an_outcome_with_a_chain_of_errors_survives_json() -> None:
    error = ErrorInfo(
        ErrorKind.EXCEPTION,
        "app.E",
        "né \udcff",
        "Traceback …",
        cause=ErrorInfo(ErrorKind.EXCEPTION, "KeyError", "'x'", context=True),
        notes=("look here",),
        members=(ErrorInfo(ErrorKind.EXCEPTION, "ValueError", "1"),),
        details={"attributes": {"code": "7"}},
    )
    receipt = Receipt("call-1", StartKind.FORKED, "checkpoint_1", "gen", imports_missed=("x",))
    outcome = Outcome(False, receipt, error, Encoding.PICKLE, 12)
    read = Outcome.from_json(json.loads(json.dumps(outcome.to_json())))
    assert read.error == error
    assert read.to_json() == outcome.to_json()


def test_what_a_newer_writer_adds_to_an_outcome_is_ignored() -> None:
    value = Outcome(True, Receipt("call-1")).to_json()
    value["receipt"]["invented_later"] = 1
    value["receipt"]["start_kind"] = "teleported"
    value["error"] = {"kind": "new kind", "type": "E", "message": "m"}
    read = Outcome.from_json(value)
    assert read.receipt.start_kind is None
    assert read.error is not None
    assert read.error.kind is ErrorKind.EXCEPTION


def test_a_call_record_survives_redis() -> None:
    record = CallRecord(
        "call-1",
        State.QUEUED,
        "default",
        "cpu",
        CallKind.PICKLE,
        "f",
        "3.11",
        ("pandas",),
        ("pandas", "numpy"),
        Choice("gen", "checkpoint_1", False, 0.1, 2.0, "cheapest"),
        {"timeout": 60},
        payload=b"\x80\x00",
    )
    fields = {**record.new_fields(), "state": "queued"}
    assert CallRecord.from_fields("call-1", as_redis(fields)) == record
    assert fields["choice_key"] == "gen/checkpoint_1"


def test_a_record_of_another_version_is_refused() -> None:
    with pytest.raises(UnsupportedVersionError, match="the record of call-1"):
        CallRecord.from_fields("call-1", {b"v": b"99", b"state": b"queued"})


def test_a_worker_record_survives_redis_and_new_fields() -> None:
    facts = GenerationFacts("gen", "ab", ("checkpoint_0",), "3.11.7", "fork", 0.4, 0.01)
    record = WorkerRecord(
        "worker-1", "cpu", "fork", "none", "3.11.7", 3, 2, 1, 100, 50, generations=(facts,)
    )
    fields = as_redis({**record.to_fields()})
    value = json.loads(fields[b"record"])
    value["invented_later"] = 1
    fields[b"record"] = json.dumps(value).encode()
    assert WorkerRecord.from_fields(fields) == record


def test_what_a_worker_holds_survives_redis_and_the_words_of_a_newer_worker() -> None:
    refused = HeldCheckpoint(
        7, Tier.DISK, cached=3, refusal=Refusal(RefusalKind.PYTHON, "captured with Python 3.99")
    )
    holding = Holding(
        (
            HeldGeneration(
                "gen",
                GenerationState.SERVED,
                {"checkpoint_0": HeldCheckpoint(9, Tier.MEMORY, True, 9), "checkpoint_1": refused},
            ),
        ),
        SyncState(leads=True, fetched_bytes=16, syncs=1),
        swaps=2,
    )
    record = WorkerRecord(
        "worker-1", "cpu", "fork", "none", "3.11.7", 3, 2, 1, 100, 50, holding=holding
    )
    fields = as_redis({**record.to_fields()})
    assert WorkerRecord.from_fields(fields) == record
    newer = fields[b"holding"].replace(b'"memory"', b'"tape"').replace(b'"python"', b'"moon"')
    read = WorkerRecord.from_fields({**fields, b"holding": newer})
    older = WorkerRecord.from_fields({name: fields[name] for name in (b"v", b"record")})
    assert older.holding == Holding()
    held = read.holding.generations[0].checkpoints
    assert held["checkpoint_0"].tier is Tier.REMOTE
    assert held["checkpoint_1"].refusal == Refusal(RefusalKind.OTHER, "captured with Python 3.99")
