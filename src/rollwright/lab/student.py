"""Student's distribution, for intervals from few seeds or few clusters."""

from __future__ import annotations

import functools

from rollwright.errors import DataError


def student_cdf(t: float, df: float) -> float:
    """Return P(T ≤ t) of Student's distribution: 1 - I_x(df/2, 1/2)/2 with x = df/(df + t²), for t ≥ 0.

    Args:
        t: any number.
        df: degrees of freedom, > 0.
    """
    import mpmath

    tail = float(mpmath.betainc(df / 2, 0.5, 0, df / (df + t * t), regularized=True)) / 2
    return 1 - tail if t >= 0 else tail


@functools.lru_cache(maxsize=512)
def student_quantile(p: float, df: float) -> float:
    """Return the t with P(T ≤ t) = p.

    Raises:
        DataError: p outside (0, 1), or no degree of freedom.
    """
    if not 0 < p < 1 or not df > 0:
        raise DataError(f"student_quantile: p = {p!r}, df = {df!r}; expected 0 < p < 1 and df > 0")
    if p < 0.5:
        return -student_quantile(1 - p, df)
    high = 1.0
    while student_cdf(high, df) < p:
        high *= 2
    low = 0.0
    for _ in range(60):
        middle = (low + high) / 2
        if student_cdf(middle, df) < p:
            low = middle
        else:
            high = middle
    return (low + high) / 2
