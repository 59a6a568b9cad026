from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Manifest(_message.Message):
    __slots__ = ("version", "producer", "model", "dims", "inputs", "outputs", "variants", "golden", "members", "options", "demands")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DIMS_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    VARIANTS_FIELD_NUMBER: _ClassVar[int]
    GOLDEN_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    DEMANDS_FIELD_NUMBER: _ClassVar[int]
    version: int
    producer: str
    model: str
    dims: _containers.RepeatedCompositeFieldContainer[Dim]
    inputs: _containers.RepeatedCompositeFieldContainer[Tensor]
    outputs: _containers.RepeatedCompositeFieldContainer[Tensor]
    variants: _containers.RepeatedCompositeFieldContainer[Variant]
    golden: _containers.RepeatedCompositeFieldContainer[Golden]
    members: _containers.RepeatedCompositeFieldContainer[Member]
    options: _containers.RepeatedScalarFieldContainer[str]
    demands: _containers.RepeatedCompositeFieldContainer[Demand]
    def __init__(self, version: _Optional[int] = ..., producer: _Optional[str] = ..., model: _Optional[str] = ..., dims: _Optional[_Iterable[_Union[Dim, _Mapping]]] = ..., inputs: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., outputs: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., variants: _Optional[_Iterable[_Union[Variant, _Mapping]]] = ..., golden: _Optional[_Iterable[_Union[Golden, _Mapping]]] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., options: _Optional[_Iterable[str]] = ..., demands: _Optional[_Iterable[_Union[Demand, _Mapping]]] = ...) -> None: ...

class Dim(_message.Message):
    __slots__ = ("name", "low", "typical", "high")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    TYPICAL_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    name: str
    low: int
    typical: int
    high: int
    def __init__(self, name: _Optional[str] = ..., low: _Optional[int] = ..., typical: _Optional[int] = ..., high: _Optional[int] = ...) -> None: ...

class Demand(_message.Message):
    __slots__ = ("value", "sentence", "hint")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    value: str
    sentence: str
    hint: str
    def __init__(self, value: _Optional[str] = ..., sentence: _Optional[str] = ..., hint: _Optional[str] = ...) -> None: ...

class Tensor(_message.Message):
    __slots__ = ("name", "dtype", "shape")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[str]] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("name", "nbytes", "sha256")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NBYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    name: str
    nbytes: int
    sha256: str
    def __init__(self, name: _Optional[str] = ..., nbytes: _Optional[int] = ..., sha256: _Optional[str] = ...) -> None: ...

class Golden(_message.Message):
    __slots__ = ("name", "member", "tolerances")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    TOLERANCES_FIELD_NUMBER: _ClassVar[int]
    name: str
    member: str
    tolerances: _containers.RepeatedCompositeFieldContainer[Tolerance]
    def __init__(self, name: _Optional[str] = ..., member: _Optional[str] = ..., tolerances: _Optional[_Iterable[_Union[Tolerance, _Mapping]]] = ...) -> None: ...

class Tolerance(_message.Message):
    __slots__ = ("output", "relative", "absolute")
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    RELATIVE_FIELD_NUMBER: _ClassVar[int]
    ABSOLUTE_FIELD_NUMBER: _ClassVar[int]
    output: str
    relative: float
    absolute: float
    def __init__(self, output: _Optional[str] = ..., relative: _Optional[float] = ..., absolute: _Optional[float] = ...) -> None: ...

class Variant(_message.Message):
    __slots__ = ("target", "code", "needs", "weights", "buffers", "kernels", "steps", "measured", "certificates", "demands")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    NEEDS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    BUFFERS_FIELD_NUMBER: _ClassVar[int]
    KERNELS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATES_FIELD_NUMBER: _ClassVar[int]
    DEMANDS_FIELD_NUMBER: _ClassVar[int]
    target: str
    code: str
    needs: _containers.RepeatedScalarFieldContainer[str]
    weights: _containers.RepeatedScalarFieldContainer[str]
    buffers: _containers.RepeatedCompositeFieldContainer[Buffer]
    kernels: _containers.RepeatedCompositeFieldContainer[Kernel]
    steps: _containers.RepeatedCompositeFieldContainer[Step]
    measured: _containers.RepeatedCompositeFieldContainer[Measured]
    certificates: _containers.RepeatedCompositeFieldContainer[Certificate]
    demands: _containers.RepeatedCompositeFieldContainer[Demand]
    def __init__(self, target: _Optional[str] = ..., code: _Optional[str] = ..., needs: _Optional[_Iterable[str]] = ..., weights: _Optional[_Iterable[str]] = ..., buffers: _Optional[_Iterable[_Union[Buffer, _Mapping]]] = ..., kernels: _Optional[_Iterable[_Union[Kernel, _Mapping]]] = ..., steps: _Optional[_Iterable[_Union[Step, _Mapping]]] = ..., measured: _Optional[_Iterable[_Union[Measured, _Mapping]]] = ..., certificates: _Optional[_Iterable[_Union[Certificate, _Mapping]]] = ..., demands: _Optional[_Iterable[_Union[Demand, _Mapping]]] = ...) -> None: ...

class Measured(_message.Message):
    __slots__ = ("dim", "buffer")
    DIM_FIELD_NUMBER: _ClassVar[int]
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    dim: str
    buffer: int
    def __init__(self, dim: _Optional[str] = ..., buffer: _Optional[int] = ...) -> None: ...

class DimValue(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: int
    def __init__(self, name: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...

class Certificate(_message.Message):
    __slots__ = ("dims", "peak", "lower_bound", "far_bytes")
    DIMS_FIELD_NUMBER: _ClassVar[int]
    PEAK_FIELD_NUMBER: _ClassVar[int]
    LOWER_BOUND_FIELD_NUMBER: _ClassVar[int]
    FAR_BYTES_FIELD_NUMBER: _ClassVar[int]
    dims: _containers.RepeatedCompositeFieldContainer[DimValue]
    peak: int
    lower_bound: int
    far_bytes: int
    def __init__(self, dims: _Optional[_Iterable[_Union[DimValue, _Mapping]]] = ..., peak: _Optional[int] = ..., lower_bound: _Optional[int] = ..., far_bytes: _Optional[int] = ...) -> None: ...

class Buffer(_message.Message):
    __slots__ = ("name", "dtype", "shape", "nbytes", "kind", "key", "first", "last", "alias_of", "offset", "alignment")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    NBYTES_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    ALIAS_OF_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    ALIGNMENT_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[str]
    nbytes: str
    kind: str
    key: str
    first: int
    last: int
    alias_of: int
    offset: str
    alignment: int
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[str]] = ..., nbytes: _Optional[str] = ..., kind: _Optional[str] = ..., key: _Optional[str] = ..., first: _Optional[int] = ..., last: _Optional[int] = ..., alias_of: _Optional[int] = ..., offset: _Optional[str] = ..., alignment: _Optional[int] = ...) -> None: ...

class Kernel(_message.Message):
    __slots__ = ("symbol", "params", "grid", "block", "shared_bytes", "origins", "flops", "far_bytes", "text", "steps")
    SYMBOL_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    GRID_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    SHARED_BYTES_FIELD_NUMBER: _ClassVar[int]
    ORIGINS_FIELD_NUMBER: _ClassVar[int]
    FLOPS_FIELD_NUMBER: _ClassVar[int]
    FAR_BYTES_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    symbol: str
    params: _containers.RepeatedCompositeFieldContainer[Param]
    grid: _containers.RepeatedScalarFieldContainer[str]
    block: _containers.RepeatedScalarFieldContainer[str]
    shared_bytes: str
    origins: _containers.RepeatedScalarFieldContainer[str]
    flops: str
    far_bytes: str
    text: str
    steps: str
    def __init__(self, symbol: _Optional[str] = ..., params: _Optional[_Iterable[_Union[Param, _Mapping]]] = ..., grid: _Optional[_Iterable[str]] = ..., block: _Optional[_Iterable[str]] = ..., shared_bytes: _Optional[str] = ..., origins: _Optional[_Iterable[str]] = ..., flops: _Optional[str] = ..., far_bytes: _Optional[str] = ..., text: _Optional[str] = ..., steps: _Optional[str] = ...) -> None: ...

class Param(_message.Message):
    __slots__ = ("name", "kind")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: str
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[str] = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ("launch", "if_", "loop", "copy", "fill", "refuse")
    LAUNCH_FIELD_NUMBER: _ClassVar[int]
    IF__FIELD_NUMBER: _ClassVar[int]
    LOOP_FIELD_NUMBER: _ClassVar[int]
    COPY_FIELD_NUMBER: _ClassVar[int]
    FILL_FIELD_NUMBER: _ClassVar[int]
    REFUSE_FIELD_NUMBER: _ClassVar[int]
    launch: Launch
    if_: If
    loop: Loop
    copy: Copy
    fill: Fill
    refuse: Refuse
    def __init__(self, launch: _Optional[_Union[Launch, _Mapping]] = ..., if_: _Optional[_Union[If, _Mapping]] = ..., loop: _Optional[_Union[Loop, _Mapping]] = ..., copy: _Optional[_Union[Copy, _Mapping]] = ..., fill: _Optional[_Union[Fill, _Mapping]] = ..., refuse: _Optional[_Union[Refuse, _Mapping]] = ...) -> None: ...

class Launch(_message.Message):
    __slots__ = ("kernel", "buffers", "origins")
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    BUFFERS_FIELD_NUMBER: _ClassVar[int]
    ORIGINS_FIELD_NUMBER: _ClassVar[int]
    kernel: int
    buffers: _containers.RepeatedScalarFieldContainer[int]
    origins: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, kernel: _Optional[int] = ..., buffers: _Optional[_Iterable[int]] = ..., origins: _Optional[_Iterable[str]] = ...) -> None: ...

class If(_message.Message):
    __slots__ = ("condition", "then", "otherwise")
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    THEN_FIELD_NUMBER: _ClassVar[int]
    OTHERWISE_FIELD_NUMBER: _ClassVar[int]
    condition: int
    then: _containers.RepeatedCompositeFieldContainer[Step]
    otherwise: _containers.RepeatedCompositeFieldContainer[Step]
    def __init__(self, condition: _Optional[int] = ..., then: _Optional[_Iterable[_Union[Step, _Mapping]]] = ..., otherwise: _Optional[_Iterable[_Union[Step, _Mapping]]] = ...) -> None: ...

class Loop(_message.Message):
    __slots__ = ("trips", "condition", "iteration", "condition_out", "count", "carried", "scan_inputs", "scan_outputs", "body", "limit")
    TRIPS_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    CONDITION_OUT_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    CARRIED_FIELD_NUMBER: _ClassVar[int]
    SCAN_INPUTS_FIELD_NUMBER: _ClassVar[int]
    SCAN_OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    trips: int
    condition: int
    iteration: int
    condition_out: int
    count: int
    carried: _containers.RepeatedCompositeFieldContainer[Carried]
    scan_inputs: _containers.RepeatedCompositeFieldContainer[Scanned]
    scan_outputs: _containers.RepeatedCompositeFieldContainer[Scanned]
    body: _containers.RepeatedCompositeFieldContainer[Step]
    limit: str
    def __init__(self, trips: _Optional[int] = ..., condition: _Optional[int] = ..., iteration: _Optional[int] = ..., condition_out: _Optional[int] = ..., count: _Optional[int] = ..., carried: _Optional[_Iterable[_Union[Carried, _Mapping]]] = ..., scan_inputs: _Optional[_Iterable[_Union[Scanned, _Mapping]]] = ..., scan_outputs: _Optional[_Iterable[_Union[Scanned, _Mapping]]] = ..., body: _Optional[_Iterable[_Union[Step, _Mapping]]] = ..., limit: _Optional[str] = ...) -> None: ...

class Carried(_message.Message):
    __slots__ = ("initial", "entering", "leaving", "final")
    INITIAL_FIELD_NUMBER: _ClassVar[int]
    ENTERING_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    initial: int
    entering: int
    leaving: int
    final: int
    def __init__(self, initial: _Optional[int] = ..., entering: _Optional[int] = ..., leaving: _Optional[int] = ..., final: _Optional[int] = ...) -> None: ...

class Scanned(_message.Message):
    __slots__ = ("stacked", "slice", "axis", "reverse")
    STACKED_FIELD_NUMBER: _ClassVar[int]
    SLICE_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    REVERSE_FIELD_NUMBER: _ClassVar[int]
    stacked: int
    slice: int
    axis: int
    reverse: bool
    def __init__(self, stacked: _Optional[int] = ..., slice: _Optional[int] = ..., axis: _Optional[int] = ..., reverse: _Optional[bool] = ...) -> None: ...

class Copy(_message.Message):
    __slots__ = ("source", "target")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    source: int
    target: int
    def __init__(self, source: _Optional[int] = ..., target: _Optional[int] = ...) -> None: ...

class Fill(_message.Message):
    __slots__ = ("buffer", "once")
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    ONCE_FIELD_NUMBER: _ClassVar[int]
    buffer: int
    once: bool
    def __init__(self, buffer: _Optional[int] = ..., once: _Optional[bool] = ...) -> None: ...

class Refuse(_message.Message):
    __slots__ = ("buffer", "reason")
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    buffer: int
    reason: str
    def __init__(self, buffer: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...
