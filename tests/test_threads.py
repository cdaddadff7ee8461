"""Executors whose threads compute with a share of torch's threads, and leave all other threads as they were."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from prune_lab.threads import sharing_threads


@pytest.fixture(autouse=True)
def four_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def threads_of_a_new_thread() -> int:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize(("num_threads", "share"), [(1, 4), (2, 2), (3, 1), (8, 1)])
def test_each_thread_computes_with_its_share_and_the_caller_with_all(num_threads: int, share: int) -> None:
    with sharing_threads(num_threads, "x") as executor:
        assert torch.get_num_threads() == 4 and threads_of_a_new_thread() == 4
        meeting = threading.Barrier(num_threads)

        def look(_: int) -> tuple[int, int]:
            meeting.wait()  # so that no thread takes two turns
            return threading.get_ident(), torch.get_num_threads()

        found = list(executor.map(look, range(num_threads)))
    assert len({thread for thread, _ in found}) == num_threads and {each for _, each in found} == {share}
    assert torch.get_num_threads() == 4 and threads_of_a_new_thread() == 4


def test_executors_that_overlap_leave_everyone_elses_threads_alone() -> None:
    """One begins, another begins, the first ends, the other ends."""
    first = sharing_threads(4, "first")
    second = sharing_threads(2, "second")
    assert second.submit(torch.get_num_threads).result() == 2
    first.shutdown()
    assert torch.get_num_threads() == 4 and second.submit(torch.get_num_threads).result() == 2
    second.shutdown()
    assert torch.get_num_threads() == 4 and threads_of_a_new_thread() == 4


def test_many_users_may_start_executors_at_once() -> None:
    def use(_: int) -> int:
        with sharing_threads(2, "x") as executor:
            return executor.submit(torch.get_num_threads).result()

    with ThreadPoolExecutor(8) as users:
        assert set(users.map(use, range(40))) == {2}
    assert torch.get_num_threads() == 4 and threads_of_a_new_thread() == 4
