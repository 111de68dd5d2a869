"""Main loops are found in the text of a disassembler, and in a real cubin if one is installed."""

from pathlib import Path

import pytest

from monomoe_gen import dispatch, sass
from monomoe_gen.errors import EnvironmentProblem

NVDISASM = """\
//--------------------- .text.other ---
.text.other:
        /*0000*/                   HMMA.16816.F32 R4, R8, R12, R4 ;
        /*0010*/                   BRA `(.L_x_9) ;
.text.kernel:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/              @!P1 BRA `(.L_x_3) ;
.L_x_2:
        /*0020*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R2 ;
        /*0030*/               @P0 BRA `(.L_x_2) ;
.L_x_4:
        /*0040*/                   UBLKCP.S.G [UR4], [UR10], UR6 ;
        /*0050*/              @UP1 BRA.U.ANY `(.L_x_4) ;
        /*0060*/               @P2 BRA `(.L_x_1) ;
.L_x_3:
        /*0070*/                   LDS.128 R4, [R2] ;
        /*0080*/                   HMMA.16816.F32 R4, R8, R12, R4 ;
        /*0090*/                   HMMA.16816.F32 R4, R8, R12, R4 ;
        /*00a0*/               @P1 BRA `(.L_x_3) ;
        /*00b0*/                   EXIT ;
"""
CUOBJDUMP = """\
\t\tFunction : kernel
        /*0000*/                   MOV R1, c[0x0][0x28] ;   /* 0x0000000000017a02 */
                                                            /* 0x000fc40000000f00 */
        /*0010*/                   IMMA.16832.S8.S8 R4, R8, R12, R4 ;  /* 0x1 */
        /*0020*/               @P1 BRA 0x10 ;               /* 0x2 */
        /*0030*/                   EXIT ;                   /* 0x3 */
"""
TOOL = sass.find_disassembler()


def test_main_loops_are_the_smallest_round_their_instruction() -> None:
    copy, matrix = sass.parse_loops(NVDISASM, "kernel")
    assert (copy.kind, copy.instructions) == ("copy", 6)
    assert (matrix.kind, matrix.instructions) == ("matrix", 4)
    assert matrix.opcodes["HMMA.16816.F32"] == 2


def nested(*loops: tuple[int, int, str]) -> str:
    """SASS of loops, given by first and last address, and by the instruction at the first."""
    at = {first: name for first, _, name in loops} | {
        last: f"@P0 BRA {first:#x}" for first, last, _ in loops
    }
    lines = (f"        /*{n:04x}*/  {at.get(n, 'NOP')} ;" for n in range(0, 0x100, 0x10))
    return "\t\tFunction : kernel\n" + "\n".join(lines)


COPY, MATRIX = "UBLKCP.S.G [UR4]", "HMMA.16816.F32 R4"


@pytest.mark.parametrize(
    ("loops", "kinds"),
    [
        # a copy that seems to be in a loop round the whole kernel
        ([(0x00, 0xF0, COPY), (0x10, 0x30, COPY), (0x40, 0x60, MATRIX)], ["copy", "matrix"]),
        # products that issue copies between them
        ([(0x00, 0x50, MATRIX), (0x20, 0x30, COPY)], ["matrix", "copy"]),
        ([(0x00, 0x50, MATRIX), (0x20, 0x30, MATRIX)], ["matrix"]),
        # one warp copies and multiplies: these are all copies that there are
        ([(0x00, 0x50, COPY), (0x20, 0x30, MATRIX)], ["copy", "matrix"]),
        ([(0x00, 0x50, COPY), (0x20, 0x30, MATRIX), (0x60, 0x80, COPY)], ["matrix", "copy"]),
    ],
)
def test_no_role_loses_its_loop_to_another(
    loops: list[tuple[int, int, str]], kinds: list[str]
) -> None:
    assert [loop.kind for loop in sass.parse_loops(nested(*loops), "kernel")] == kinds


def test_the_other_disassembler_writes_addresses() -> None:
    (loop,) = sass.parse_loops(CUOBJDUMP, "kernel")
    assert (loop.kind, loop.instructions) == ("matrix", 2)


def test_only_the_named_kernel_counts() -> None:
    assert sass.parse_loops(NVDISASM, "other") == ()
    assert sass.parse_loops(NVDISASM, "unknown") == ()


def test_a_disassembler_is_found_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sass, "_folders", lambda: iter([tmp_path]))
    assert sass.find_disassembler() is None
    for name in ("cuobjdump", "nvdisasm"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
        found = sass.find_disassembler()
        assert found and found[0] == str(tmp_path / name)
    with pytest.raises(EnvironmentProblem, match="nvdisasm cannot disassemble"):
        sass.main_loops(b"", "kernel", found)


@pytest.mark.skipif(TOOL is None, reason="needs nvdisasm or cuobjdump")
def test_a_dispatched_kernel_has_loops_of_either_kind() -> None:
    """Copies and products of the up projection, then of the down projection.

    A stage of several copies has a loop of its own for them, and so has a stage requested early.
    """
    assert TOOL
    folder = dispatch.table_folder()
    kernel = dispatch.lookup(dispatch.load(folder), "qwen3.5-35b", 8).kernel
    loops = sass.main_loops(dispatch.read_cubin(folder, kernel), kernel.kernel_name, TOOL)
    *copies, up, down = [loop.kind for loop in loops]
    assert len(copies) >= 2 and set(copies) == {"copy"} and up == down == "matrix"
    assert all(10 < loop.instructions < 1000 for loop in loops)
