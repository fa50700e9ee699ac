"""Rollout workers, graders and the learner as Ray actors, on one machine or many.

The driver process holds the runner and the journal and nothing else: it sends each command to an actor
and takes the answers back as events. Only `rollwright.drive.ray.settings` can be imported without Ray.
"""
