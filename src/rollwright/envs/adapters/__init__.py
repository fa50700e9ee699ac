"""Environments and tools of other packages; each module says so where its package is missing."""
