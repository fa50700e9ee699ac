"""Math answers: read, compared exactly, graded."""

from rollwright.grade.math.front import Sameness, compare, is_equal
from rollwright.grade.math.grader import GRADER, grade, grade_answer, grade_many
from rollwright.grade.math.settings import MathSettings

__all__ = ["GRADER", "MathSettings", "Sameness", "compare", "grade", "grade_answer", "grade_many", "is_equal"]
