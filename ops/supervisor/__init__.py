"""Runs the roles on one machine: `rowmill up`, `down`, `status`, and what a run needs meanwhile."""
