"""Eight numbers side by side: a vector type for numba kernels that work on eight documents at once.

numba offers no vector type, and LLVM finds none in loops of 3 or 9 labels. So the kernels say it themselves: ``load`` eight
neighbours of an array, compute with ``+ - * /`` and the functions below as if they were one number, ``store`` them. LLVM turns that
into whatever vector instructions the machine has. ``exp`` and ``where_below`` take plain numbers too.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic, lower_builtin, models, overload, register_model, type_callable

WIDTH = 8
_FLAGS = ("contract", "nsz")
_INT32 = ir.IntType(32)
_INT64 = ir.IntType(64)


def _primitive(function: Callable[..., Any]) -> Any:
    return intrinsic(function)


def _inlined(function: Callable[..., Any]) -> Any:
    # no reassociation in here: it would undo the two-step range reduction of exp
    return njit(function, fastmath={"contract"})


class Lanes(types.Type):
    """The numba type of eight float32 or float64."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"Lanes({dtype})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, lanes: Lanes) -> None:
        super().__init__(manager, lanes, _vector(lanes.dtype))  # type: ignore[no-untyped-call]


def _vector(dtype: Any) -> ir.VectorType:
    return ir.VectorType(ir.FloatType() if dtype == types.float32 else ir.DoubleType(), WIDTH)


def _mask(lanes: list[int]) -> ir.Constant:
    return ir.Constant(ir.VectorType(_INT32, len(lanes)), lanes)


def _shuffle(builder: Any, first: Any, second: Any, lanes: list[int]) -> Any:
    return builder.shuffle_vector(first, second, _mask(lanes))


def _spread(context: Any, builder: Any, value: Any, kind: Any, dtype: Any) -> Any:
    """``value`` itself if it is a vector, else eight copies of it."""
    if isinstance(kind, Lanes):
        return value
    undefined = ir.Constant(_vector(dtype), ir.Undefined)
    single = builder.insert_element(undefined, context.cast(builder, value, kind, dtype), ir.Constant(_INT32, 0))
    return _shuffle(builder, single, undefined, [0] * WIDTH)


def _pointer(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), _vector(kind.dtype).as_pointer())


@_primitive
def load(typing: Any, array: Any, index: Any) -> Any:
    """Eight neighbours of a one-dimensional array; no bounds are checked."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, array, args[0], args[1])
        return builder.load(pointer, align=array.dtype.bitwidth // 8)

    return Lanes(array.dtype)(array, types.intp), build


@_primitive
def store(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """Write eight neighbours of a one-dimensional array; no bounds are checked."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, array, args[0], args[1])
        builder.store(_spread(context, builder, args[2], value, array.dtype), pointer, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, value), build


@_primitive
def spread(typing: Any, array: Any, value: Any) -> Any:
    """Eight copies of a number, in the dtype of ``array``."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _spread(context, builder, args[1], value, array.dtype)

    return Lanes(array.dtype)(array, value), build


def _register(operation: Any, instruction: str) -> None:
    """Teach numba an operator between lanes, or lanes and a number."""

    def typed(context: Any) -> Any:
        def kind(a: Any, b: Any) -> Any:
            if isinstance(a, Lanes) or isinstance(b, Lanes):
                return a if isinstance(a, Lanes) else b
            return None

        return kind

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        dtype = signature.return_type.dtype
        pairs = zip(args, signature.args, strict=True)
        left, right = (_spread(context, builder, value, kind, dtype) for value, kind in pairs)
        return getattr(builder, instruction)(left, right, flags=_FLAGS)

    type_callable(operation)(typed)
    for a, b in ((Lanes, Lanes), (Lanes, types.Number), (types.Number, Lanes)):
        lower_builtin(operation, a, b)(build)  # type: ignore[no-untyped-call]


for _operation, _instruction in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _register(_operation, _instruction)


@_primitive
def larger(typing: Any, a: Any, b: Any) -> Any:
    """The larger of two, lane by lane; ``b`` where one of them is NaN."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", args[0], args[1]), args[0], args[1])

    return a(a, b), build


@_primitive
def where_below(typing: Any, x: Any, limit: Any, then: Any, otherwise: Any) -> Any:
    """``then`` where x < limit, else (and for NaN) ``otherwise``; for numbers and lanes."""
    kinds = (x, limit, then, otherwise)

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if isinstance(x, Lanes):
            values = [_spread(context, builder, arg, kind, x.dtype) for arg, kind in zip(args, kinds, strict=True)]
        else:
            values = [context.cast(builder, arg, kind, x) for arg, kind in zip(args, kinds, strict=True)]
        return builder.select(builder.fcmp_ordered("<", values[0], values[1]), values[2], values[3])

    return x(*kinds), build


@_primitive
def _exponent(typing: Any, x: Any) -> Any:
    """2^n out of a float whose lowest mantissa bits hold n plus the exponent's bias."""
    dtype = x.dtype if isinstance(x, Lanes) else x
    integer, shift = ir.IntType(dtype.bitwidth), 23 if dtype == types.float32 else 52

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = args[0].type
        bits = ir.VectorType(integer, WIDTH) if isinstance(x, Lanes) else integer
        amount = ir.Constant(bits, [shift] * WIDTH if isinstance(x, Lanes) else shift)
        return builder.bitcast(builder.shl(builder.bitcast(args[0], bits), amount), kind)

    return x(x), build


def exp(x: Any) -> Any:
    """e^x up to 88 (float32) or 709 (float64), for numbers and lanes; 0 below -87 or -708, NaN for NaN.

    x = n ln 2 + r with |r| <= ln 2 / 2. e^r is a polynomial: minimax of degree 6 in float32 (relative error 1.9e-9 beside the
    rounding), the Taylor series in float64. ln 2 is split in two so that its product with n loses nothing.
    """
    raise NotImplementedError  # only for compiled code


_F = np.float32
# 1.5 * 2^23 + 127: a sum with it is rounded to an integer that sits, with the exponent's bias, in the lowest bits of the mantissa
_ROUND32 = _F(12583039.0)
_LOG2_E32, _LN2_HIGH32, _LN2_LOW32 = _F(1.4426950408889634), _F(0.693359375), _F(-2.1219444005469057e-4)
_P0, _P1, _P2 = _F(1.0), _F(1.0000000363230943), _F(0.499999920798404)
_P3, _P4, _P5, _P6 = (
    _F(0.1666642017026965),
    _F(0.041668225566092766),
    _F(0.008374815778155631),
    _F(0.0013836846136895651),
)
_LOWEST32, _ZERO32 = _F(-87.0), _F(0.0)

_ROUND64 = 1.5 * 2.0**52 + 1023
_LOG2_E64, _LN2_HIGH64, _LN2_LOW64 = 1.4426950408889634, 0.6931471803691238, 1.9082149292705877e-10
_TAYLOR = tuple(1.0 / math.factorial(k) for k in range(13, -1, -1))


@_inlined
def _exp32(x: Any) -> Any:
    shifted = x * _LOG2_E32 + _ROUND32
    n = shifted - _ROUND32
    r = x - n * _LN2_HIGH32
    r = r - n * _LN2_LOW32
    p = r * _P6 + _P5
    p = p * r + _P4
    p = p * r + _P3
    p = p * r + _P2
    p = p * r + _P1
    p = p * r + _P0
    return where_below(x, _LOWEST32, _ZERO32, p * _exponent(shifted))


@_inlined
def _exp64(x: Any) -> Any:
    shifted = x * _LOG2_E64 + _ROUND64
    n = shifted - _ROUND64
    r = x - n * _LN2_HIGH64
    r = r - n * _LN2_LOW64
    p = r * _TAYLOR[0] + _TAYLOR[1]
    for k in range(2, 14):
        p = p * r + _TAYLOR[k]
    return where_below(x, -708.0, 0.0, p * _exponent(shifted))


@overload(exp, strict=False)
def _exp_typed(x: Any) -> Any:
    dtype = x.dtype if isinstance(x, Lanes) else x
    if dtype == types.float32:
        return lambda x: _exp32(x)
    return lambda x: _exp64(x)


@_primitive
def _transpose_in(typing: Any, source: Any, starts: Any, stride: Any, column: Any, target: Any, at: Any) -> Any:
    """target[at + 8 k + d] = source[starts[d] * stride + column + k] for d, k in 0..7."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        align = source.dtype.bitwidth // 8
        rows = []
        for position in _positions(context, builder, starts, args[1], args[2], args[3]):
            rows.append(builder.load(_pointer(context, builder, source, args[0], position), align=align))
        for k, row in enumerate(_transposed(builder, rows)):
            position = builder.add(args[5], ir.Constant(_INT64, WIDTH * k))
            builder.store(row, _pointer(context, builder, target, args[4], position), align=align)
        return context.get_dummy_value()

    return types.void(source, starts, types.intp, types.intp, target, types.intp), build


@_primitive
def _transpose_out(typing: Any, source: Any, at: Any, target: Any, starts: Any, stride: Any, column: Any) -> Any:
    """target[starts[d] * stride + column + k] = source[at + 8 k + d] for d, k in 0..7, in the order of d."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        align = source.dtype.bitwidth // 8
        rows = []
        for k in range(WIDTH):
            position = builder.add(args[1], ir.Constant(_INT64, WIDTH * k))
            rows.append(builder.load(_pointer(context, builder, source, args[0], position), align=align))
        positions = _positions(context, builder, starts, args[3], args[4], args[5])
        for position, row in zip(positions, _transposed(builder, rows), strict=True):
            builder.store(row, _pointer(context, builder, target, args[2], position), align=align)
        return context.get_dummy_value()

    return types.void(source, types.intp, target, starts, types.intp, types.intp), build


def _positions(context: Any, builder: Any, kind: Any, starts: Any, stride: Any, column: Any) -> list[Any]:
    data = context.make_array(kind)(context, builder, starts).data
    loaded = [builder.load(builder.gep(data, [ir.Constant(_INT64, d)])) for d in range(WIDTH)]
    return [builder.add(builder.mul(start, stride), column) for start in loaded]


def _transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """An 8 x 8 matrix the other way round, in three rounds that swap neighbours, pairs and halves."""
    for step, low, high in (
        (1, [0, 8, 2, 10, 4, 12, 6, 14], [1, 9, 3, 11, 5, 13, 7, 15]),
        (2, [0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]),
        (4, [0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]),
    ):
        swapped = list(rows)
        for i in (i for i in range(WIDTH) if not i & step):
            swapped[i] = _shuffle(builder, rows[i], rows[i + step], low)
            swapped[i + step] = _shuffle(builder, rows[i], rows[i + step], high)
        rows = swapped
    return rows


@_inlined
def gather(source: Any, starts: Any, width: int, target: Any, at: int) -> None:
    """target[at + 8 k + d] = source[starts[d] * width + k] for k < width: a row of each of eight documents, lane by lane.

    Less than eight vectors behind the last one may be overwritten; ``target`` has to have room for them.
    """
    if width < WIDTH:
        for d in range(WIDTH):
            if (starts[d] + 1) * width + WIDTH > len(source):
                _gather_singly(source, starts, width, target, at)
                return
        _transpose_in(source, starts, width, 0, target, at)
        return
    k = 0
    while k + WIDTH <= width:
        _transpose_in(source, starts, width, k, target, at + WIDTH * k)
        k += WIDTH
    if k < width:
        # once more, overlapping: eight scalar stores would hold up the vector that is loaded from them
        _transpose_in(source, starts, width, width - WIDTH, target, at + WIDTH * (width - WIDTH))


@_inlined
def _gather_singly(source: Any, starts: Any, width: int, target: Any, at: int) -> None:
    for k in range(width):
        for d in range(WIDTH):
            target[at + WIDTH * k + d] = source[starts[d] * width + k]


@_inlined
def scatter(source: Any, at: int, width: int, target: Any, starts: Any) -> None:
    """The way back: target[starts[d] * width + k] = source[at + 8 k + d] for k < width."""
    if width < WIDTH:
        for k in range(width):
            for d in range(WIDTH):
                target[starts[d] * width + k] = source[at + WIDTH * k + d]
        return
    k = 0
    while k + WIDTH <= width:
        _transpose_out(source, at + WIDTH * k, target, starts, width, k)
        k += WIDTH
    if k < width:
        _transpose_out(source, at + WIDTH * (width - WIDTH), target, starts, width, width - WIDTH)
