"""Who a worker is."""
import re

_NAME = re.compile(r"[A-Za-z0-9_:\-]+\Z")
_NAME_LENGTH_MAX = 128


class WorkerInfo:
    """A worker's name and id (its rank). Can be sent, compared and used as a key."""

    __slots__ = ("name", "id")

    def __init__(self, name: str, id: int):
        if not name:
            raise RuntimeError("Worker name must be non-empty")
        if len(name) >= _NAME_LENGTH_MAX:
            raise RuntimeError(f"Worker name must be shorter than {_NAME_LENGTH_MAX} characters, but has {len(name)}")
        if not _NAME.match(name):
            raise RuntimeError(f"Worker name must match {_NAME.pattern[:-2]}, but {name!r} does not")
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "id", id)

    def __setattr__(self, key, value):
        raise AttributeError("can't set attribute")

    def __reduce__(self):
        return WorkerInfo, (self.name, self.id)

    def __eq__(self, other):
        return isinstance(other, WorkerInfo) and (self.id, self.name) == (other.id, other.name)

    def __hash__(self):
        return hash((self.id, self.name))

    def __repr__(self):
        return f"WorkerInfo(id={self.id}, name={self.name})"
