"""Text from plain and compressed files, whole, cut and garbled."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from clickprism.log.read.formats import blocks, body, read_lines

LINES = [f"line {number} {number * number}".encode() for number in range(1, 40)]
TEXT = b"\n".join(LINES) + b"\n"
GARBAGE = bytes(range(100, 112))


def squeezed(text: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(text)


PACKERS = pytest.mark.parametrize("pack", [gzip.compress, squeezed], ids=["gzip", "zstd"])


def read(path: Path, size: int = 50) -> tuple[list[bytes], list[tuple[int, str, bytes]]]:
    good, bad, total = [], [], 0
    for lines in read_lines(blocks(path, size), max_line=1000):
        good += [body(each.encode()) for each in lines.values.to_pylist()]
        bad += [(each.line, each.code, each.raw) for each in lines.bad]
        total += lines.read
    assert total == path.stat().st_size
    return good, bad


@PACKERS
def test_a_file_cut_at_any_byte_keeps_the_lines_before(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    packed, path = pack(TEXT), tmp_path / "log.jsonl"
    for cut in range(5, len(packed)):
        path.write_bytes(packed[:cut])
        good, bad = read(path)
        assert good == LINES[: len(good)]
        ((line, code, raw),) = bad
        assert (line, code) == (len(good) + 1, "truncated")
        assert TEXT.startswith(b"".join(each + b"\n" for each in good) + raw)


@PACKERS
def test_a_second_member_that_is_cut_keeps_the_first(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(pack(TEXT) + pack(b"next\n")[:-1])
    good, bad = read(path)
    assert good[: len(LINES)] == LINES
    assert [(line, code) for line, code, _ in bad] == [(len(good) + 1, "truncated")]


@PACKERS
def test_members_one_after_another_are_one_text(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(pack(b"a\nb") + pack(b"") + pack(b"c\nd\n"))
    for size in (1, 2, 100):
        assert read(path, size) == ([b"a", b"bc", b"d"], [])


def test_zstd_that_looks_far_back(tmp_path: Path) -> None:
    settings = zstandard.ZstdCompressionParameters.from_level(3, window_log=28, enable_ldm=True)
    frame, path = zstandard.ZstdCompressor(compression_params=settings).compressobj(), tmp_path / "log.zst"
    path.write_bytes(frame.compress(TEXT) + frame.flush())
    assert read(path) == (LINES, [])


def test_zeros_behind_gzip_are_padding(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(TEXT) + bytes(70_000) + gzip.compress(b"more\n") + bytes(3))
    assert read(path) == ([*LINES, b"more"], [])


@PACKERS
def test_what_comes_before_garbage_is_kept(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(pack(TEXT) + GARBAGE)
    assert read(path) == (LINES, [(len(LINES) + 1, "corrupt", b"")])


@PACKERS
def test_a_garbled_middle_keeps_what_comes_before(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    import random

    numbers = random.Random(0)
    lines = [numbers.randbytes(20).hex().encode() for _ in range(30_000)]
    packed, path = pack(b"\n".join(lines) + b"\n"), tmp_path / "log"
    for share in (0.3, 0.9):
        place = int(len(packed) * share)
        path.write_bytes(packed[:place] + b"\xff" * 200 + packed[place + 200 :])
        good, bad = read(path, 1 << 16)
        assert bad[-1][1] == "corrupt"
        same = next((index for index, (a, b) in enumerate(zip(good, lines, strict=False)) if a != b), len(good))
        blocks_of_lines = 300_000 // 41  # what comes with the fault is lost: up to 128 kB, and a zstd block
        assert same > share * len(lines) - blocks_of_lines


def test_a_flipped_checksum_is_reported(tmp_path: Path) -> None:
    packed, path = bytearray(gzip.compress(TEXT)), tmp_path / "log.gz"
    packed[-6] ^= 1
    path.write_bytes(packed)
    assert read(path) == (LINES, [(len(LINES) + 1, "corrupt", b"")])


def test_a_bomb_is_read_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(bytes(1) * (40 << 20)))
    assert max(len(block.data) for block in blocks(path, 1 << 16)) == 1 << 16
