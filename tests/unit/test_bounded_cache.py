"""A cache is bounded by the size of what it holds."""

from __future__ import annotations

from athena.bounded_cache import BoundedCache


def test_what_is_kept_is_found() -> None:
    cache: BoundedCache[str, int] = BoundedCache(100)
    cache.put("a", 1, 10)
    assert cache.get("a") == 1
    assert cache.get("b") is None
    assert len(cache) == 1


def test_the_size_is_bounded_however_many_come() -> None:
    cache: BoundedCache[int, str] = BoundedCache(1000)
    for number in range(10_000):
        cache.put(number, "x", 10)
        assert len(cache) <= 100
    assert cache.get(9_999) == "x"
    assert cache.get(0) is None


def test_what_is_used_stays() -> None:
    cache: BoundedCache[int, str] = BoundedCache(1000)
    cache.put(-1, "kept", 10)
    for number in range(1_000):
        cache.put(number, "x", 10)
        assert cache.get(-1) == "kept"


def test_what_is_larger_than_the_cache_is_not_kept() -> None:
    cache: BoundedCache[str, str] = BoundedCache(1000)
    cache.put("small", "x", 10)
    cache.put("large", "x", 501)
    assert cache.get("large") is None
    assert cache.get("small") == "x"
