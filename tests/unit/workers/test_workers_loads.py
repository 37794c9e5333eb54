"""What workers hear of each other's loads."""

from __future__ import annotations

from kilocard.workers.loads import Loads, Others, Row


def two(**bounds: int) -> Loads:
    loads = Loads(bounds)
    loads.found("p/a", "p")
    loads.join(1)
    loads.join(2)
    loads.news()
    return loads


def test_each_hears_the_sum_of_the_others_and_only_news() -> None:
    loads = two()
    loads.join(3)
    loads.report(1, [Row("p/a", 3, 1, 100, 200, 300)], read=0)
    loads.report(2, [Row("p/a", 2, 0, 0, 20, 30)], read=0)
    _, news = loads.news()
    assert news == {
        1: [Others("p/a", 2, 0, 0, 20, 30, None)],
        2: [Others("p/a", 3, 1, 100, 200, 300, None)],
        3: [Others("p/a", 5, 1, 100, 220, 330, None)],
    }
    assert loads.news()[1] == {}
    assert loads.in_flight("p/a") == 5


def test_a_dead_workers_load_is_gone_at_once() -> None:
    loads = two()
    loads.report(1, [Row("p/a", 3)], read=0)
    loads.news()
    loads.leave(1)
    assert loads.news()[1] == {2: [Others("p/a", 0, 0, 0, 0, 0, None)]}
    loads.report(1, [Row("p/a", 9)], read=0)  # a word that was on its way
    assert loads.news()[1] == {}


def test_a_new_worker_hears_of_everything() -> None:
    loads = two()
    loads.report(1, [Row("p/a", 3)], read=0)
    loads.news()
    loads.join(3)
    assert loads.news()[1] == {3: [Others("p/a", 3, 0, 0, 0, 0, None)]}


def test_a_bound_is_split_and_follows_who_wants() -> None:
    loads = Loads({"p": 6})
    loads.join(1)
    loads.join(2)
    loads.found("p/a", "p")
    number, news = loads.news()
    assert [rows[0].share for rows in news.values()] == [3, 3]
    loads.report(1, [Row("p/a", 3, held=3, cap=3)], read=number)
    loads.report(2, [Row("p/a", 0, cap=3)], read=number)
    number, news = loads.news()
    assert news[2][0].share == 0
    loads.report(2, [Row("p/a", 0, cap=0)], read=number)
    _, news = loads.news()
    assert news[1][0].share == 6


def test_a_lost_replica_leaves_nothing_behind() -> None:
    loads = two(p=6)
    loads.report(1, [Row("p/a", 3, cap=3)], read=0)
    loads.lost("p/a")
    assert loads.news()[1] == {}
    assert loads.in_flight("p/a") == 0


def test_another_bound_holds_when_workers_have_heard_of_it() -> None:
    loads = Loads({"p": 6})
    loads.found("p/a", "p")
    loads.join(1)
    loads.join(2)
    number, news = loads.news()
    for worker in (1, 2):
        loads.report(worker, [Row("p/a", 3, cap=3)], read=number)
    loads.rebound({"p": 4}, {"p/a": "p"})
    _, news = loads.news()
    assert [news[worker][0].share for worker in (1, 2)] == [2, 2]
    loads.rebound({}, {"p/a": "p"})
    _, news = loads.news()
    assert [news[worker][0].share for worker in (1, 2)] == [None, None]
    loads.rebound({"p": 5}, {"p/a": "p"})
    _, news = loads.news()
    assert sum(news[worker][0].share or 0 for worker in (1, 2)) == 5
