"""Criteria: what a head is worth. One file each; the file's name is the criterion's short name."""
