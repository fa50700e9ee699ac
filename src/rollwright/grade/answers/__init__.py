"""Answer extraction: where a model's final answer stands in its text, and how it was found."""

from rollwright.grade.answers.extract import extract
from rollwright.grade.answers.found import Found, How

__all__ = ["Found", "How", "extract"]
