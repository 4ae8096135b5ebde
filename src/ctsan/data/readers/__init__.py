"""One reader per corpus format.

A reader is a module with `recognises(path)` and `read(path, problems)`. It appends every problem to
`problems` and continues; it never raises because of a file's content. `ctsan.data.reading` lists them all.
"""
