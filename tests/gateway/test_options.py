"""Options and sizes as pure functions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readie_gateway.errors import InvalidRequestError
from readie_gateway.options import OPTION_NAMES, CallOptions, parse_options
from readie_gateway.sizes import describe_size, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (536870912, 512 << 20),
        ("512Mi", 512 << 20),
        ("512MiB", 512 << 20),
        ("2G", 2 * 10**9),
        ("2GB", 2 * 10**9),
        ("1.5Gi", 3 << 29),
        (" 64 ki ", 64 << 10),
        ("17", 17),
        ("17b", 17),
    ],
)
def test_sizes_are_bytes_or_a_number_with_a_unit(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "Mi", "-1", "1e9", "1 000", "1.2.3G", 1.5, True, None, []])
def test_anything_else_is_no_size(text: object) -> None:
    with pytest.raises(ValueError, match="512Mi"):
        parse_size(text)


@given(st.integers(min_value=0, max_value=1 << 50))
def test_a_described_size_is_close_to_the_size(size: int) -> None:
    number, unit = describe_size(size).split()
    if unit == "bytes":
        assert int(float(number)) == size
    else:
        assert parse_size(f"{float(number):.6f}{unit}") == pytest.approx(size, rel=1e-3)


def test_the_defaults_are_those_of_an_empty_object() -> None:
    options = parse_options({})
    assert options == CallOptions.model_validate({})
    assert (options.timeout, options.queue_timeout, options.result_ttl) == (3600, 30, 3600)
    assert options.memory == 1 << 30
    assert not options.needs_gpu


@pytest.mark.parametrize("budget", [{"gpu": True}, {"gpu_memory": "1G"}, {"max_gpu_memory": "1G"}])
def test_any_gpu_budget_makes_a_gpu_call(budget: dict[str, object]) -> None:
    assert parse_options(budget).needs_gpu


@given(st.text(min_size=1).filter(lambda name: name not in OPTION_NAMES))
def test_an_unknown_option_is_always_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        parse_options({name: 1})
    assert refusal.value.field == f"options.{name[:64]}"


@given(
    st.dictionaries(
        st.sampled_from(OPTION_NAMES),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text()),
    )
)
def test_no_value_raises_anything_but_a_refusal_that_names_a_field(
    given_: dict[str, object],
) -> None:
    assert refused_field(given_) in (None, *OPTION_NAMES)


def refused_field(given_: dict[str, object]) -> str | None:
    try:
        parse_options(given_)
    except InvalidRequestError as refusal:
        return str(refusal.field).removeprefix("options.").split(".")[0]
    return None
