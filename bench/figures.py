"""Samples and how they are reported: p50, p95, p99, count, and the ratio to the floor of the same
run."""
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter


def percentile(samples: Sequence[float], share: float) -> float:
    """The nearest-rank percentile (`share` 0 to 1) of at least one sample."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, max(0, round(share * len(ordered) + 0.5) - 1))]


def timed(action: Callable[[], object]) -> float:
    """Milliseconds that one call of `action` took."""
    begun = perf_counter()
    action()
    return (perf_counter() - begun) * 1000


@dataclass
class Figure:
    """A named series in milliseconds, and the series of its floor if it has one."""

    name: str
    samples: list[float] = field(default_factory=list)
    floor: list[float] = field(default_factory=list)
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Median over the median of the floor; None without a floor."""
        if not self.floor or not self.samples:
            return None
        return percentile(self.samples, 0.5) / percentile(self.floor, 0.5)

    @property
    def added(self) -> float | None:
        """Milliseconds that the median is above the median of the floor; None without a floor."""
        if not self.floor or not self.samples:
            return None
        return percentile(self.samples, 0.5) - percentile(self.floor, 0.5)

    def row(self, bound: str = "-") -> str:
        """One line of the report; `bound` says what the ratio, or the time, is judged by."""
        if not self.samples:
            return f"{self.name:<20} {'-':>8}  {self.note}"
        cells = " ".join(f"{percentile(self.samples, share):8.1f}" for share in (0.5, 0.95, 0.99))
        floor = f"{percentile(self.floor, 0.5):8.1f}" if self.floor else f"{'-':>8}"
        ratio = f"{self.ratio:6.2f}" if self.ratio else f"{'-':>6}"
        return (f"{self.name:<20} {cells} {len(self.samples):6d} {floor} {ratio} {bound:>8}"
                f"  {self.note}")


HEADER = (f"{'figure (ms)':<20} {'p50':>8} {'p95':>8} {'p99':>8} {'n':>6} {'floor':>8} {'ratio':>6}"
          f" {'bound':>8}")
