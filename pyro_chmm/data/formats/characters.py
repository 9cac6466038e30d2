"""Character offsets, as labelling tools write them, become token offsets."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from pyro_chmm.errors import DataError

_WORD = re.compile(r"\w+|[^\w\s]")


class TokenPlaces:
    """Where the tokens of a document are in its text.

    :param text: the document.
    :param tokens: its tokens, in order; None: words and single punctuation marks.
    :param where: file and document, for messages.
    :raises DataError: for a token that does not follow the others in the text.
    """

    def __init__(self, text: str, tokens: Sequence[str] | None, where: str) -> None:
        self.where, self.length = where, len(text)
        if tokens is None:
            matches = list(_WORD.finditer(text))
            self.tokens = [match.group() for match in matches]
            self.starts, self.ends = [match.start() for match in matches], [match.end() for match in matches]
        else:
            self.tokens, self.starts, self.ends = list(tokens), [], []
            self._align(text)
        self.widened = 0
        """Spans that cut a token and were widened to whole ones."""

    def _align(self, text: str) -> None:
        position = 0
        for place, token in enumerate(self.tokens):
            start = text.find(token, position) if isinstance(token, str) else -1
            if start < 0:
                raise DataError(
                    f"{self.where}: token {place}, {token!r}, is not in its 'text' after character {position}; character offsets "
                    "need tokens that are cut out of the text."
                )
            position = start + len(token)
            self.starts.append(start)
            self.ends.append(position)

    def span(self, start: Any, end: Any, kind: Any) -> list[Any]:
        """``[first token, one past the last, type]`` of the characters ``start`` to ``end``.

        :raises DataError: for a span outside the text, or one that touches no token.
        """
        if type(start) is not int or type(end) is not int or not 0 <= start < end <= self.length:
            raise DataError(f"{self.where}: the span [{start!r}, {end!r}, {kind!r}] is not inside its {self.length} characters.")
        first, last = bisect_right(self.ends, start), bisect_left(self.starts, end)
        if first >= last:
            raise DataError(f"{self.where}: the span [{start}, {end}, {kind!r}] touches no token.")
        self.widened += self.starts[first] < start or self.ends[last - 1] > end
        return [first, last, kind]
