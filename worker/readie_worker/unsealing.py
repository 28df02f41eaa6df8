"""Opens the secrets of a call, at the last moment before they go to its sandbox."""

from readie_infra.errors import SealError
from readie_infra.sealing import Seal
from readie_wire.outcome import ErrorInfo, ErrorKind
from readie_wire.records import CallRecord
from readie_worker.errors import CallRefusedError


def opened_secrets(record: CallRecord, seal: Seal | None) -> dict[str, str]:
    """Names and values. Raises `CallRefusedError` where this worker cannot open them."""
    if not record.sealed:
        return {}
    if seal is None:
        raise _refused("the worker has no key to open secrets; set READIE_SEAL_KEY_FILE")
    try:
        return seal.open(record.sealed, record.token)
    except SealError as error:
        raise _refused(str(error)) from error


def _refused(problem: str) -> CallRefusedError:
    return CallRefusedError(
        ErrorInfo(
            kind=ErrorKind.INVALID_REQUEST,
            type="readie.InvalidRequestError",
            message=problem,
            details={"field": "options.secrets"},
        )
    )
