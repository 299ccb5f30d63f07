from __future__ import annotations

from rekindle.watching.schedule import (
    LEARN_AFTER_SECONDS,
    LEARN_WITHIN_SECONDS,
    MAX_RETRY_SECONDS,
    WatchSchedule,
)


def test_nothing_waits_at_first_and_a_change_is_due_at_once() -> None:
    schedule = WatchSchedule()
    assert schedule.compute_wait(0.0) is None
    schedule.add_paths(["/a/b", "/a"], 1.0)
    assert schedule.compute_wait(1.0) == 0.0
    assert schedule.take_due(1.0) == ["/a", "/a/b"]  # parents first
    assert schedule.take_due(1.0) == []


def test_a_file_that_takes_long_to_read_is_read_a_tenth_of_the_time() -> None:
    schedule = WatchSchedule()
    schedule.record_import(["/big"], 100.0, 3.0, has_news=False)
    schedule.record_import(["/small"], 100.0, 0.05, has_news=False)
    schedule.add_paths(["/big", "/small"], 101.0)
    assert schedule.take_due(101.0) == ["/small"]
    assert schedule.compute_wait(101.0) == 29.0
    assert schedule.take_due(130.0) == ["/big"]


def test_a_change_during_the_rest_is_not_forgotten_however_many_follow() -> None:
    schedule = WatchSchedule()
    schedule.record_import(["/big"], 0.0, 1.0, has_news=False)
    for second in range(1, 10):
        schedule.add_paths(["/big"], float(second))
    assert schedule.take_due(10.0) == ["/big"]


def test_after_a_failure_everything_waits_longer_each_time() -> None:
    schedule = WatchSchedule()
    pauses = [schedule.record_failure(["/a"], 0.0) for _ in range(10)]
    assert pauses[:3] == [1.0, 2.0, 4.0]
    assert pauses[-1] == MAX_RETRY_SECONDS
    assert schedule.take_due(1.0) == []
    assert schedule.compute_wait(0.0) == MAX_RETRY_SECONDS
    assert schedule.take_due(MAX_RETRY_SECONDS) == ["/a"]
    schedule.record_import(["/a"], 70.0, 0.0, has_news=True)
    assert schedule.record_failure([], 71.0) == 1.0


def test_learning_waits_until_messages_stop_but_not_for_ever() -> None:
    schedule = WatchSchedule()
    now = 0.0
    while now < LEARN_WITHIN_SECONDS:
        schedule.record_import(["/a"], now, 0.0, has_news=True)
        assert not schedule.is_learning_due(now)
        now += LEARN_AFTER_SECONDS / 2
    assert schedule.is_learning_due(LEARN_WITHIN_SECONDS)
    schedule.record_learning()
    assert schedule.compute_wait(now) is None
    schedule.record_import(["/a"], 1000.0, 0.0, has_news=True)
    assert not schedule.is_learning_due(1000.0 + LEARN_AFTER_SECONDS - 1)
    assert schedule.is_learning_due(1000.0 + LEARN_AFTER_SECONDS)


def test_an_import_without_news_leads_to_no_learning() -> None:
    schedule = WatchSchedule()
    schedule.record_import(["/a"], 0.0, 0.0, has_news=False)
    assert schedule.compute_wait(0.0) is None
