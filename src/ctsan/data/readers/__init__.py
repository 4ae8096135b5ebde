"""One small reader for each corpus format.

A reader is a module with `recognises(path)` and `read(path, problems)`; it appends every problem that it
finds and goes on, and never raises for what a file holds. `ctsan.data.reading` knows them all.
"""
