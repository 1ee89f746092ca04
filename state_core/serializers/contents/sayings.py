"""What a user says of a text or of bytes: one line, which is kept with the state.

`json {"id":"long"}` has all that is needed to read and write the values again.
"""

from __future__ import annotations

from functools import lru_cache

from statelake.state_core.errors import EncodeError, IncompatibleError
from statelake.state_core.serializers.basic.text import ByteArraySerializer, StringSerializer
from statelake.state_core.serializers.contents.avro_messages import AvroMessages
from statelake.state_core.serializers.contents.content import Content, ContentSerializer
from statelake.state_core.serializers.contents.json_texts import JsonTexts
from statelake.state_core.serializers.framework.base import TypeSerializer


@lru_cache(maxsize=256)
def content_of(saying: str) -> Content:
    """Return what a saying says.

    Raises:
        EncodeError: It is no such saying.
    """
    form, _, rest = saying.partition(" ")
    forms: dict[str, type[JsonTexts | AvroMessages]] = {
        "json": JsonTexts, "avro": AvroMessages,
    }  # fmt: skip
    if form not in forms:
        raise EncodeError(
            f"{form!r} is no form of what a text holds", remedy=f"one of: {', '.join(forms)}"
        )
    return forms[form].parse(rest)


def holding(serializer: TypeSerializer, saying: str) -> TypeSerializer:
    """Return the serializer of a state's text or bytes, typed by what they hold.

    Args:
        serializer: The serializer of the state's value, list element or map value.
        saying: The declared content; empty if none was declared.

    Raises:
        IncompatibleError: The values are neither text nor bytes.
        EncodeError: It is no such saying.
    """
    if not saying:
        return serializer
    if not isinstance(serializer, StringSerializer | ByteArraySerializer):
        raise IncompatibleError(
            f"its values are {serializer.name}; only String and byte[] hold something else",
            remedy="leave the state out of --decode",
        )
    return ContentSerializer(serializer, content_of(saying))
