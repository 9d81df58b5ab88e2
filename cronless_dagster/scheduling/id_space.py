"""Where an entity lies in the id space, whatever its ids look like, so that parts of the space cover them all."""

from __future__ import annotations

from hashlib import sha256
from uuid import UUID


def place_of(entity: UUID | str | int) -> UUID:
    """Return an entity's place: a UUID is its own; a text's is the first 16 bytes of the SHA-256 of its UTF-8.

    An integer stands for its decimal text, so that `17` and `"17"` are one entity. A text is always hashed, also one
    that looks like a UUID: whoever keeps UUIDs as texts has them spread all the same. In SQL it is
    `cronless.place_of(text)`.
    """
    if isinstance(entity, UUID):
        return entity
    return UUID(bytes=sha256(str(entity).encode("utf-8", "surrogatepass")).digest()[:16])
