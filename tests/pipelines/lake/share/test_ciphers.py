"""Masked values: of the same format, the same ones alike, different ones apart."""

from __future__ import annotations

import math
import re
import string
import struct
from datetime import date, datetime, time, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from statelake.pipelines.lake.share.ciphers import Cipher

SECRET = b"0123456789abcdef"
CIPHER = Cipher(SECRET)
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MICRO = timedelta(microseconds=1)
# masked once, by the first version that did
WHOLE = -668605411783
TEXT = "ksodf@lljmwtj.ebq"
DIGEST = "4705073da73f18be721eb896fc3f6a1a"
MOMENT = 1698956525263000


@given(st.integers(1, 500))
def test_a_permutation(size: int) -> None:
    """Every number once, and another order for each tweak and secret."""
    made = [CIPHER.permuted(at, size, b"a") for at in range(size)]
    assert sorted(made) == list(range(size))
    if size > 50:
        assert made != [CIPHER.permuted(at, size, b"b") for at in range(size)]
        assert made != [Cipher(b"another secret..").permuted(at, size, b"a") for at in range(size)]


def test_it_is_the_same_tomorrow() -> None:
    """What was shared last month still joins with what is shared today."""
    assert CIPHER.integer(-783633772217) == WHOLE
    assert CIPHER.text("alice@example.com") == TEXT
    assert CIPHER.digest(b"alice").hex() == DIGEST
    assert CIPHER.moment(1_700_000_000_123_000) == MOMENT


@given(st.integers(-(2**63), 2**63 - 1))
def test_whole_numbers(value: int) -> None:
    """As many digits, the same sign, and no wider than it was."""
    made = CIPHER.integer(value)
    assert (made < 0) == (value < 0)
    for bits in (8, 16, 32, 64):
        assert (-(1 << (bits - 1)) <= made < 1 << (bits - 1)) == (
            -(1 << (bits - 1)) <= value < 1 << (bits - 1)
        )
    sized = [number if number >= 0 else -(number + 1) for number in (value, made)]
    assert len(str(sized[0])) == len(str(sized[1]))


def test_all_small_numbers_stay_apart() -> None:
    """A byte for each byte, two bytes for each two."""
    assert {CIPHER.integer(value) for value in range(-128, 128)} == set(range(-128, 128))
    assert len({CIPHER.integer(value) for value in range(-3000, 3000)}) == 6000
    assert {CIPHER.wrapped(value, 8) for value in range(-128, 128)} == set(range(-128, 128))


@given(st.integers(-(10**38) + 1, 10**38 - 1))
def test_decimals(value: int) -> None:
    """As many digits, and nothing stays nothing."""
    made = CIPHER.unscaled(value)
    assert len(str(made)) == len(str(value))
    assert (made == 0) == (value == 0)


@given(st.floats(width=64) | st.floats(width=32), st.sampled_from([32, 64]))
def test_floats(value: float, bits: int) -> None:
    """Of that magnitude and sign; what is no number stays."""
    if bits == 32:
        (value,) = struct.unpack("<f", struct.pack("<f", value if abs(value) < 1e38 else 1.5))
    made = CIPHER.floating(value, bits)
    if math.isfinite(value) and value:
        assert math.copysign(1, made) == math.copysign(1, value)
        assert math.frexp(made)[1] == math.frexp(value)[1] or abs(value) < 1e-37
    else:
        assert struct.pack("<d", made) == struct.pack("<d", value)


@given(st.text(max_size=200))
def test_texts(value: str) -> None:
    """A letter for a letter, a digit for a digit; what stands between them stays."""
    made = CIPHER.text(value)
    assert len(made) == len(value)
    assert len(made.encode()) == len(value.encode())
    for before, after in zip(value, made, strict=True):
        for kind in (string.digits, string.ascii_lowercase, string.ascii_uppercase):
            assert (before in kind) == (after in kind)
        if before.isascii() and not before.isalnum():
            assert after == before


@given(st.lists(st.text("abAB01-é", max_size=70), unique=True, max_size=30))
def test_texts_stay_apart(values: list[str]) -> None:
    """However long, and however much they have in common."""
    assert len({CIPHER.text(value) for value in values}) == len(values)


@given(st.uuids())
def test_a_uuid_stays_one(value: object) -> None:
    """Whoever parses it can."""
    made = CIPHER.text(str(value))
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", made)
    assert made != str(value)


@given(st.dates().map(str) | st.times().map(str) | st.times().map(lambda time: f"{time:%H:%M}"))
def test_a_date_or_a_time_stays_one(value: str) -> None:
    """Whoever parses it can; a date stays in its year."""
    made = CIPHER.text(value)
    assert len(made) == len(value)
    if "-" in value:
        assert date.fromisoformat(made).year == date.fromisoformat(value).year
    else:
        time.fromisoformat(made)


def test_no_text_becomes_one_of_another_form() -> None:
    """What is no time never becomes one, or two texts could meet."""
    times = [f"{hour:02d}:{minute:02d}" for hour in range(100) for minute in range(100)]
    assert {CIPHER.text(text) for text in times} == set(times)


@given(st.lists(st.binary(max_size=80), unique=True, max_size=30))
def test_bytes(values: list[bytes]) -> None:
    """As many, and apart."""
    made = [CIPHER.octets(value) for value in values]
    assert list(map(len, made)) == list(map(len, values))
    assert len(set(made)) == len(values)


@given(
    st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59)),  # noqa: DTZ001 - UTC
    st.sampled_from([1, 1000, 1_000_000]),
)
def test_moments(moment: datetime, step: int) -> None:
    """Of the same year, as coarse as they were."""
    micros = (moment.replace(tzinfo=timezone.utc) - EPOCH) // MICRO // step * step
    made = CIPHER.moment(micros)
    assert (EPOCH + made * MICRO).year == (EPOCH + micros * MICRO).year
    assert [made % unit == 0 for unit in (1000, 10**6)] == [
        micros % unit == 0 for unit in (1000, 10**6)
    ]


def test_days_and_times_stay_apart() -> None:
    """Each day of a year becomes another of it, each second of a day too."""
    first = (datetime(2024, 1, 1, tzinfo=timezone.utc) - EPOCH).days
    year = range(first, first + 366)
    assert sorted(map(CIPHER.day, year)) == list(year)
    seconds = [at * 1_000_000 for at in range(0, 86_400, 97)]
    made = [CIPHER.time(micros) for micros in seconds]
    assert len(set(made)) == len(seconds)
    assert all(0 <= micros < 86_400_000_000 and micros % 1_000_000 == 0 for micros in made)


def test_what_stands_for_no_time_stays_beyond_all_times() -> None:
    """Flink's least and greatest timestamps are no dates."""
    for end in (-(2**63), 2**63 - 1):
        assert abs(CIPHER.moment(end)) > 253_402_300_800_000_000
