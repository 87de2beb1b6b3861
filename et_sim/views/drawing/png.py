"""SVG pictures as PNG, without a browser. Loads resvg, which is an extra."""

from __future__ import annotations

from et_sim.basics.errors import UsageError

ZOOM = 2  # pixels of the PNG for one of the SVG
EMPTY = '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">{}</svg>'


def png_of(svg: str) -> bytes:
    """The picture, twice as large as the SVG; refused where resvg, or every font, is missing."""
    try:
        from resvg_py import svg_to_bytes
    except ImportError:
        raise UsageError(
            "--png needs resvg, which is not installed", remedy="pip install 'et-sim[png]', or use --svg"
        ) from None
    letter = EMPTY.format(_text(svg, '<text x="2" y="15" {}>A</text>'))
    if svg_to_bytes(svg_string=letter) == svg_to_bytes(svg_string=EMPTY.format("")):
        raise UsageError(
            "--png finds no font for texts", remedy="install one, such as DejaVu Sans, or use --svg"
        )
    return bytes(svg_to_bytes(svg_string=svg, zoom=ZOOM))


def _text(svg: str, form: str) -> str:
    """A letter in the picture's fonts."""
    begin = svg.find('font-family="')
    return form.format(svg[begin : svg.index('"', begin + 13) + 1] if begin >= 0 else "")
