"""Small tools that every part of the package uses: files, progress, tables, compiled loops."""
