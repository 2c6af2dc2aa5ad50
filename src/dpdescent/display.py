"""What people see: text that others wrote, made safe to show, and signs of life on standard error.

Names of columns and files, classes, remarks and ledger entries come from files that somebody else may have written. A
terminal obeys escape sequences in them, a spreadsheet obeys a cell that begins like a formula, and a browser obeys
markup. Whatever is shown passes through this module, or through `html.escape` on a page that carries
`CONTENT_POLICY`.

A long run says now and then that it lives: a line on standard error, after a pause and between pauses.
"""

from __future__ import annotations

import re
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape

PAUSE = 5.0  # seconds between two lines, and before the first one

#: In the head of every page: whatever gets into it, a browser runs no script of it and loads nothing for it.
CONTENT_POLICY = (
    '<meta http-equiv="Content-Security-Policy" '
    "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'\">"
)

# Control characters, lone halves of surrogate pairs (bytes of a file name that are no text) and breaks of lines and
# paragraphs; and format characters, among them those that turn the direction of text around or cannot be seen.
_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_JOINERS = frozenset({"\u200c", "\u200d"})  # Persian, Indic scripts and emoji are spelt with them
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

_FORMULA = frozenset("=+-@\uff1d\uff0b\uff0d\uff20")  # the last four are the wide forms of the first
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")


def printable(text: str, *, keep: str = "") -> str:
    r"""Return text in which every control character is spelt out, so that a terminal shows it and obeys none.

    Brackets, quotes and backslashes stay as they are, and a second call changes nothing.

    ``keep`` are characters to leave, such as the line feeds of a text of several lines.

    Examples
    --------
    >>> print(printable("age\x1b[2J\n[red]"))
    age\x1b[2J\n[red]
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(each if each in keep else _spelt(each) for each in text)


def _spelt(character: str) -> str:
    if unicodedata.category(character) not in _ESCAPED or character in _JOINERS:
        return character
    code = ord(character)
    return _SHORT.get(character) or (
        f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    )


def safe_cell(text: str) -> str:
    """Return the text of a CSV cell with an apostrophe before it if a spreadsheet would take it for a formula.

    That is text which begins, after blanks, with ``=``, ``+``, ``-`` or ``@``, or with a tab or the end of a line,
    which spreadsheets drop. Numbers with a sign are left as they are.

    Examples
    --------
    >>> safe_cell("=1+1"), safe_cell("-1.5"), safe_cell("yes")
    ("'=1+1", '-1.5', 'yes')
    """
    if _NUMBER.fullmatch(text):
        return text
    return f"'{text}" if text[:1] in ("\t", "\r", "\n") or text.lstrip()[:1] in _FORMULA else text


class HtmlPage(str):
    """A whole page of HTML as text, which shows itself in a notebook, in a frame of its own."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self)}" sandbox="" width="100%" height="600" style="border:0"></iframe>'


def occasional(pause: float | None = None) -> Callable[[str], None]:
    """Return a function that writes its text to standard error, unless it has done so in the last ``pause`` seconds.

    The first line comes after a pause as well, so that what is done soon says nothing.
    """
    wait = PAUSE if pause is None else pause
    spoken = time.monotonic()

    def speak(text: str) -> None:
        nonlocal spoken
        now = time.monotonic()
        if now - spoken >= wait:
            spoken = now
            sys.stderr.write(f"{printable(text)}\n")
            sys.stderr.flush()

    return speak


@contextmanager
def heartbeat(text: Callable[[], str], pause: float | None = None) -> Iterator[None]:
    """Write a text to standard error every ``pause`` seconds while a block of code runs, whatever it is busy with."""
    wait, ended = PAUSE if pause is None else pause, threading.Event()

    def beat() -> None:
        while not ended.wait(wait):
            sys.stderr.write(f"{printable(text())}\n")
            sys.stderr.flush()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
