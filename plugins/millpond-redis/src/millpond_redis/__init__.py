"""Millpond's state stores on a Redis server: the rows are there, and a directory has the name of its store.

Rule of this package: nothing is believed of the server that a call has not proved. Each call brings the token of the
handle that has the store open and the number of writes that it has seen; a server with another token or number refuses
the call, so that neither a second opener nor a server that has lost writes gives a wrong answer.

::

    millpond:<store>:state   hash        token, writes, entries
    millpond:<store>:order   sorted set  the keys, all of score 0, so that Redis keeps them in the order of their bytes
    millpond:<store>:rows    hash        the value of each key
"""

from millpond_redis.backend import RedisBackend
from millpond_redis.supplier import RedisSupplier

__all__ = ["RedisBackend", "RedisSupplier"]
