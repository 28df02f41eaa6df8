"""Tells a fleet to look at its bucket now, by way of a gateway; else it looks by itself, a bit later."""

import requests

from readie_pipeline.errors import NotifyError
from readie_wire.http import API_PREFIX

DETAIL_SHOWN = 200  # characters
ANSWER_S = 10.0  # a gateway answers in milliseconds, and nobody waits for what comes of it


def notify(url: str, token: str) -> int:
    """Answers how many workers follow a bucket there. Raises `NotifyError`."""
    address = f"{url.rstrip('/')}{API_PREFIX}/generations/refresh"
    try:
        # A redirect could lead the token elsewhere, and a gateway sends none.
        answer = requests.post(
            address,
            headers={"Authorization": f"Bearer {token}"},
            timeout=ANSWER_S,
            allow_redirects=False,
        )
        if answer.status_code != requests.codes.accepted:
            raise NotifyError(f"the gateway answers {answer.status_code}: {_detail(answer)}")
        return int(answer.json()["workers"])
    except (requests.RequestException, ValueError, KeyError, TypeError) as error:
        raise NotifyError(f"the gateway cannot be asked: {error}") from error


def _detail(answer: requests.Response) -> str:
    """What a gateway says of a refusal; of anything else that answers, how it begins."""
    try:
        return str(answer.json()["detail"])[:DETAIL_SHOWN]
    except (ValueError, KeyError, TypeError):
        return answer.text[:DETAIL_SHOWN]
