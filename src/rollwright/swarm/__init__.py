"""Runs that share rollouts as text through a folder: no server, no barrier, no common tokeniser."""
