"""All schedule operators, in the order in which programs meet them. Not here: what each does (its own file)."""

from __future__ import annotations

from typing import Any

from unistack_aot.schedule.attention import ATTEND
from unistack_aot.schedule.clipping import CLIP
from unistack_aot.schedule.crops import CROP
from unistack_aot.schedule.epilogues import EPILOGUE
from unistack_aot.schedule.in_place import UPDATE
from unistack_aot.schedule.inlining import INLINE
from unistack_aot.schedule.laying_out import LAY_OUT
from unistack_aot.schedule.loops import BIND, FUSE, SPLIT
from unistack_aot.schedule.operator import Operator
from unistack_aot.schedule.panel_packing import PACK
from unistack_aot.schedule.panel_tiles import TILE_PANELS
from unistack_aot.schedule.recompute import RECOMPUTE
from unistack_aot.schedule.row_joins import JOIN_ROWS
from unistack_aot.schedule.split_depth import SPLIT_REDUCE
from unistack_aot.schedule.staging import STAGE
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
    ATTEND,
    PACK,
    TILE_PANELS,
    TILE_WINOGRAD,
    TILE,
    STREAM,
    STAGE,
    SPLIT_REDUCE,
    TURN,
    UNSWITCH,
    CLIP,
    SPLIT,
    FUSE,
    BIND,
    VECTORISE,
    VECTORISE_FOLD,
    UPDATE,
)
