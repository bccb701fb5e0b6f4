"""``Closed``: the stand-in for the parts of an object that is closed.

Rule of this module: it knows neither backends nor stores. An object that closes puts one in place of its handle, its
methods or its changes. So none of its methods has to check first, and while it is open, being closable costs nothing.
"""

from typing import NoReturn

from millpond.errors import StoreClosedError


class Closed:
    """Raises ``StoreClosedError`` with ``message`` at any use.

    >>> Closed("store 'counts' is closed").get("a")
    Traceback (most recent call last):
    millpond.errors.StoreClosedError: store 'counts' is closed [MILLPOND-STORE-CLOSED]
    """

    def __init__(self, message: str) -> None:
        self.__dict__["message"] = message

    def _refuse(self) -> NoReturn:
        raise StoreClosedError(self.__dict__["message"])

    def __getattr__(self, name: str) -> NoReturn:
        self._refuse()

    def __call__(self, *arguments: object, **options: object) -> NoReturn:
        self._refuse()

    def __len__(self) -> NoReturn:
        self._refuse()

    def __iter__(self) -> NoReturn:
        self._refuse()

    def __contains__(self, key: object) -> NoReturn:
        self._refuse()

    def __getitem__(self, key: object) -> NoReturn:
        self._refuse()

    def __setitem__(self, key: object, value: object) -> NoReturn:
        self._refuse()
