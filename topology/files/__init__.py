"""Clusters as files and names: read, checked and written."""
