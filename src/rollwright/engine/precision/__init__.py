"""Rollouts in few bits, emulated: formats, the engine's and the learner's forwards in them, a probe."""
