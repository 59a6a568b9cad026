// The one header that a generated kernel includes.
#pragma once
#include "async.cuh"
#include "attention.cuh"
#include "fma.cuh"
#include "math.cuh"
#include "matrix.cuh"
#include "memory.cuh"
#include "mma.cuh"
#include "names.cuh"
#include "platform.cuh"
#include "reduce.cuh"
#include "tile.cuh"
#include "types.cuh"
