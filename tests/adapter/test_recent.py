"""The cache of what was used last, against its bounds."""

from __future__ import annotations

from layby.adapter.recent import Recent
from layby.adapter.statements import StatementCache


def recent(most: int, heaviest: int, *entries: tuple[str, int]) -> Recent[str, str]:
    cache: Recent[str, str] = Recent(most, heaviest)
    for key, weight in entries:
        cache.put(key, key.upper(), weight)
    return cache


def kept(cache: Recent[str, str]) -> list[str]:
    return [key for key in "abcd" if key in cache]


def test_of_too_many_entries_the_least_recently_used_goes() -> None:
    cache = recent(2, 100, ("a", 1), ("b", 1))
    assert cache.get("a") == "A"
    cache.put("c", "C", 1)
    assert (kept(cache), len(cache), cache.weight) == (["a", "c"], 2, 2)
    assert cache.get("b") is None


def test_of_too_heavy_entries_as_many_go_as_it_takes() -> None:
    cache = recent(10, 10, ("a", 4), ("b", 4), ("c", 2), ("d", 6))
    assert (kept(cache), cache.weight) == (["c", "d"], 8)


def test_an_entry_that_is_put_again_weighs_what_it_weighs_now_and_is_the_latest() -> None:
    cache = recent(10, 10, ("a", 5), ("b", 4), ("a", 1), ("c", 5))
    assert (kept(cache), cache.weight) == (["a", "b", "c"], 10)
    cache.put("d", "D", 4)
    assert (kept(cache), cache.weight) == (["a", "c", "d"], 10)


def test_an_entry_that_is_too_heavy_by_itself_is_not_kept() -> None:
    cache = recent(10, 10, ("a", 11))
    assert (kept(cache), len(cache), cache.weight) == ([], 0, 0)


def test_statements_are_kept_by_the_length_of_their_texts() -> None:
    texts = [f"SELECT {number} -- {'x' * 8_000}" for number in range(100, 240)]
    cache = StatementCache()
    parsed = [cache.parse(text) for text in texts]
    assert all(cache.parse(text) is found for text, found in zip(texts[-130:], parsed[-130:], strict=True))
    assert cache.parse(texts[0]) is not parsed[0]
