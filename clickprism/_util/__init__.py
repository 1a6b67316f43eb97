"""Utilities that every part of the package uses: files, tables, progress, processes, compiled loops."""
