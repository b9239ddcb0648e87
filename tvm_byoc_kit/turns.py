"""Calls that take turns in one process, so that what slows the machine down slows each of them."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Samples", "Timer", "Turn", "take_turns", "timed"]

_SECONDS = 0.05  # of calls whose mean is one sample: the clocks resolve far less
_MOST_CALLS = 1000
_SLOW_SECONDS = 0.5  # a call: such a side gets a few rounds only, or everybody waits for it
_SLOW_ROUNDS = 3
_PAUSE_SECONDS = 0.002  # in which the threads of the side before fall asleep


@dataclass
class Timer:
    """Elapsed seconds, and CPU seconds of all threads of the process."""

    wall: float = 0.0
    cpu: float = 0.0


@contextlib.contextmanager
def timed() -> Iterator[Timer]:
    """Fill in the seconds that the block takes, once it has ended."""
    timer = Timer()
    wall, cpu = time.perf_counter(), time.process_time()
    yield timer
    timer.wall, timer.cpu = time.perf_counter() - wall, time.process_time() - cpu


@dataclass(frozen=True)
class Turn:
    """What a side does when its turn comes.

    Parameters
    ----------
    call : callable
    calls : int
        Whose mean is one sample.
    slow : bool
        Takes part in the first few rounds only, without a call before that is not timed.
    """

    call: Callable[[], Any]
    calls: int = 1
    slow: bool = False

    @classmethod
    def of(cls, call: Callable[[], Any]) -> Turn:
        """As many calls as take 50 ms, after one that shows how long it takes."""
        with timed() as warm:
            call()
        calls = max(1, min(_MOST_CALLS, int(_SECONDS / max(warm.wall, 1e-9))))
        return cls(call, calls, warm.wall > _SLOW_SECONDS)

    def take(self) -> Timer:
        """The time of one call."""
        time.sleep(_PAUSE_SECONDS)
        if not self.slow:
            self.call()  # fills the caches and wakes the threads
        with timed() as timer:
            for _ in range(self.calls):
                self.call()
        return Timer(timer.wall / self.calls, timer.cpu / self.calls)


Samples = dict[str, dict[int, Timer]]  # by side, then by round: seconds of one call


def take_turns(turns: Mapping[str, Turn], rounds: int, rng: random.Random) -> Samples:
    """Each side once a round, in an order that changes from round to round."""
    samples: Samples = {name: {} for name in turns}
    for number in range(rounds):
        taking_part = [n for n, turn in turns.items() if not turn.slow or number < _SLOW_ROUNDS]
        for name in rng.sample(taking_part, len(taking_part)):
            samples[name][number] = turns[name].take()
    return samples
