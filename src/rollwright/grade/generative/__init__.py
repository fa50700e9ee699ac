"""Models that grade by writing: critics, rewriters, judges made of the policy, self-made rubrics.

Each takes a `rollwright.grade.judge.Chat` (or, for token rewards, a `Rewriter`), so that a server, a policy
or a rule can stand behind it. `arithmetic` holds a rule-based stand-in.
"""
