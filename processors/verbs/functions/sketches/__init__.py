"""The aggregate functions that are sketches of Apache DataSketches.

Rule of this room: a state is nil before any value, and then a checksum and the bytes of a sketch, as the library writes
them; that of ``approx_count_distinct`` has no checksum. A sketch that was changed stays an object until it is stored.
The library is imported when a function is bound.
"""
