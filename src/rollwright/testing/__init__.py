"""What tests of methods and stages need: the law suite, a fake engine, a runner driven by hand."""

from rollwright.testing.laws import check_method

__all__ = ["check_method"]
