"""Text as Arrow has to be given it: in UTF-8, with no line end cut in two, and with a last line that shows its end.

Arrow takes the line feed for the end of an empty line where a block begins with it, even inside quotation marks. And
it takes all that follows a quotation mark that is never closed for one cell.
"""

from __future__ import annotations

import codecs
import io
import secrets
from typing import IO, Any

from ..delimited import Delimited

__all__ = ["LastLine", "Utf8Text"]


class LastLine:
    """A line after the last one of a text table, with one cell too many, which nobody can foresee.

    It is Arrow's handler of invalid rows: the line is left out, and every other such row is an error. If Arrow does
    not come upon the line, it is part of a cell whose quotation mark is never closed.
    """

    def __init__(self, written: Delimited) -> None:
        self.text = secrets.token_hex(16) + written.separator * len(written.names)
        self.found = False
        self._in_a_cell = False

    def __call__(self, row: Any) -> str:
        if row.text == self.text:
            self.found = True
            return "skip"
        self._in_a_cell |= self.text in row.text
        return "error"

    def is_in_a_cell(self, problem: Exception) -> bool:
        """Whether Arrow has found the line inside the cell, or the row, that it complains of."""
        return self._in_a_cell or self.text in str(problem)


class Utf8Text(io.RawIOBase):
    """A file of text in UTF-8, whatever its encoding, followed by a last line; no read ends between CR and LF.

    Text that is not in the encoding raises `UnicodeError`.
    """

    def __init__(self, file: IO[bytes], encoding: str, last: str) -> None:
        self._file, self._last = file, f"\n{last}\n".encode()
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._ready = b""
        self._ended = False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Return at most ``size`` bytes, and none after the last line."""
        while not self._ended and len(self._ready) < size:
            coded = self._file.read(size)
            self._ended = not coded
            self._ready += self._decoder.decode(coded, final=self._ended).encode()
            if self._ended:
                self._ready += self._last
        data = self._ready[:size]
        if len(data) > 1 and data.endswith(b"\r"):
            data = data[:-1]
        self._ready = self._ready[len(data) :]
        return data
