"""SVG files made smaller, and their parts named so that several pictures can stand in one page. Leaves out drawing.

Only what stands inside a tag is touched: text in the picture is the user's. There "<" is always escaped, so a tag found
is one.
"""

import re

_ID = r'<(?:clipPath|linearGradient) id="([^"]+)"'
_TAG = re.compile(r"<(?:path|line|g|rect|text|image)\b[^>]*>")
_PLACES = re.compile(r'\b(?:d|transform|x|y|x1|y1|x2|y2|width|height)="[^"]*"')
_DECIMALS = re.compile(r"(\.\d\d)\d+")  # a hundredth of a pixel is finer than any screen
_RUN = re.compile(r'<path d="([^"]*)"([^>]*)/>(?:<path d="[^"]*"\2/>)+')
_OUTLINE = re.compile(r'<path d="([^"]*)"')


def with_own_ids(svg: str, name: str) -> str:
    """The picture with its parts numbered from 1 under its own name, so that several can stand in one page.

    Vega numbers them over the life of a process: the same chart would have other bytes the second time.
    """
    old = dict.fromkeys(re.findall(_ID, svg))
    new = {part: f"{name}-{number}" for number, part in enumerate(old, 1)}
    svg = re.sub(_ID, lambda match: f'{match[0].rpartition("=")[0]}="{new[match[1]]}"', svg)
    return re.sub(r'="url\(#([^)]+)\)"', lambda match: f'="url(#{new.get(match[1], match[1])})"', svg)


def smaller(svg: str) -> str:
    """The same picture with places to a hundredth of a pixel, and neighbours that look alike as one path."""
    rounded = _TAG.sub(lambda tag: _PLACES.sub(lambda place: _DECIMALS.sub(r"\1", place[0]), tag[0]), svg)
    return _RUN.sub(lambda run: f'<path d="{"".join(_OUTLINE.findall(run[0]))}"{run[2]}/>', rounded)
