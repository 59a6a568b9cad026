"""All schedule operators, in the order in which programs meet them. Not here: what each does (its own file)."""

from __future__ import annotations

from typing import Any

from unistack_aot.schedule.attention import ATTEND
from unistack_aot.schedule.block_cuts import CUT_BLOCKS
from unistack_aot.schedule.channels_last import TURN_CHANNELS
from unistack_aot.schedule.clipping import CLIP
from unistack_aot.schedule.crops import CROP
from unistack_aot.schedule.epilogues import EPILOGUE
from unistack_aot.schedule.in_place import UPDATE
from unistack_aot.schedule.independent import MOVE_OUTSIDE
from unistack_aot.schedule.inlining import INLINE
from unistack_aot.schedule.lanes_inside import LANES_INSIDE
from unistack_aot.schedule.last_writer import LAST_WRITER
from unistack_aot.schedule.laying_out import LAY_OUT
from unistack_aot.schedule.loops import BIND, FUSE, SPLIT
from unistack_aot.schedule.narrow_floats import WIDEN
from unistack_aot.schedule.operand_copies import COPY_OPERAND
from unistack_aot.schedule.operator import Operator
from unistack_aot.schedule.panel_packing import PACK
from unistack_aot.schedule.panel_tiles import TILE_PANELS
from unistack_aot.schedule.recompute import RECOMPUTE
from unistack_aot.schedule.row_joins import JOIN_ROWS
from unistack_aot.schedule.separation import SEPARATE
from unistack_aot.schedule.split_depth import SPLIT_REDUCE
from unistack_aot.schedule.staging import STAGE
from unistack_aot.schedule.steps import LAUNCH_STEPS
from unistack_aot.schedule.stored_runs import STORE_RUNS
from unistack_aot.schedule.storing_narrow import STORE_NARROW
from unistack_aot.schedule.storing_wide import STORE_WIDE
from unistack_aot.schedule.tiling import STREAM, TILE
from unistack_aot.schedule.transposes import TURN
from unistack_aot.schedule.unswitch import UNSWITCH
from unistack_aot.schedule.vectorising import VECTORISE, VECTORISE_FOLD
from unistack_aot.schedule.winograd import TILE_WINOGRAD

OPERATORS: tuple[Operator[..., Any], ...] = (
    INLINE,
    EPILOGUE,
    JOIN_ROWS,
    RECOMPUTE,
    CROP,
    LAY_OUT,
    STORE_NARROW,
    STORE_WIDE,
    TURN_CHANNELS,
    SEPARATE,
    MOVE_OUTSIDE,
    LAST_WRITER,
    WIDEN,
    COPY_OPERAND,
    ATTEND,
    PACK,
    TILE_PANELS,
    TILE_WINOGRAD,
    TILE,
    STREAM,
    STAGE,
    SPLIT_REDUCE,
    STORE_RUNS,
    TURN,
    LAUNCH_STEPS,
    CUT_BLOCKS,
    LANES_INSIDE,
    UNSWITCH,
    CLIP,
    SPLIT,
    FUSE,
    BIND,
    VECTORISE,
    VECTORISE_FOLD,
    UPDATE,
)
