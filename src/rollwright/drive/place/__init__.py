"""Placement policies, one file each (`rollwright.drive.placement`)."""
